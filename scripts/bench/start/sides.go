package main

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"
)

// side is one side of a comparison.
type side struct {
	name    string
	version string

	// command launches a number of ranks.
	command func(ranks int) *exec.Cmd

	// met reports whether a line of the output is rank 0's message that all ranks have met.
	met func(line string) bool
}

func printsMet(line string) bool { return line == "met" }

// ours returns the side of `ddpbatch run` with further flags.
func ours(ddpbatch string, flags []string, variable string, program ...string) side {
	name := strings.Join(append([]string{"ddpbatch run"}, flags...), " ")
	return side{name: name, met: printsMet, command: func(ranks int) *exec.Cmd {
		args := slices.Concat([]string{"run", "--standalone", "--nproc-per-node", strconv.Itoa(ranks)}, flags, []string{"--"}, program)
		cmd := exec.Command(ddpbatch, args...)
		cmd.Env = []string{variable}
		return cmd
	}}
}

// oursOfMPI returns the side of a program with package mpi, whose ranks derive their secret from a key file.
func oursOfMPI(ddpbatch, key string, rank ...string) side {
	return ours(ddpbatch, nil, "DDPBATCH_SECRET_FILE="+key, rank...)
}

// builtin returns the side of ddpbatch's own program, which is larger. After the barrier its ranks average how long it took.
func builtin(ddpbatch, key string) side {
	s := oursOfMPI(ddpbatch, key, ddpbatch, "bench", "startup", "--json")
	s.name = "ddpbatch run, its own program"
	s.met = func(line string) bool { return strings.HasPrefix(line, "{") && strings.Contains(line, `"time_us"`) }
	return s
}

func mpirun(mpi tools.MPI) side {
	return side{name: "mpirun of " + mpi.Name, version: mpi.Version, met: printsMet, command: func(ranks int) *exec.Cmd {
		return mpi.Command(ranks, nil)
	}}
}

// gloo makes all ranks meet on the loopback interface. Otherwise gloo looks up the machine's name.
const gloo = "GLOO_SOCKET_IFNAME=lo"

// oursOfTorch returns the side of a PyTorch script. With --torch-store=false, ranks that start before rank 0 serves its store try again a
// second later; otherwise the agent serves the store, as torchrun does.
func oursOfTorch(ddpbatch, python, script string, flags ...string) side {
	return ours(ddpbatch, flags, gloo, python, script)
}

// torchrun of PyTorch 1.13 does not work with its own defaults of --redirects and --tee under Python 3.11, where enums no longer list their
// aliases. The values here name a rank that does not exist, and have the same meaning. The ranks meet on a separate port, because
// --standalone would use 29400, which may be in use.
func torchrun(python, version, script string) side {
	return side{name: "torchrun", version: version, met: printsMet, command: func(ranks int) *exec.Cmd {
		absent := strconv.Itoa(ranks) + ":1"
		cmd := exec.Command(python, "-m", "torch.distributed.run", "--nproc_per_node="+strconv.Itoa(ranks),
			"--master_port="+processes.FreePort(),
			"--redirects="+absent, "--tee="+absent, script)
		cmd.Env = []string{gloo}
		return cmd
	}}
}

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/meet.py
var torchSource []byte

// prepared holds what is to be launched.
type prepared struct {
	ddpbatch    string
	version     string
	comparisons []comparison
}

// prepare builds the programs in dir. Its error names everything that is missing.
func prepare(ctx context.Context, dir string, o options) (prepared, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	program, version, err := tools.Ddpbatch(ctx, dir, o.Program)
	p := prepared{ddpbatch: program, version: version}
	if err != nil {
		return p, err
	}
	if !slices.Contains(o.parts, "launch") {
		return p, nil
	}
	if err := tools.Run(ctx, "go", "build", "-o", in("rank"), "./scripts/bench/start/rank"); err != nil {
		return p, err
	}
	p.comparisons = []comparison{{title: "least program of each library", sides: []side{
		oursOfMPI(p.ddpbatch, in("key"), in("rank")), builtin(p.ddpbatch, in("key")),
	}}}
	err = tools.EachPeer(o.peers, func(peer string) error { return p.add(ctx, dir, peer) })
	return p, err
}

// add adds a peer to the sides that it is compared with, or a separate comparison.
func (p *prepared) add(ctx context.Context, dir, peer string) error {
	if peer == "torch" {
		python, version, err := tools.FindTorch(ctx)
		if err != nil {
			return err
		}
		script := filepath.Join(dir, "meet.py")
		if err := os.WriteFile(script, torchSource, 0o600); err != nil {
			return err
		}
		p.comparisons = append(p.comparisons, comparison{title: "a script of PyTorch, gloo", sides: []side{
			oursOfTorch(p.ddpbatch, python, script), oursOfTorch(p.ddpbatch, python, script, "--torch-store=false"),
			torchrun(python, version, script),
		}})
		return nil
	}
	mpi, err := tools.CompileMPI(ctx, dir, peer, mpiSource)
	if err == nil {
		p.comparisons[0].sides = append(p.comparisons[0].sides, mpirun(mpi))
	}
	return err
}
