// Package importer turns public data sets, in their original columns, into events.
//
// [Run] reads one file as one [Kind] and emits its events in the order of the rows. What always
// holds:
//
//   - The same bytes, kind and options give the same events in the same order. So a file is a
//     source ([SourceName]) with dense sequence numbers, and importing it again changes nothing.
//   - A row gives all of its events or none. A row that cannot be read becomes a
//     [tabular.BadRow] with line and column, and the import continues.
//   - Nothing is guessed: a time without a zone, a quantity that is not a number or a duplicate
//     name makes a bad row. Facts that the file does not contain (activity, memory of an unknown
//     GPU) stay empty.
//   - Memory grows with the longest row and the number of names, not with the file.
//
// Files are CSV with a header, plain or gzip. Columns may be in any order and case; additional
// columns are ignored. Times are RFC 3339; times without a zone need [Options.Zone].
// [Options.Shift] moves all times. Quantities are read as exact decimals; thousandths are
// rounded half to even.
//
// # nodes, version 1
//
// The node list of the Alibaba openb trace: sn (name), cpu_milli (thousandths of a CPU),
// memory_mib, gpu (number), model. Our own columns, all optional: uuids (one GPU UUID per device,
// separated by ';'), zone, sku, resource_id, billing_model, provider, billing_account,
// fabric_domain, in_service_from. Each row is a NodeRegistered at in_service_from, or at
// [Options.Epoch] without one. Missing GPU ids are derived from cluster, node and index. A model
// in the catalogue gets its canonical spelling; another is kept as written, with a warning.
//
// # pods, version 1
//
// The pod lists of the openb trace: name, cpu_milli, memory_mib, num_gpu, gpu_milli (thousandths
// of each GPU). Optional are gpu_spec (allowed models, separated by '|'), qos, creation_time and
// deletion_time (seconds from [Options.Epoch]). Each row is a DeploymentChanged with one replica
// at its creation, and a DeploymentRemoved at its deletion, if it has one. Without times, all
// pods are created at the epoch. Class: qos LS (latency-sensitive) is serving. BE, Burstable,
// Guaranteed and no qos are batch, because the classes of Kubernetes tell how resources are
// guaranteed, not whether someone waits for an answer. A share of one GPU is Need.Milli; a whole
// GPU is Need.Count alone. pod_phase and scheduled_time describe what one scheduler did, so they
// are ignored.
//
// # usage, version 3
//
// Hourly means per virtual cluster, derived from the Helios traces: hour, vc, total_gpu,
// running_gpu_mean, pending_gpu_mean. running_gpu_max and other columns are ignored. The hours of
// a virtual cluster MUST ascend. Each row is a DemandObserved (pool vc, unit gpu) and is expanded
// into samples:
//
//   - The virtual cluster has total_gpu devices on nodes of [Options.NodeGPUs], named vc-000,
//     vc-001 and so on; the last node may be smaller. A node is registered (NodeRegistered,
//     derived ids) when first seen or grown. It has its name as resource id, [Options.SKU],
//     [Options.Account] and its share of [Options.CPUMilli] and [Options.MemoryMiB]. Nodes
//     beyond total_gpu are not reported in that hour.
//   - In interval k of the n intervals of an hour with mean m, the number of held devices is
//     round(k·m) − round((k−1)·m), half to even. So the intervals sum to round(n·m), and none
//     exceeds the mean rounded up.
//   - The first devices of the first nodes are held, by the deployment "jobs" of the workspace
//     vc, or of the workspace that [Options.Workspaces] maps it to.
//
// The nodes and the changes within the hour are thus synthetic; the GPU-hours are from the file.
// Two optional columns of our own have hourly measurements of the running GPUs:
// running_sm_active (percent, at most one decimal place) and running_memory_mib, each a list
// separated by ';'. The first value belongs to the first device of the first node, and applies
// while the device is held. A blank or missing value means that nothing was measured. Devices
// that are not held have no measurements.
//
// # demand, version 1
//
// Hourly demand: hour (or timestamp, usage_hour), pool or region (or region_num), model (or
// instance_type; optional), demand (or count, norm_usage), optional pending, owned and unit (gpu
// or vm). The default pool is "region/model". The default unit is vm if the column is
// instance_type, else gpu. [Options.Regions] and [Options.Models] rename the file's numbers or
// letters first; two regions with the same new name are one series. The hours of a pool MUST
// ascend. Each row is a DemandObserved. The columns of Snowflake's Shaved Ice data set work
// unchanged.
//
// # prices, version 1
//
// Dated offers: provider, region, instance_type, gpu_model, gpu_count, gpu_memory, vcpu, memory,
// offer, term_months, upfront, hourly, effective_hourly, currency, as_of, source; optional
// guarantees_capacity (true or false), lead_time_hours, min_units, max_units, spend. Each row is an
// OfferQuoted of whole GPUs or of a part of one (gpu_count 0.125). It is valid from the day that
// as_of names, or the first day (UTC) of the month; of a range, the last one counts. See
// [pricesKind] for offer ids, memory and terms.
//
// # energy, version 1
//
// Our own columns, since power distribution units agree on none: meter, from, to and kwh for the
// energy of each interval, or meter, time and kwh_total for the counter of each meter. Optional:
// nodes, the machines behind the meter, separated by ';'; without any, all machines of the cluster.
// Each row is an EnergyMetered, except the first counter of a meter. Counters of a meter MUST
// ascend in time and never fall. An interval has at most 31 days.
package importer
