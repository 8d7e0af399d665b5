// Package attempt implements what a job's batch script does around srun: it begins an attempt of the run (Begin), ends an srun that
// outlives the attempt (Watch), and ends the attempt (End). An ended attempt has a verdict, which agent 0 has written or which End makes
// from what else is known (verdict.go). End asks Slurm what becomes of the job (scheduler.go). One table decides what follows (decide.go),
// and Attempt.Act does it: the job is put back into the queue, or the run is given up.
//
// Package simulate runs the same attempts, with another Scheduler in place of Slurm.
package attempt
