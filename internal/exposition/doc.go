// Package exposition shows monitoring systems the progress of a run while its job runs: agent 0 writes a text file for node_exporter's
// textfile collector, and answers HTTP requests at an address that the job names. [Start] begins both.
//
// It computes the figures every half minute from the run's ledger and its metrics (figures.go). The file and the answers have the same
// figures, so frequent requests do not burden the file system. They are written in Prometheus' text format 0.0.4 or, if an HTTP client asks
// for it, in OpenMetrics 1.0 (text.go).
//
// The figures contain the job's name and id and the run's name, but no paths, hosts or settings.
package exposition
