// Package goodput accounts for a run's time: how much of it became training that was kept, and where the rest went.
//
// [Of] takes the times from the run's ledger (ledger.go), and what the attempts did from metrics.jsonl (progress.go), which it reads once,
// front to back, in a bounded amount of memory. docs/concepts/recovery.md defines the parts.
package goodput
