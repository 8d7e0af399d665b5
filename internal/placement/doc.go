// Package placement decides where an agent of a run stands among the others: which number it has of how many, how many workers it
// starts and of which ranks, and where they find each other. It takes that from torchrun's flags (agent.go), or from the allocation of
// the Slurm step around it (slurm.go), and holds what both say against each other. What is wrong on one node alone becomes the reason
// for which its agent rejects the run, so that the others hear of it. Flags that are given for nothing are told of (notes.go).
package placement
