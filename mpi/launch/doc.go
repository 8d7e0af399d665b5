// Package launch is the agent of one node: it starts the node's workers, watches
// them, and stops all of them, on every node, when the first one fails anywhere.
//
// One agent runs on each node of a run (agent mode), or one for each rank where
// Slurm starts the ranks (task mode). Agent 0 serves the store that they meet
// at; each of the others holds one connection to it, which carries what they
// tell each other and whose end tells that an agent is gone.
//
//	verdict, err := launch.Run(ctx, launch.AgentConfig{
//		Index: 0, Count: 1, Host: "n1", Nproc: 4,
//		RunID: "demo", Secret: secret, Command: []string{"python3", "train.py"}, Env: os.Environ(),
//		Stdout: os.Stdout, Stderr: os.Stderr,
//	})
//
// # Guarantees
//
// Every agent returns the same verdict: the first failure, stop or loss that was
// published, by one compare-and-set in the store, or "done". Agent 0 has
// written it to the run directory, durably, before any other agent returns.
// Where agent 0 itself is lost, the others agree on that alone; where it hangs, each ends with what it
// knows when the time for all workers to end is over.
//
// On a failure the workers of every node get TERM, and KILL after a grace. A
// signal that an agent gets (a context cancelled with a [SignalError]) is passed
// on instead of TERM, once. Workers that exit with 75 have agreed to stop: the
// others get the grace to end by themselves first.
//
// A worker leads a process group of its own. The group is killed when the worker
// ends, and when its agent does, even by KILL (package proc). Children that leave the group are
// not found.
//
// Ranks are contiguous by agent in agent mode, fixed beforehand in task mode;
// nodes may have different numbers of workers.
//
// # Output
//
// Each stream of each rank has a log file of its own, byte for byte. The agent's own
// stdout and stderr get whole lines only: a last line without an end gets one, and a line of more
// than 64 KiB is shown as several.
//
// # Security
//
// Nobody joins without proving that it knows the run's secret. Foreign commands do not
// get it: it is taken out of their environment. What agents say to each other is not
// encrypted.
package launch
