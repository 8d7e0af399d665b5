// Package recovery decides what follows the end of an attempt: nothing, a restart within the job, a requeue of the job, or giving
// up. Its functions have no effects: they compute decisions from facts.
//
//   - [Decide] applies a [Policy] to a verdict and to the events of all earlier attempts in the run's ledger. Agent 0 calls it after each
//     round, the batch script's "attempt end" after the job, and simulate in place of both.
//   - [Refine] gives a verdict the cause that only Slurm and the batch script know: agents see a signal, but not whether it means
//     preemption, a time limit, a lost node or a person.
//   - [Policy.LeadFor] returns how long before the job's end the next attempt is warned, from how long earlier attempts took to end.
//
// # Guarantees
//
// No cause takes more requeues than its budget, in whatever order attempts with different causes end. A run without progress ends,
// unless it is only preempted. A larger budget never ends a run that a smaller budget lets go on. A run that a person canceled, or
// that exited with 93, is never started again.
//
// # Limits
//
// Decide trusts the ledger. Slurm's evidence is what Slurm 22.05 and 25.11 show (docs/concepts/recovery.md, "Limits").
package recovery
