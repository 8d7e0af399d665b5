// Package recovery decides what follows the end of an attempt: nothing, a restart within the job, a
// requeue of the job, or giving up. It is pure: facts in, decision out.
//
//   - [Decide] applies a [Policy] to a verdict and to what the run's ledger tells of all attempts before.
//
// Agent 0 asks it after each round, the
//
//	  batch script's "attempt end" after the job, and simulate in the place of both.
//	- [Refine] gives a verdict the cause that only Slurm and the batch script know: agents see a signal, and not whether it
//	  means preemption, a time limit, a lost node or a person.
//	- [Policy.LeadFor] says how long before the job's end the next attempt is warned, by how long those before it took to end.
//
// # What it guarantees
//
// No cause takes more requeues than its budget, however its attempts are mixed with others'; a run that does not get on ends, unless it is
// only preempted; a larger budget ends no run that a smaller one lets live.
// What a person cancelled is never started again, nor what exits with 93.
//
// # Limits
//
// The ledger is believed as it is. Slurm's evidence is as Slurm 22.05 and 25.11 give it (docs/concepts/recovery.md,
// "Where it is not certain").
package recovery
