// Package simulate runs a whole job on this machine, without Slurm. Pretend says what the job is to be like (pretend.go). Job plays the
// controller and the batch script (job.go): the step's agents are processes, started by package slurm/sim, and faults are injected
// into them. What the controller knows of the job's end, and the batch script of its signals, is in slurm.go; package attempt decides
// what follows. An array is several jobs in one process (run.go). All output comes together in one place (console.go).
package simulate
