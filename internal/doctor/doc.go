// Package doctor checks what runs depend on. On a machine from which jobs are submitted it checks Slurm and the folder of runs. In a job it
// checks each node, the nodes' clocks, and the network between them. Its only changes are temporary files, which it removes. Each finding
// says what is wrong and what to do.
package doctor
