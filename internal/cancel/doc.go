// Package cancel ends a run's jobs because a person wants it: those that Slurm has, or the process that simulates one. The wish is in the
// run's ledger before anybody acts on it, so that an attempt which ends just then does not requeue its job.
package cancel
