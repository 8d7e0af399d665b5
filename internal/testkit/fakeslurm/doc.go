// Package fakeslurm provides tests with a Slurm that consists of shell scripts, and with the run of a job in it: what squeue prints about
// its jobs, and what other commands have left in its directory.
package fakeslurm
