// Package demo generates a fleet, its load, its demand, its supplier's bill and a list of prices,
// so that every part of the program can be tried without real data.
//
// What always holds:
//
//   - Nothing here is a measurement. Nodes and pods are named gen-, virtual clusters vc-a, and
//     billing lines and invoices carry x_Generated. The columns of [Demand] have no room for such
//     a mark, so callers that show it must say so.
//   - The exception is [Prices]: every row is a price that a provider published, with its date and
//     where it was compiled. Prices that were not found are left out.
//   - Randomness is passed in as draw, which returns 64 uniform bits per call. The same draws give
//     the same bytes on every machine: there is no floating point in this package.
//   - Files are CSV in the columns that package importer reads without a bad row and without a
//     warning.
//
// # Calibration
//
// The figures below were measured once on published data and are stored in this package as small
// tables of shares and shapes. [Catalogue] names the sources in full.
//
// [Fleet] has the node list of the openb trace, shape by shape: 1,213 GPU nodes with 6,212 GPUs.
// Its pods follow the trace's population (13.3 % without GPU, 37.8 % a part of one GPU, 48.0 % one
// GPU, 0.2 % two, 0.2 % four, 0.5 % eight). Within each of these classes they follow the shares of
// the frequent CPU and memory requests, GPU fractions, QoS classes and GPU model constraints (those
// of the variant in which about a tenth of the GPU pods name models). The trace calls two models G2
// and G3 and does not say what they are; here they are an A10G and an A100 40GB, which is this
// package's choice. Unlike in the trace, pods of one list run at the same time and never end: it is
// a mix to pack, not a schedule.
//
// [Load] simulates sixteen queues with first-come scheduling. Job sizes (mean 2.1 GPUs) and run
// times (median 4 minutes, mean 1.4 hours, larger jobs longer) follow the Helios cluster Earth in
// SC'21. The loads of the queues range as widely as those of Earth's virtual clusters in May 2020,
// where 67 % of the GPUs were running on average (52 % on Sundays), one virtual cluster at 1 % and
// four above 87 %. Queues and outages of the original are not reproduced.
//
// The measurements of the running GPUs have the levels of Acme in NSDI'24: a median SM activity of
// about 40 %, and half of the GPUs with more than 75 % of their memory in use. One node in 22 and
// 0.5 % of the hours have no measurements. The spread around the median, over virtual clusters and
// over time, is this package's choice.
//
// [Jobs] has the jobs of [Load] that were submitted in three days. They end as the GPU jobs of
// Helios Earth did: about 73.5 % completed, 13.6 % cancelled and 12.9 % failed. Long jobs are
// cancelled more often, so cancelled jobs have 42 % of the GPU time.
//
// [Reports] has what the nodes of [Fleet] report on one evening, with the pods placed by best fit.
// Activity has the levels that the Acme paper gives for PAI: a median of 20 %, and less than 25 %
// of the memory in use on most GPUs.
//
// [Serving] is invented, except for the bounds of its histograms, which are vLLM's.
//
// [Demand] follows regions 1 and 2 of the Shaved Ice data: growth by half years (fivefold and
// 3.3-fold in three years), the profile of the hours of the day and of the days of the week, the
// dip of the last week of the year, the replacement of one machine type by another within weeks
// (day 520 and day 638), and the spread from week to week. That data counts virtual machines
// without GPUs and is normalised: the shape is from the data, the levels are not.
//
// [Planted] has three small clusters with one thing wrong in each, so that every rule of advice has something to find. What it
// takes from publications is in [Catalogue]; loads, sizes and mistakes are invented.
//
// [Estate] is an invented bill. Its terms are the caller's.
package demo
