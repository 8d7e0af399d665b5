package sim_test

import (
	"net"
	"strings"
	"testing"

	"ddpbatch/slurm/sim"
)

func TestValidate(t *testing.T) {
	good := sim.Allocation{JobID: 1, Nodes: 2}
	for name, tt := range map[string]struct {
		change func(*sim.Allocation)
		want   string
	}{
		"good":            {func(*sim.Allocation) {}, ""},
		"one node":        {func(a *sim.Allocation) { a.Nodes = 1 }, ""},
		"most nodes":      {func(a *sim.Allocation) { a.Nodes = 254 }, ""},
		"no node":         {func(a *sim.Allocation) { a.Nodes = 0 }, "0 nodes"},
		"too many nodes":  {func(a *sim.Allocation) { a.Nodes = 255 }, "255 nodes"},
		"no job":          {func(a *sim.Allocation) { a.JobID = 0 }, "job 0"},
		"negative run":    {func(a *sim.Allocation) { a.Restarts = -1 }, "restart -1"},
		"negative number": {func(a *sim.Allocation) { a.CPUs = -1 }, "-1 CPUs"},
	} {
		a := good
		tt.change(&a)
		err := a.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	a := sim.Allocation{JobID: 1, Nodes: sim.MaxNodes}
	for i, want := range map[int][2]string{
		0:   {"node1", "127.0.0.1"},
		1:   {"node2", "127.0.0.2"},
		253: {"node254", "127.0.0.254"},
	} {
		if a.Name(i) != want[0] || a.Address(i) != want[1] {
			t.Errorf("node %d is %s at %s, want %s at %s", i, a.Name(i), a.Address(i), want[0], want[1])
		}
	}
	for _, i := range []int{-1, 254} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("node %d of 254 has a name", i)
				}
			}()
			a.Name(i)
		}()
	}
}

// TestAddressesAreReal: each can be listened on without any set-up.
func TestAddressesAreReal(t *testing.T) {
	a := sim.Allocation{JobID: 1, Nodes: sim.MaxNodes}
	for _, i := range []int{0, 1, 253} {
		listener, err := net.Listen("tcp", net.JoinHostPort(a.Address(i), "0"))
		if err != nil {
			t.Errorf("node %d: %v", i, err)
			continue
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}
