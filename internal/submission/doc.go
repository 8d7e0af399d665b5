// Package submission hands a run to Slurm, and keeps the account of that. One command submits a run at a time (Env.Claim). The ledger says
// `submitting` before sbatch runs and names the job afterwards (Env.Submit, Env.Record). A command may be killed in between: then the
// first attempt of the job records it (Env.NoteBegin), or the next command finds it among the jobs that run the run's script (Newest).
package submission
