// Package placement decides where an agent of a run stands among the others: its number and their count, how many workers it starts and
// with which ranks, and where the agents find each other. It takes that from torchrun's flags (agent.go) or from the allocation of the
// Slurm step around it (slurm.go), and checks that the two agree. An error that only one node finds becomes the reason for which its agent
// rejects the run, so that the other agents learn of it. Flags that have no effect are reported (notes.go).
package placement
