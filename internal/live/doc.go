// Package live looks into a job while it runs: it runs commands and shells on the job's nodes, in the environment of the ranks, and shows
// where the ranks' threads are.
//
// There are two sides. A [Job] is for the user's command: it knows which ranks run on which nodes, and starts this program on those nodes,
// by srun beside the job's own step, or on this machine if the job is simulated. A [Node] is for the program on a node: it finds the
// processes of the ranks. Neither side asks the job's agents, so that a job that hangs can be examined too.
package live
