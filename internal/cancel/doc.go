// Package cancel cancels a run's jobs when a person asks for it: those in Slurm, or the process that simulates one. It records the cancel
// in the run's ledger before it acts, so that an attempt that ends just then does not requeue its job.
package cancel
