// Package launch is the agent of one node: it starts the node's workers, watches
// them, and stops all of them, on every node, when the first one fails anywhere.
//
// One agent runs on each node of a run (agent mode), or one for each rank where
// Slurm starts the ranks (task mode). Agent 0 serves the control store that they meet
// at; each of the others holds one connection to it, which carries what they
// tell each other and whose end, or silence, tells that an agent is gone.
//
//	verdict, err := launch.Run(ctx, launch.AgentConfig{
//		Identity: launch.Identity{RunID: "demo", Secret: secret},
//		World:    launch.World{Index: 0, Count: 1, Host: "n1", Nproc: 4},
//		Workers:  launch.Workers{Command: []string{"python3", "train.py"}, Env: os.Environ()},
//		Streams:  launch.Streams{Stdout: os.Stdout, Stderr: os.Stderr},
//	})
//
// Package rendezvous brings the agents together and says who takes part; package supervise runs one round of the workers; package
// recovery says what follows it. This package has them take turns.
//
// # Rounds
//
// One start of all workers is a round. When all of them are gone, agent 0 finalizes how the round ended, and decides with package
// recovery whether there is another one in the same job. Each round has an attempt of its own in the run directory, which fences off
// what is left of the one before; a MASTER_PORT of its own; stores of its own for the workers; and keys of its own in the control
// store. An attempt that another job has superseded meanwhile ends with 93.
//
// With MinCount the agents may become fewer, and more again: a round has the agents as members that are there when it begins. Those
// that are lost have no part in the next one; those that come late, or come back, wait for it, and do not cause one. Ranks and node
// ranks are contiguous over the members. Without agent 0 there is no other round.
//
// # Guarantees
//
// Every agent returns the same verdict, the last round's: the first failure, stop or loss that was
// published, by one compare-and-set in the store, or "done". Agent 0 has
// written it to the run directory, durably, before any other agent returns.
// Where agent 0 itself is lost, the others agree on that alone; where it hangs, each ends with what it
// knows when the time for all workers to end is over.
//
// Ten seconds of silence, on either side's own clock, are a loss: agent 0 goes on without the agent, or ends the round; an agent without
// agent 0 may be the one that is cut off, and gives its workers five seconds.
//
// On a failure the workers of every node get TERM, and KILL after a grace. A signal that an agent gets (a context cancelled with a
// [SignalError]) is passed on instead of TERM, once; workers that exit with 75 then have saved, and the verdict says so. Workers that
// exit with 75 by themselves have agreed to stop: the others get the grace to end by themselves first.
//
// A warning (AgentConfig.Warn, a stop file, a deadline that is near) asks workers to save and exit with 75: each agent makes the stop
// file that they know, and sends WarnSignal to those processes alone that have a handler for it, now or later; one that dies of it all
// the same was ending, and counts as 75. Nobody is stopped, but a failure is not mended any more.
//
// With AgentConfig.HangAfter agents look for signs of life of their workers (package watch), and tell agent 0 when there are none. Once
// those of all nodes have been silent for so long, each agent writes down where its workers are, and they are ended.
//
// A worker leads a process group of its own, which is killed when the worker ends; the worker dies when its agent does, even by KILL
// (package proc). With AgentConfig.Sweep so does all that it has started, wherever that went: at the end of each round, and when the
// agent dies.
//
// A worker whose last words only say that it lost a peer does not stop the others for a second, as the peer is about to say why. Who
// failed first in truth is found when all have ended (package blame): the verdict names that rank, and has its exit code.
//
// Ranks are contiguous by agent in agent mode, fixed beforehand in task mode, which has no
// change of members; nodes may have different numbers of workers.
//
// # Output
//
// Package output carries it: each stream of each rank to a log file of its own, in the run directory or below AgentConfig.LogDir, and to
// the agent's stdout and stderr in whole lines.
//
// # Security
//
// Nobody joins without proving that it knows the run's secret. Foreign commands do not get it: it is taken out of their environment. What
// agents say to each other is encrypted (package secure). PyTorch's store (TorchStore) knows no proof: it is served on the job's interface
// alone, to whoever reaches it.
package launch
