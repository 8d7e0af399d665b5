package launch

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Every rank of the world is at one agent, in the agents' order.
func TestPlanCoversTheWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var joins []join
		world := 0
		for index, n := range rapid.SliceOfN(rapid.IntRange(1, 9), 1, 9).Draw(t, "nproc") {
			joins = append(joins, join{Index: index, Nproc: n})
			world += n
		}
		p := plan{Count: len(joins), WorkerPort: 1, MasterPort: 65535}
		if err := p.lay(joins); err != nil {
			t.Fatal(err)
		}
		next := 0
		for index, j := range joins {
			c := AgentConfig{Index: index, Count: len(joins), Nproc: j.Nproc}
			if err := p.check(c); err != nil {
				t.Fatal(err)
			}
			for local, place := range p.places(c) {
				want := Place{Rank: next, LocalRank: local, WorldSize: world, LocalWorldSize: j.Nproc, NodeRank: index, Nodes: len(joins)}
				if place != want {
					t.Fatalf("place is %+v, want %+v", place, want)
				}
				next++
			}
		}
		if next != world {
			t.Fatalf("%d ranks have a place, want %d", next, world)
		}
	})
}

func TestPlanThatDoesNotFit(t *testing.T) {
	c := AgentConfig{Index: 1, Count: 2, Nproc: 2}
	members := func(first ...int) (list []member) {
		for index, f := range first {
			list = append(list, member{Index: index, First: f, Nproc: 2})
		}
		return list
	}
	good := plan{Count: 2, World: 4, Members: members(0, 2), Host: "n1", WorkerPort: 61000, MasterPort: 61001}
	if err := good.check(c); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(p *plan){
		"agents":        func(p *plan) { p.Count = 3 },
		"no ranks":      func(p *plan) { p.Members = nil },
		"ranks cut":     func(p *plan) { p.Members = members(0) },
		"small world":   func(p *plan) { p.World = 3 },
		"negative":      func(p *plan) { p.Members = members(0, -2) },
		"overflow":      func(p *plan) { p.World, p.Members = -1, members(0, 1<<62) },
		"workers port":  func(p *plan) { p.WorkerPort = -1 },
		"other workers": func(p *plan) { p.Members = members(0, 2); p.Members[1].Nproc = 1 },
		"other agents":  func(p *plan) { p.Members = members(0, 2); p.Members[1].Index = 2 },
		"too many":      func(p *plan) { p.Members = members(0, 2, 4) },
		"round":         func(p *plan) { p.Round = -1 },
		"attempt":       func(p *plan) { p.Attempt = -1 },
		"masters port":  func(p *plan) { p.MasterPort = 65536 },
	} {
		p := good
		spoil(&p)
		if err := p.check(c); err == nil || !strings.Contains(err.Error(), "agent 1 of 2 has no place") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFixedPlacesOutsideTheWorld(t *testing.T) {
	at := func(rank int) []Place { return []Place{{Rank: rank, WorldSize: 2}} }
	for _, rank := range []int{-1, 2} {
		p := plan{Count: 2}
		if err := p.lay([]join{{Host: "n1", Local: at(0)}, {Index: 1, Host: "n2", Local: at(rank)}}); err == nil {
			t.Errorf("rank %d was taken", rank)
		}
	}
}
