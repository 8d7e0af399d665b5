package rendezvous

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Each rank of the world belongs to exactly one agent, in the agents' order.
func TestLayoutCoversTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var joins []joinRequest
		world := 0
		for index, n := range rapid.SliceOfN(rapid.IntRange(1, 9), 1, 9).Draw(t, "nproc") {
			joins = append(joins, joinRequest{Index: index, Nproc: n})
			world += n
		}
		l := Layout{Count: len(joins), WorkerPort: 1, MasterPort: 65535}
		if err := l.assignRanks(joins); err != nil {
			t.Fatal(err)
		}
		next := 0
		for index, j := range joins {
			c := Config{World: World{Index: index, Count: len(joins), Nproc: j.Nproc}}
			if err := l.check(c); err != nil {
				t.Fatal(err)
			}
			for local, got := range l.NumbersOf(c.World) {
				want := RankNumbers{Rank: next, LocalRank: local, WorldSize: world, LocalWorldSize: j.Nproc,
					NodeRank: index, Nodes: len(joins)}
				if got != want {
					t.Fatalf("got %+v, want %+v", got, want)
				}
				next++
			}
		}
		if next != world {
			t.Fatalf("%d ranks have a place, want %d", next, world)
		}
	})
}

func TestLayoutThatDoesNotFit(t *testing.T) {
	c := Config{World: World{Index: 1, Count: 2, Nproc: 2}}
	members := func(first ...int) (list []Member) {
		for index, f := range first {
			list = append(list, Member{Index: index, First: f, Nproc: 2})
		}
		return list
	}
	good := Layout{Count: 2, World: 4, Members: members(0, 2), Host: "n1", WorkerPort: 61000, MasterPort: 61001}
	if err := good.check(c); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(l *Layout){
		"agents":        func(l *Layout) { l.Count = 3 },
		"no ranks":      func(l *Layout) { l.Members = nil },
		"ranks cut":     func(l *Layout) { l.Members = members(0) },
		"small world":   func(l *Layout) { l.World = 3 },
		"negative":      func(l *Layout) { l.Members = members(0, -2) },
		"overflow":      func(l *Layout) { l.World, l.Members = -1, members(0, 1<<62) },
		"workers port":  func(l *Layout) { l.WorkerPort = -1 },
		"other workers": func(l *Layout) { l.Members = members(0, 2); l.Members[1].Nproc = 1 },
		"other agents":  func(l *Layout) { l.Members = members(0, 2); l.Members[1].Index = 2 },
		"too many":      func(l *Layout) { l.Members = members(0, 2, 4) },
		"round":         func(l *Layout) { l.Round = -1 },
		"attempt":       func(l *Layout) { l.Attempt = -1 },
		"masters port":  func(l *Layout) { l.MasterPort = 65536 },
	} {
		l := good
		spoil(&l)
		if err := l.check(c); err == nil || !strings.Contains(err.Error(), "without a place for agent 1 of 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFixedRankOutsideTheWorldIsRefused(t *testing.T) {
	at := func(rank int) []RankNumbers { return []RankNumbers{{Rank: rank, WorldSize: 2}} }
	for _, rank := range []int{-1, 2} {
		l := Layout{Count: 2}
		if err := l.assignRanks([]joinRequest{{Host: "n1", Local: at(0)}, {Index: 1, Host: "n2", Local: at(rank)}}); err == nil {
			t.Errorf("rank %d was taken", rank)
		}
	}
}
