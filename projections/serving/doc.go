// Package serving reports the work of model servers and jobs over a time: requests, tokens, latency
// histograms and queues ([NewReport]), and jobs by outcome ([Jobs]).
//
// Histograms are merged only if their bounds are equal; nothing is interpolated between different
// ones.
package serving
