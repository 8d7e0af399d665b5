// Package submission submits a run to Slurm, and records that. Only one command submits a run at a time (Env.Claim). The ledger has a
// `submitting` event before sbatch runs, and the job's ID afterwards (Env.Submit, Env.Record). A command may be killed in between. Then the
// first attempt of the job records the ID (Env.NoteBegin), or the next command finds the job among those that run the run's script
// (Newest).
package submission
