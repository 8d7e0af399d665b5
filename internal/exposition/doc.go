// Package exposition shows monitoring how a run gets on, for as long as its job runs: agent 0 writes a text file for node_exporter's
// textfile collector, and answers whoever asks at an address that the job names. [Start] begins both.
//
// Figures are taken every half minute, from the run's ledger and its metrics (figures.go). The file, and an answer, have the same ones: who
// asks often costs the file system nothing. They are written in Prometheus' text format 0.0.4, or where an HTTP client asks for it in
// OpenMetrics 1.0 (text.go).
//
// No path, host or setting is shown, but only the job's name and id, and the run's name.
package exposition
