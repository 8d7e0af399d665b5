// Package simulate runs a whole job on this machine, without Slurm. Pretend describes the job and its environment (pretend.go). Job does
// the work of the controller and the batch script (job.go): the step's agents are processes, which package slurm/sim starts, and into which
// faults are injected. File slurm.go holds what the controller knows of the job's end, and what the batch script knows of its signals;
// package attempt decides what follows. An array is several jobs in one process (run.go). All output goes through console.go.
package simulate
