// Package rendezvous brings the agents of a run together. It finds agent 0, has both sides prove that they know the run's secret,
// and agrees on who takes part, with which ranks and at which ports. Its connection carries all messages between agents until the
// run ends.
//
//	r, err := rendezvous.Join(ctx, &config) // at every agent
//	defer r.Close()
//	for l := r.First; ; {
//		... // a round of the workers, see package supervise
//		l, err = r.NewLayout(l.Round+1, attempt, deadline) // at agent 0, which then calls Publish
//		l, err = r.AwaitLayout(ctx, l.Round+1)             // at the others
//	}
//
// rendezvous.go has agent 0's part, and dial.go that of all others.
//
// # How agent 0 is found
//
// If agents have another way to exchange a short text (Network.Exchange), it tells them where agent 0 is. Otherwise they know agent
// 0's name and the ports on which it may be, or an endpoint, where the first agent to come becomes agent 0. They race along all
// ways that may lead there, and accept only an agent 0 that proves itself. An agent that cannot take part reports that at the same
// place (Admission.Reject). An agent whose secret the run's agent 0 refuses ends at once. If agents did not meet, the error lists
// who tried what.
//
// # Who takes part
//
// A Layout holds the ranks of one round: of all agents that have a number and are alive when it is made. Lost agents are left out
// of the next round. Agents that come late, or come back, wait for it. Each agent increments a counter at agent 0 once a second;
// ten seconds of silence, on either side's own clock, are a loss.
//
// # Ports
//
// Agent 0 chooses a MASTER_PORT for each round, and serves the workers' stores: ddpbatch's own, and PyTorch's on request.
package rendezvous
