package doctor

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// Each node meets each other node once, in as few rounds as possible, and is in at most one pair of a round.
func TestRounds(t *testing.T) {
	for n := range 65 {
		all := rounds(n)
		if want := max(0, n-1+n%2); n > 1 && len(all) != want {
			t.Errorf("%d nodes take %d rounds, want %d", n, len(all), want)
		}
		met := map[[2]int]bool{}
		for _, round := range all {
			busy := map[int]bool{}
			for _, p := range round {
				if p[0] < 0 || p[0] >= p[1] || p[1] >= n || met[p] || busy[p[0]] || busy[p[1]] {
					t.Fatalf("%d nodes: %v in %v", n, p, round)
				}
				met[p], busy[p[0]], busy[p[1]] = true, true, true
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d nodes: %d pairs meet", n, len(met))
		}
	}
}

func TestBudget(t *testing.T) {
	for rounds, want := range map[int]time.Duration{0: roundBudget, 1: roundBudget, 63: roundBudget, 600: 100 * time.Millisecond,
		100000: leastBudget} {
		if got := budgetOf(rounds); got != want {
			t.Errorf("%d rounds: %v each, want %v", rounds, got, want)
		}
	}
}

// The ranks of this process act as three nodes, two of which have a second task.
func TestExamine(t *testing.T) {
	const ranks = 5
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(ranks), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	hosts, locals := []string{"n1", "n1", "n2", "n2", "n3"}, []int{0, 1, 0, 1, 0}
	reports, errs := make([]*Report, ranks), make([]error, ranks)
	var all sync.WaitGroup
	for rank, c := range comms {
		all.Go(func() {
			task := Task{
				Host: hosts[rank], Version: "1", Folder: folder, Root: os.DirFS("/"), Lookup: os.LookupEnv,
				Names: []string{hosts[rank], "localhost", "no-such-name.invalid"}, // RFC 2606: this name never exists
			}
			reports[rank], errs[rank] = task.Examine(t.Context(), c, locals[rank])
			c.Close()
		})
	}
	all.Wait()
	for rank := range comms {
		if errs[rank] != nil || (reports[rank] != nil) != (rank == 0) {
			t.Fatalf("rank %d: %v, %v", rank, reports[rank], errs[rank])
		}
	}
	r := reports[0]
	if len(r.Nodes) != 3 || r.Nodes[2].Host != "n3" || len(r.Pairs) != 3 || r.Backend != "local" {
		t.Fatalf("%+v", r)
	}
	for _, n := range r.Nodes {
		if n.Kernel == "" || n.Cores == 0 || n.Memory == 0 || n.MemoryFree > n.Memory ||
			n.Folder.Error != "" || !n.FolderShared || n.Folder.Total == 0 {
			t.Errorf("%+v", n)
		}
		if len(n.Unresolved) != 2 || !slices.IsSorted(n.Unresolved) {
			t.Errorf("%s does not find %q", n.Host, n.Unresolved)
		}
		if time.Duration(n.ClockAheadS*1e9).Abs() > time.Second {
			t.Errorf("the clock of this machine is %v s from itself", n.ClockAheadS)
		}
	}
	for _, p := range r.Pairs {
		if p.Latency <= 0 || p.Bandwidth <= 0 {
			t.Errorf("%+v", p)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The second task of a node waits until the first task has checked the node and measured all pairs. Limit must leave time for that.
func TestLimitHasRoomForAllRounds(t *testing.T) {
	for _, nodes := range []int{1, 2, 150, 300, 1000, 5000} {
		n := len(rounds(nodes))
		if got, takes := Limit(nodes), gpuLimit+time.Duration(n)*budgetOf(n); got < takes+nodeLimit-gpuLimit || got > 2*takes+nodeLimit {
			t.Errorf("of %d nodes %v, and %v may be needed", nodes, got, takes)
		}
	}
}

// If a node is gone, the measurement ends on the others.
func TestExamineWithoutAPeer(t *testing.T) {
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(2), mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	comms[1].Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := (Task{Folder: t.TempDir(), Root: os.DirFS("/"), Lookup: os.LookupEnv}).Examine(ctx, comms[0], 0); err == nil {
		t.Errorf("%+v", r)
	}
	comms[0].Close()
}

func TestExamineAlone(t *testing.T) {
	task := Task{Host: "n1", Version: "1", Folder: t.TempDir(), Root: os.DirFS("/"), Lookup: os.LookupEnv}
	r, err := task.Examine(t.Context(), mpi.Self(), 0)
	if err != nil || len(r.Nodes) != 1 || len(r.Pairs) != 0 || r.Findings[0].Check != "nodes" {
		t.Errorf("%+v, %v", r, err)
	}
}
