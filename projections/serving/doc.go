// Package serving reports how model servers and jobs did over a time: requests, tokens,
// latency histograms and queues ([NewReport]), and jobs by outcome ([Jobs]).
//
// Histograms are merged only where their bounds are equal; nothing is interpolated
// between unlike ones.
package serving
