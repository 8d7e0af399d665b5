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

// side is one side of a comparison.
type side struct {
	name    string // of the column
	ours    bool
	version string
	startup time.Duration // approximately, for the estimate

	// takes reports whether the side can be launched in a setting.
	takes func(setting) bool

	// commands returns the processes of one launch. The output of the first one has the rows.
	commands func(options, setting) []*exec.Cmd

	// parse parses a line of that output. It returns false if the line is not a row.
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

// peerArgs returns the arguments of peers/mpi.c and peers/gloo.py.
func peerArgs(o options, s setting) []string {
	n := func(x int64) string { return strconv.FormatInt(x, 10) }
	return []string{s.Collective, n(o.begin), n(o.end), n(o.factor), n(o.budget.Microseconds())}
}

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/gloo.py
var glooSource []byte

// prepare builds what is to be launched, in dir. Our side comes first. Its error names everything that is missing.
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

// ours returns the side of ddpbatch; with alloc, on buffers of comm.Alloc.
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

// parseOurs parses an object of `ddpbatch bench --json`.
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

// bound reports whether there is a core for each rank. Then all sides bind ranks to cores; ddpbatch does so by default.
func bound(s setting) bool { return s.Ranks <= runtime.NumCPU() }

// openMPI runs peers/mpi.c under mpirun.openmpi. For TCP it must use nothing else, on the loopback interface. It yields the core by itself
// if there are more ranks than cores. By default it would bind more than two ranks to sockets (mpirun(1)); overload-allowed is for hardware
// threads of one core.
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

// mpich runs peers/mpi.c under mpirun.mpich. Over TCP it often hangs in MPI_Finalize (4.0.2 with UCX), which launch handles. It does not
// bind ranks unless told to.
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

// notOfGloo are collectives that PyTorch 1.13 lacks, or lacks with gloo, which requires blocks of the same length in all of them except
// all-to-all.
var notOfGloo = []string{"reducescatter", "scan", "allgatherv", "reducescatterv", "gatherv", "scatterv"}

// gloo runs PyTorch's gloo, with ranks started by environment variables, as torchrun does: Debian's torchrun does not start under its own
// Python. gloo.py binds the ranks.
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

// parsePeer parses `row SIZE TIME_US WRONG`.
func parsePeer(line string) (sample, bool) {
	var s sample
	n, err := fmt.Sscanf(line, "row %d %f %d", &s.size, &s.us, &s.wrong)
	return s, n == 3 && err == nil
}
