// Package supervise starts one agent's workers, watches them, and ends them on every node when the first one fails anywhere.
//
//	agent := supervise.NewAgent(ctx, config, rendezvous, rendezvous.First, nil)
//	s := agent.Supervise(ctx, layout) // one round, until the workers of all agents are gone
//	if rendezvous.Index() == 0 {
//		verdict, err = s.Verdict(ctx)
//		err = s.Record(verdict)                    // on disk, before the others read of it
//		err = s.PublishVerdict(ctx, verdict, false) // without it the others wait
//	} else {
//		verdict, next, err = s.ReceivedVerdict()
//	}
//	s.Close()
//	agent.Close()
//	rendezvous.Close()
//	agent.Wait()
//
// The caller decides what follows a round; package launch does so with package recovery.
//
// # Guarantees
//
// The outcome of a round is the first failure, stop or loss that was published, by one compare-and-set in the store of the round,
// or "done". On a failure the workers of every node get TERM, and KILL after a grace. A signal that an agent gets is passed on
// instead of TERM, once. Workers that exit with 75 without a signal have agreed to stop: the others first get the grace to end by
// themselves. With Workers.Sweep, no process that a worker started outlives the round.
//
// A Supervisor has one goroutine, which waits for events and acts on them. The goroutines of the control channel send messages to
// other agents and receive theirs, because a read there takes as long as the round.
//
// # Requirements
//
// The rendezvous must provide the interface Rendezvous: a store that all agents share, addresses, and which agents are lost.
package supervise
