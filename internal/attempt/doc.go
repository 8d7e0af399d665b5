// Package attempt is what happens around srun in a job's batch script: the attempt of the run that begins (Begin), the srun that outlives
// it (Watch), and its end (End). An end has a verdict, which agent 0 has written or which is made here of what else is known (verdict.go).
// Slurm is asked what becomes of the job (scheduler.go). One table decides what follows (decide.go), and Attempt.Act does it: the job is
// put back into the queue, or the run is given up.
//
// Package simulate runs the same attempts, with itself in Slurm's place: it is another Scheduler.
package attempt
