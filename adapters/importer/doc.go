// Package importer turns public files, in the columns that their authors gave
// them, into events.
//
// [Run] reads one file as one [Kind] and hands out its events in the order of
// the rows. What always holds:
//
//   - The same bytes, kind and options give the same events in the same order.
//     That makes the file a source ([SourceName]) whose sequences are dense, so
//     that importing it again changes nothing.
//   - A row becomes all of its events or none. A row that cannot be read is
//     handed out as a [tabular.BadRow] with line and column, and the rest goes on.
//   - Nothing is guessed: a time without a zone, a quantity that is no number,
//     a name given twice are bad rows. What the file does not say (activity,
//     memory of an unknown GPU) stays empty.
//   - Memory follows the longest row and the number of names, not the file.
//
// Files are CSV with a header, columns in any order and case, further columns
// ignored, plain or gzip. Times are RFC 3339; times without a zone need
// [Options.Zone]. [Options.Shift] moves all of them. Quantities are read as
// exact decimals; thousandths are rounded half to even.
//
// # nodes, version 1
//
// The node list of the Alibaba openb trace: sn (name), cpu_milli (thousandths
// of a CPU), memory_mib, gpu (number), model. Columns of our own, all optional:
// uuids (one GPU UUID per device, separated by ';'), zone, sku, resource_id,
// billing_model, provider, billing_account, fabric_domain, in_service_from.
// Each row is a NodeRegistered at in_service_from or else at [Options.Epoch].
// GPU ids that are not given are derived from cluster, node and index. A model
// that the catalogue knows is written in its one spelling, another as it
// stands, with a warning.
//
// # pods, version 1
//
// The pod lists of the openb trace: name, cpu_milli, memory_mib, num_gpu,
// gpu_milli (thousandths of each GPU); optional are gpu_spec (allowed models
// separated by '|'), qos, creation_time and deletion_time (seconds from
// [Options.Epoch]). Each row is a DeploymentChanged with one replica at its
// creation and a DeploymentRemoved at its deletion, when there is one. Lists
// without times stand at the epoch. Class: qos LS (latency-sensitive) is
// serving; BE, Burstable, Guaranteed and no qos are batch, because Kubernetes'
// classes say how resources are promised, not that anybody waits for an
// answer. A share of one GPU is Need.Milli; a whole GPU is Need.Count alone.
// pod_phase and scheduled_time say what one scheduler did and are left out.
//
// # usage, version 3
//
// Hourly means per virtual cluster as derived from the Helios traces: hour, vc,
// total_gpu, running_gpu_mean, pending_gpu_mean; running_gpu_max and the rest
// are not used. Hours of a virtual cluster ascend. Each row is a
// DemandObserved (pool vc, unit gpu) and an expansion into samples:
//
//   - the virtual cluster has total_gpu devices on nodes of
//     [Options.NodeGPUs], named vc-000, vc-001 and so on, the last perhaps
//     smaller, each registered (NodeRegistered, derived ids) when first seen or
//     grown, with its name as resource id, [Options.SKU], [Options.Account] and
//     its share of [Options.CPUMilli] and [Options.MemoryMiB]; nodes beyond
//     total_gpu are not reported in that hour;
//   - in interval k of the hour's n, with mean m, the number of devices held is
//     round(k·m) − round((k−1)·m), half to even, so that the intervals sum to
//     round(n·m) and none exceeds the mean rounded up;
//   - the lowest devices of the lowest nodes are held, by deployment "jobs" of
//     the workspace vc or what [Options.Workspaces] maps it to.
//
// Times of change within the hour and the nodes are thus constructed; the
// GPU-hours are the file's. Columns of our own, both optional, say what was
// measured of the running GPUs over the hour: running_sm_active (percent, at most
// one decimal place) and running_memory_mib, each a list separated by ';'. The
// first value is that of the lowest device of the lowest node, and holds while
// the device is held. A blank value, a missing one and a row without them say that
// nothing was measured; of devices that nobody holds nothing is stated.
//
// # demand, version 1
//
// Hourly demand: hour (or timestamp, usage_hour), pool or region (or
// region_num), model (or instance_type; optional), demand (or count,
// norm_usage), optional pending, owned and unit (gpu or vm). Without a pool it
// is "region/model". Without a unit it is vm when the column is instance_type
// and gpu otherwise. [Options.Regions] and [Options.Models] rename what the file
// calls by numbers or letters, before anything else is made of it; two that
// become one are one series. Hours of a pool ascend. Each row is a
// DemandObserved. The columns of Snowflake's Shaved Ice data set work as they
// are.
//
// # prices, version 1
//
// Dated offers: provider, region, instance_type, gpu_model, gpu_count,
// gpu_memory, vcpu, memory, offer, term_months, upfront, hourly,
// effective_hourly, currency, as_of, source; optional guarantees_capacity
// (true or false), lead_time_hours, min_units, max_units. Each row is an
// OfferQuoted, of whole GPUs or of a part of one (gpu_count 0.125), valid from the first day (UTC) of the last month that as_of
// names. See [pricesKind] for offer ids, memory and terms.
package importer
