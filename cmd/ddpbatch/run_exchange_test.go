package main

import (
	"slices"
	"strconv"
	"syscall"
	"testing"

	"ddpbatch/internal/placement"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// TestExchange: PMI-2 is used where each task of the step is an agent, and agent 0 is task 0.
func TestExchange(t *testing.T) {
	for _, row := range []struct {
		name       string
		rank, size int // as PMI-2 has them
		alloc      *slurm.Allocation
		index      int
		count      int
		want       bool
	}{
		{"agents", 1, 3, &slurm.Allocation{ProcID: 1}, 1, 3, true},
		{"agent 0", 0, 3, &slurm.Allocation{}, 0, 3, true},
		{"not all must come", 1, 3, &slurm.Allocation{ProcID: 1}, 1, -3, false},
		{"alone", 0, 1, &slurm.Allocation{}, 0, 1, false},
		{"by hand", 0, 2, nil, 0, 2, false},
		{"of another step", 1, 2, &slurm.Allocation{ProcID: 1}, 1, 3, false},
		{"of another task", 0, 3, &slurm.Allocation{ProcID: 1}, 1, 3, false},
		{"task 0 is not agent 0", 0, 3, &slurm.Allocation{}, 1, 3, false},
	} {
		client, err := openExchange(&env{Environ: pmiEnviron(t, row.rank, row.size)})
		if err != nil {
			t.Fatal(err)
		}
		cfg := launch.AgentConfig{Index: row.index, Count: row.count}
		if cfg.Count < 0 {
			cfg.Count, cfg.MinCount = -row.count, 1
		}
		placement.Exchange(client, row.alloc, &cfg)
		if got := cfg.Exchange != nil; got != row.want {
			t.Errorf("%s: %t, want %t", row.name, got, row.want)
		}
		client.Close()
	}
	if client, err := openExchange(&env{}); client != nil || err != nil {
		t.Errorf("srun without PMI-2: %v, %v", client, err)
	}
	if client, err := openExchange(&env{Environ: []string{"PMI_FD=3", "PMI_RANK=x", "PMI_SIZE=2"}}); err == nil {
		t.Errorf("nonsense: %v", client)
	}
}

// pmiEnviron is what Slurm says of one end of a pair of sockets whose other end is closed.
func pmiEnviron(t *testing.T, rank, size int) []string {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(pair[1])
	return []string{"PMI_FD=" + strconv.Itoa(pair[0]), "PMI_RANK=" + strconv.Itoa(rank), "PMI_SIZE=" + strconv.Itoa(size), "PMI_JOBID=7.0"}
}

// TestWorkersGetNoPMI: workers do not get the connection that their agent has taken over. PMIx is another thing, and none of ours.
func TestWorkersGetNoPMI(t *testing.T) {
	got := withoutPMI([]string{"PMI_FD=5", "PMI_RANK=1", "PATH=/bin", "PMIX_RANK=1", "PMI_SIZE=3"})
	if want := []string{"PATH=/bin", "PMIX_RANK=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
