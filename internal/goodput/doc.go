// Package goodput computes where a run's time went: how much of it was training that was kept, and what the rest was used for.
//
// [Accounts.Of] takes the times from the run's ledger (ledger.go), and what the attempts did from metrics.jsonl (progress.go), which it
// reads once, sequentially, with a bounded amount of memory. docs/concepts/recovery.md defines the parts.
package goodput
