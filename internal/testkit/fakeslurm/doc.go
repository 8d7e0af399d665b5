// Package fakeslurm has, for tests, a Slurm that is shell scripts, and a run of a job in it.
package fakeslurm
