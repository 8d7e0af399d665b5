// Package fakeslurm has, for tests, a Slurm that is shell scripts, and a run of a job in it: what squeue tells of its jobs, and what other
// commands have left in its directory.
package fakeslurm
