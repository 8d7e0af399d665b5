package engine

import (
	"fmt"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// crowdedFabric is a fabric whose ranks share cores. Its data links accept everything, and record the order of writes.
type crowdedFabric struct {
	transport.Fabric
	crowded bool
	written []string // "RANK BYTES" of each write of data
}

func (f *crowdedFabric) WaitPolicy() transport.WaitPolicy {
	p := f.Fabric.WaitPolicy()
	p.Yield = f.crowded
	return p
}

func (f *crowdedFabric) Data(rank int) transport.Link {
	if f.Fabric.Data(rank) == nil {
		return nil
	}
	return sink{f, rank}
}

type sink struct {
	fabric *crowdedFabric
	rank   int
}

func (s sink) Write(head, body []byte) (int, error) {
	n := len(head) + len(body)
	s.fabric.written = append(s.fabric.written, fmt.Sprint(s.rank, " ", n))
	return n, nil
}

func (s sink) Read([]byte) (int, error) { return 0, nil }

// A rank that shares its core and waits for a receive writes to its peers in turn, one piece each, and checks what arrives in between. If
// it waits for a send, it finishes that send first. A rank with a core of its own sends each message at once.
func TestRanksThatShareCoresWriteInTurn(t *testing.T) {
	const message = 2*pieceBytes + 1000
	const first, rest = pieceBytes + headerSize, 1000
	for what, tt := range map[string]struct {
		crowded, receives bool
		want              []string
	}{
		"receive": {true, true, []string{
			fmt.Sprint("1 ", first), fmt.Sprint("2 ", first), fmt.Sprint("1 ", pieceBytes), fmt.Sprint("2 ", pieceBytes),
			fmt.Sprint("1 ", rest), fmt.Sprint("2 ", rest)}},
		"send": {true, false, []string{
			fmt.Sprint("1 ", first), fmt.Sprint("2 ", first), fmt.Sprint("1 ", pieceBytes+rest), fmt.Sprint("2 ", pieceBytes+rest)}},
		"own core": {false, true, []string{fmt.Sprint("1 ", message+headerSize), fmt.Sprint("2 ", message+headerSize)}},
	} {
		t.Run(what, func(t *testing.T) {
			inner, _ := join(t, inProcess, 3)
			f := &crowdedFabric{Fabric: inner[0], crowded: tt.crowded}
			e := New(f, Options{Timeout: testkit.Patience, Describe: describeCall, DescribeFully: detail})
			g, err := e.Group(worldID, all(3))
			if err != nil {
				t.Fatal(err)
			}
			var received, one, two Op
			g.RecvMessage(&received, 1, tag(1), make([]byte, 1))
			g.SendMessage(&one, 1, tag(1), make([]byte, message))
			g.SendMessage(&two, 2, tag(1), make([]byte, message))
			waited := &one
			if tt.receives {
				waited = &received
			}
			for range 3 {
				g.Poll(waited)
			}
			if !one.Done() || !two.Done() {
				t.Errorf("sent to 1: %v, sent to 2: %v", one.Done(), two.Done())
			}
			e.mu.Lock()
			got := slices.Clone(f.written)
			e.mu.Unlock()
			if !slices.Equal(got, tt.want) {
				t.Errorf("writes %q, want %q", got, tt.want)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			for _, other := range inner[1:] {
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
