package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// side is one of those that are compared.
type side struct {
	name    string // the column's
	ours    bool
	version string
	startup time.Duration // about, for the estimate

	// takes tells whether it can be launched in a setting.
	takes func(setting) bool

	// commands are the processes of one launch; the first one's output has the rows.
	commands func(options, setting) []*exec.Cmd

	// parse reads a line of that output; false where it is no row.
	parse func(line string) (sample, bool)
}

// sample is one row of one launch.
type sample struct {
	size  int64
	us    float64
	wrong int64
}

func takingPart(sides []side, s setting) []side {
	return slices.DeleteFunc(slices.Clone(sides), func(side side) bool { return !side.takes(s) })
}

// peerArgs are the arguments of peers/mpi.c and peers/gloo.py.
func peerArgs(o options, s setting) []string {
	n := func(x int64) string { return strconv.FormatInt(x, 10) }
	return []string{s.Collective, n(o.begin), n(o.end), n(o.factor), n(o.budget.Microseconds())}
}

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/gloo.py
var glooSource []byte

// prepare builds what is to be launched, in dir; ours comes first. It names everything that is missing at
// once.
func prepare(ctx context.Context, dir string, o options) ([]side, error) {
	program, version, err := tools.Ddpbatch(ctx, dir, o.Program)
	if err != nil {
		return nil, err
	}
	sides := []side{ours(program, version, false)}
	if o.alloc {
		sides = append(sides, ours(program, "", true))
	}
	err = tools.EachPeer(o.peers, func(peer string) error {
		s, err := preparePeer(ctx, dir, peer)
		sides = append(sides, s)
		return err
	})
	return sides, err
}

func preparePeer(ctx context.Context, dir, peer string) (side, error) {
	if peer == "gloo" {
		script := filepath.Join(dir, "gloo.py")
		if err := os.WriteFile(script, glooSource, 0o600); err != nil {
			return side{}, err
		}
		python, version, err := tools.FindTorch(ctx)
		return gloo(python, script, version), err
	}
	mpi, err := tools.CompileMPI(ctx, dir, peer, mpiSource)
	if peer == "mpich" {
		return mpich(mpi), err
	}
	return openMPI(mpi), err
}

// ours is ddpbatch; with alloc, on buffers that comm.Alloc gives out.
func ours(program, version string, alloc bool) side {
	s := side{
		name: "ddpbatch", ours: true, version: version, startup: 500 * time.Millisecond,
		takes: func(setting) bool { return true },
		parse: parseOurs,
	}
	if alloc {
		s.name = "ddpbatch+alloc"
		s.takes = func(s setting) bool { return s.Collective == "allreduce" }
	}
	s.commands = func(o options, s setting) []*exec.Cmd {
		args := []string{
			"bench", s.Collective, "-n", strconv.Itoa(s.Ranks), "--transport", s.Transport, "--json",
			"-b", strconv.FormatInt(o.begin, 10), "-e", strconv.FormatInt(o.end, 10), "-f", strconv.FormatInt(o.factor, 10),
			"--budget", o.budget.String(),
		}
		if alloc {
			args = append(args, "--alloc")
		}
		if s.Collective == "startup" {
			args = append(args, "--iters", "1")
		}
		return []*exec.Cmd{exec.Command(program, args...)}
	}
	return s
}

// parseOurs reads an object of `ddpbatch bench --json`.
func parseOurs(line string) (sample, bool) {
	var row struct {
		Size  *int64   `json:"size"`
		Time  *float64 `json:"time_us"`
		Wrong int64    `json:"wrong"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil || row.Size == nil || row.Time == nil {
		return sample{}, false
	}
	return sample{*row.Size, *row.Time, row.Wrong}, true
}

// bound tells whether there is a core for each rank: then all sides bind them. ddpbatch does so by itself.
func bound(s setting) bool { return s.Ranks <= runtime.NumCPU() }

// openMPI is peers/mpi.c under mpirun.openmpi. Over TCP it is to use nothing else, on the loopback interface; it yields the core by itself
// where there are more ranks than cores. Left alone it would bind more than two ranks to sockets (mpirun(1)); overload-allowed is for
// hardware threads of one core.
func openMPI(mpi tools.MPI) side {
	return mpiLibrary(mpi, 500*time.Millisecond, func(s setting) (flags, env []string) {
		if bound(s) {
			flags = append(flags, "--bind-to", "core:overload-allowed")
		}
		if s.Transport == "tcp" {
			flags = append(flags, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
		}
		return flags, nil
	})
}

// mpich is peers/mpi.c under mpirun.mpich. Over TCP it often hangs in MPI_Finalize (4.0.2 with UCX), which launch sees to. It binds nothing
// unless it is told to.
func mpich(mpi tools.MPI) side {
	return mpiLibrary(mpi, time.Second, func(s setting) (flags, env []string) {
		if bound(s) {
			flags = []string{"-bind-to", "core"}
		}
		if s.Transport == "tcp" {
			env = []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo", "MPIR_CVAR_NOLOCAL=1"}
		}
		return flags, env
	})
}

func mpiLibrary(mpi tools.MPI, startup time.Duration, launcher func(setting) (flags, env []string)) side {
	return side{
		name: mpi.Name, version: mpi.Version, startup: startup,
		takes: func(setting) bool { return true },
		parse: parsePeer,
		commands: func(o options, s setting) []*exec.Cmd {
			flags, env := launcher(s)
			cmd := mpi.Command(s.Ranks, flags, peerArgs(o, s)...)
			cmd.Env = env
			return []*exec.Cmd{cmd}
		},
	}
}

// notOfGloo are those that PyTorch 1.13 has not, or not by gloo, which wants blocks of one length in all but all-to-all.
var notOfGloo = []string{"reducescatter", "scan", "allgatherv", "reducescatterv", "gatherv", "scatterv"}

// gloo is PyTorch's, with ranks started by environment variables, as torchrun would: Debian's does not start
// under its own Python. gloo.py binds them.
func gloo(python, script, version string) side {
	return side{
		name: "gloo", version: version, startup: 4 * time.Second,
		takes: func(s setting) bool { return s.Transport == "tcp" && !slices.Contains(notOfGloo, s.Collective) },
		parse: parsePeer,
		commands: func(o options, s setting) []*exec.Cmd {
			port := processes.FreePort()
			var ranks []*exec.Cmd
			for rank := range s.Ranks {
				cmd := exec.Command(python, append([]string{script}, peerArgs(o, s)...)...)
				cmd.Env = []string{
					"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + strconv.Itoa(s.Ranks), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
					"GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1",
				}
				ranks = append(ranks, cmd)
			}
			return ranks
		},
	}
}

// parsePeer reads `row SIZE TIME_US WRONG`.
func parsePeer(line string) (sample, bool) {
	var s sample
	n, err := fmt.Sscanf(line, "row %d %f %d", &s.size, &s.us, &s.wrong)
	return s, n == 3 && err == nil
}
