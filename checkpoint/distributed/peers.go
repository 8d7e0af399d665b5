package distributed

import "context"

// Peers carries messages from rank to rank, beside the Group's collectives and at the same time: a communicator of its own. Its methods are
// called by several goroutines at a time, one for each other rank. Messages from one rank to another arrive whole and in their order. Where a rank
// has died, or ctx is done, they return an error instead of waiting for ever, soon on all ranks.
type Peers interface {
	// Send sends a message, and returns when the receiver has taken it: so no more than one lies in the memory of a node with a slow disk.
	Send(ctx context.Context, to int, payload []byte) error
	// Recv receives the next message of a rank into buf, which has room for it, and returns its length.
	Recv(ctx context.Context, from int, buf []byte) (int, error)
}

// partners says, for each rank, which rank keeps a replica of its shards: one of the next node, by order of first ranks, and there the
// one with the same place, or, where that node has fewer, one that others have, too. nil: there is no other node.
func partners(nodes []string) []int {
	ranks := map[string][]int{} // by node, ascending
	var order []string
	place := make([]int, len(nodes)) // on its node
	for rank, node := range nodes {
		if ranks[node] == nil {
			order = append(order, node)
		}
		place[rank] = len(ranks[node])
		ranks[node] = append(ranks[node], rank)
	}
	if len(order) < 2 {
		return nil
	}
	next := map[string][]int{}
	for i, node := range order {
		next[node] = ranks[order[(i+1)%len(order)]]
	}
	to := make([]int, len(nodes))
	for rank, node := range nodes {
		to[rank] = next[node][place[rank]%len(next[node])]
	}
	return to
}
