// Package rendezvous brings the agents of a run together: it finds agent 0, has both sides prove that they know the run's secret, and
// agrees on who takes part, with which ranks and at which ports. Its connection carries all that agents say to each other until the run
// ends.
//
//	r, err := rendezvous.Join(ctx, &config) // at every agent
//	defer r.Close()
//	for l := r.First; ; {
//		... // a round of the workers, see package supervise
//		l, err = r.NewLayout(l.Round+1, attempt, deadline) // at agent 0, which then calls Publish
//		l, err = r.AwaitLayout(ctx, l.Round+1)             // at the others
//	}
//
// Agent 0's part is in rendezvous.go, that of all others in dial.go.
//
// # How agent 0 is found
//
// Agents with another way to exchange a word (Network.Exchange) learn by it where agent 0 is; the others know its name, and ports on
// which it may be, or an endpoint where whoever is first is agent 0. They race along all ways that may lead there, and only a proof
// counts. An agent that cannot take part says so at the same place (Admission.Reject); one whose secret its run's agent 0 refuses
// ends at once. Where agents did not meet, the error tells who tried what.
//
// # Who takes part
//
// A Layout is the ranks of one round: of all agents that have a number and live when it is made. Those that are lost have no part in
// the next one; those that come late, or come back, wait for it. Agents count once a second at agent 0; ten seconds of silence, on
// either side's own clock, are a loss.
//
// # Ports
//
// Agent 0 has a MASTER_PORT for each round, and serves the workers' stores: ddpbatch's own, and PyTorch's where that is asked for.
package rendezvous
