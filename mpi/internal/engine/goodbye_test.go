package engine

import (
	"sync/atomic"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// lateFabric says that its data links connect with their first bytes, and counts the writes to them.
type lateFabric struct {
	transport.Fabric
	writes [3]atomic.Int32 // by rank
}

func (f *lateFabric) WaitPolicy() transport.WaitPolicy {
	p := f.Fabric.WaitPolicy()
	p.LateData = true
	return p
}

func (f *lateFabric) Data(rank int) transport.Link {
	if l := f.Fabric.Data(rank); l != nil {
		return countedLink{l, &f.writes[rank]}
	}
	return nil
}

type countedLink struct {
	transport.Link
	writes *atomic.Int32
}

func (l countedLink) Write(head, body []byte) (int, error) {
	l.writes.Add(1)
	return l.Link.Write(head, body)
}

// A rank that leaves a group and closes its engine does not use its data link to a rank that it has sent nothing to. That rank learns of
// both goodbyes all the same.
func TestGoodbyesConnectNothing(t *testing.T) {
	inner, _ := join(t, overTCP, 3)
	fabrics := make([]*lateFabric, len(inner))
	groups, engines := make([]*Group, len(inner)), make([]*Engine, len(inner))
	for rank, f := range inner {
		fabrics[rank] = &lateFabric{Fabric: f}
		engines[rank] = New(fabrics[rank], Options{Timeout: testkit.Patience, Describe: describeCall, DescribeFully: detail})
		var err error
		if groups[rank], err = engines[rank].Group(worldID, all(len(inner))); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { testkit.Each(3, func(rank int) error { return engines[rank].Close() }) })
	var sent Op
	groups[0].SendMessage(&sent, 1, tag(1), []byte("to rank 1 alone"))
	buf := make([]byte, 15)
	if err := receive(t.Context(), groups[1], 0, 1, buf); err != nil || string(buf) != "to rank 1 alone" {
		t.Fatal(err, string(buf))
	}
	groups[0].Close()
	for _, rank := range []int{1, 2} {
		wantPeer(t, within(t, func() error { return receive(t.Context(), groups[rank], 0, 2, buf) }), 0, ErrLeft)
	}
	if err := engines[0].Close(); err != nil {
		t.Fatal(err)
	}
	for _, rank := range []int{1, 2} {
		g, err := engines[rank].Group(worldID+1, all(3))
		if err == nil {
			err = within(t, func() error { return receive(t.Context(), g, 0, 2, buf) })
		}
		wantPeer(t, err, 0, ErrLeft)
	}
	if n := fabrics[0].writes[2].Load(); n != 0 {
		t.Errorf("%d writes to the data link to rank 2", n)
	}
	if n := fabrics[0].writes[1].Load(); n < 3 {
		t.Errorf("%d writes to the data link to rank 1, want the message and both goodbyes", n)
	}
}
