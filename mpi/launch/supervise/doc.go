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
// What follows a round is for the caller to decide (package recovery); package launch does.
//
// # What it guarantees
//
// The outcome of a round is the first failure, stop or loss that was published, by one compare-and-set in the store of the round, or
// "done". On a failure the workers of every node get TERM, and KILL after a grace. A signal that an agent gets is passed on instead of
// TERM, once. Workers that exit with 75 by themselves have agreed to stop: the others get the grace to end by themselves first. Nothing
// that a worker started outlives the round, where Workers.Sweep says so.
//
// A Supervisor has one goroutine, which waits for events and acts on them; what it says to other agents, and receives from them, goes
// through the control channel's goroutines, since a read there takes as long as the round.
//
// # What it needs
//
// Of the rendezvous it needs no more than the interface Rendezvous: a store that all agents have in common, addresses, and who is lost.
package supervise
