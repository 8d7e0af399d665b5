package sim_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm/sim"
)

func TestValidate(t *testing.T) {
	good := sim.Allocation{JobID: 1, Nodes: sim.PretendNodes(2)}
	for name, tt := range map[string]struct {
		change func(*sim.Allocation)
		want   string
	}{
		"good":            {func(*sim.Allocation) {}, ""},
		"one node":        {func(a *sim.Allocation) { a.Nodes = a.Nodes[:1] }, ""},
		"most nodes":      {func(a *sim.Allocation) { a.Nodes = sim.PretendNodes(254) }, ""},
		"uneven":          {func(a *sim.Allocation) { a.Tasks = []int{2, 1} }, ""},
		"a step":          {func(a *sim.Allocation) { a.Step, a.Tasks = []int{1}, []int{3} }, ""},
		"no node":         {func(a *sim.Allocation) { a.Nodes = nil }, "0 nodes"},
		"too many nodes":  {func(a *sim.Allocation) { a.Nodes = append(sim.PretendNodes(254), a.Nodes...) }, "256 nodes"},
		"CPUs of three":   {func(a *sim.Allocation) { a.CPUs = []int{1, 1, 1} }, "CPUs of 3 nodes"},
		"twice":           {func(a *sim.Allocation) { a.Nodes = append(a.Nodes, a.Nodes[0]) }, "must differ"},
		"other order":     {func(a *sim.Allocation) { a.Step = []int{1, 0} }, "in the job's order"},
		"node twice":      {func(a *sim.Allocation) { a.Step = []int{1, 1} }, "each once"},
		"another's node":  {func(a *sim.Allocation) { a.Step = []int{0, 2} }, "the job has 2 nodes"},
		"no such node":    {func(a *sim.Allocation) { a.Step = []int{-1} }, "the job has 2 nodes"},
		"too few counts":  {func(a *sim.Allocation) { a.Tasks = []int{2} }, "tasks of 1 nodes"},
		"a node left out": {func(a *sim.Allocation) { a.Tasks = []int{2, 0} }, "0 tasks"},
		"too many tasks":  {func(a *sim.Allocation) { a.Tasks = []int{1 << 14, 1} }, "16385 tasks"},
		"one component":   {func(a *sim.Allocation) { a.Components = []sim.Component{{Nodes: 2}} }, "1 components"},
		"most components": {func(a *sim.Allocation) {
			a.Nodes, a.Components = sim.PretendNodes(128), slices.Repeat([]sim.Component{{Nodes: 1}}, 128)
		}, ""},
		"129 components": {func(a *sim.Allocation) {
			a.Nodes, a.Components = sim.PretendNodes(129), slices.Repeat([]sim.Component{{Nodes: 1}}, 129)
		}, "129 components"},
		"components": {func(a *sim.Allocation) { a.Components = []sim.Component{{Nodes: 1}, {Nodes: 1}} }, ""},
		"too few in them": {func(a *sim.Allocation) {
			a.Nodes, a.Components = sim.PretendNodes(3), []sim.Component{{Nodes: 1}, {Nodes: 1}}
		}, "components have 2 nodes"},
		"a step of them": {func(a *sim.Allocation) { a.Components, a.Step = []sim.Component{{Nodes: 1}, {Nodes: 1}}, []int{1} },
			"all components"},
	} {
		a := good
		tt.change(&a)
		err := a.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestPretendNodesHaveNamesAndAddresses(t *testing.T) {
	nodes := sim.PretendNodes(sim.MaxNodes)
	for i, want := range map[int]sim.Node{
		0:   {Name: "node1", Address: "127.0.0.1"},
		1:   {Name: "node2", Address: "127.0.0.2"},
		253: {Name: "node254", Address: "127.0.0.254"},
	} {
		if nodes[i] != want {
			t.Errorf("node %d is %+v, want %+v", i, nodes[i], want)
		}
	}
	if n := len(sim.PretendNodes(1000)); n != sim.MaxNodes {
		t.Errorf("there are %d pretend nodes, want %d", n, sim.MaxNodes)
	}
	for _, i := range []int{-1, 254} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("node %d of 254 has a name", i)
				}
			}()
			sim.PretendNode(i)
		}()
	}
}

func TestNamedNodes(t *testing.T) {
	// as in slurm/testdata/22.05/hostlists: of several brackets, the last changes fastest
	nodes, err := sim.NamedNodes("rack[0-1]n[01-02]")
	if err != nil || len(nodes) != 4 {
		t.Fatalf("%v, %v", nodes, err)
	}
	for i, want := range []string{"rack0n01", "rack0n02", "rack1n01", "rack1n02"} {
		if nodes[i].Name != want || nodes[i].Address != sim.PretendNode(i).Address {
			t.Errorf("node %d is %+v, want %s at %s", i, nodes[i], want, sim.PretendNode(i).Address)
		}
	}
	for _, bad := range []string{"n[", "n[1-300]", "n[2-1]"} {
		if nodes, err := sim.NamedNodes(bad); err == nil {
			t.Errorf("%s: %v", bad, nodes)
		}
	}
}

// A process can listen on each pretend address without any setup.
func TestAddressesAreReal(t *testing.T) {
	for _, i := range []int{0, 1, 253} {
		listener, err := net.Listen("tcp", net.JoinHostPort(sim.PretendNode(i).Address, "0"))
		if err != nil {
			t.Errorf("node %d: %v", i, err)
			continue
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}
