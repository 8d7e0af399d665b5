// Package live looks into a job while it runs: it runs commands and shells on the job's nodes, in the environment of its ranks, and tells
// where their threads are.
//
// There are two sides. A [Job] is for the person's command: it knows which ranks run on which nodes, and starts this program there, by srun
// beside the job's own step, or, of a job that is simulated, on this machine. A [Node] is for that program: it finds the ranks' processes.
// Nothing is asked of the job's agents, so that a job that hangs can be looked into.
package live
