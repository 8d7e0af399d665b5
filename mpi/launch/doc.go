// Package launch is the agent of one node: it starts the node's workers, watches
// them, and stops all of them, on every node, when the first one fails anywhere.
//
// One agent runs on each node of a run (agent mode), or one for each rank if
// Slurm starts the ranks (task mode). Agent 0 serves the control store. Each of
// the others holds one connection to it. That connection carries all messages
// between agents, and an agent is lost when it ends or falls silent.
//
//	verdict, err := launch.Run(ctx, launch.AgentConfig{
//		Identity: launch.Identity{RunID: "demo", Secret: secret},
//		World:    launch.World{Index: 0, Count: 1, Host: "n1", Nproc: 4},
//		Workers:  launch.Workers{Command: []string{"python3", "train.py"}, Env: os.Environ()},
//		Streams:  launch.Streams{Stdout: os.Stdout, Stderr: os.Stderr},
//	})
//
// Package rendezvous brings the agents together and decides who takes part. Package supervise runs one round of the workers. Package
// recovery decides what follows a round. This package calls them in turn.
//
// # Rounds
//
// A round begins with the start of all workers and ends when all of them have ended. Agent 0 then finalizes the round's verdict and
// asks package recovery whether another round follows in the same job. Each round has its own attempt in the run directory, which fences
// off whatever is left of earlier ones; its own MASTER_PORT; its own stores for the workers; and its own keys in the control store. An
// attempt that another job has superseded ends with exit code 93.
//
// With MinCount the number of agents may shrink and grow again. The members of a round are the agents that are present when it begins.
// Lost agents are left out of the next round. Agents that come late, or come back, wait for the next round but do not cause one. Ranks
// and node ranks are contiguous over the members. Once agent 0 is lost, no other round follows.
//
// # Guarantees
//
// Every agent returns the same verdict, the last round's: the first failure, stop or loss that was published, by one compare-and-set in
// the store, or "done". Agent 0 has written it to the run directory, durably, before any other agent returns. If agent 0 itself is lost,
// the others agree only on that. If it hangs, each of the others ends with what it knows once the time for all workers to end is over.
//
// An agent counts as lost after ten seconds of silence, measured on the other side's own clock. If another agent is lost, agent 0 goes on
// without it or ends the round. An agent that loses agent 0 may itself be the one that is cut off, so it gives its workers five seconds.
//
// On a failure the workers of every node get TERM, and KILL after a grace. A signal that an agent gets (a context canceled with a
// [SignalError]) is passed on instead of TERM, once. If workers then exit with 75, they have saved, and the verdict says so. Workers that
// exit with 75 without a signal have agreed to stop: the others first get the grace to end by themselves.
//
// A warning (AgentConfig.Warn, a stop file, a near deadline) asks workers to save and exit with 75. Each agent creates the stop file that
// its workers look for, and sends WarnSignal to those processes that have a handler for it, now or later. A process that dies of it
// nevertheless was about to end, and counts as exit code 75. The warning stops no worker, but from then on a failure does not lead to a
// restart.
//
// With AgentConfig.HangAfter, agents watch for signs of life of their workers (package watch) and report to agent 0 when there are none.
// When the workers of all nodes have been silent for that long, each agent writes down where its workers are, and then ends them.
//
// A worker leads its own process group, which is killed when the worker ends. The worker dies when its agent does, even if the agent is
// killed (package proc). With AgentConfig.Sweep this also holds for every process that a worker has started, in whatever process group it
// is: such processes are killed at the end of each round, and when the agent dies.
//
// A worker whose last output only reports a lost peer does not stop the others for one second, as that peer is about to report the
// reason. When all have ended, package blame finds the rank that really failed first; the verdict names that rank and has its exit code.
//
// Ranks are contiguous by agent in agent mode. In task mode they are fixed beforehand, and the members cannot change. Nodes may have
// different numbers of workers.
//
// # Output
//
// Package output carries each stream of each rank to its own log file, in the run directory or below AgentConfig.LogDir, and in whole
// lines to the agent's stdout and stderr.
//
// # Security
//
// An agent joins only after it has proved that it knows the run's secret. Commands that are not ddpbatch's own do not get the secret: it
// is removed from their environment. Messages between agents are encrypted (package secure). PyTorch's store (TorchStore) has no means of
// proof: it is served on the job's interface only, to anyone who reaches it.
package launch
