package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"ddpbatch/scripts/bench/internal/tools"
)

//go:embed peers/mpi.c
var mpiSource []byte

//go:embed peers/meet.py
var torchSource []byte

// prepared is what is to be launched.
type prepared struct {
	ddpbatch string
	version  string
	contests []contest
}

// prepare builds the programs, in dir. It names everything that is missing at once.
func prepare(ctx context.Context, dir string, o options) (prepared, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	program, version, err := tools.Ddpbatch(ctx, dir, o.program)
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
	for name, source := range map[string][]byte{"mpi.c": mpiSource, "meet.py": torchSource} {
		if err := os.WriteFile(in(name), source, 0o600); err != nil {
			return p, fmt.Errorf("write a peer's program: %w", err)
		}
	}
	p.contests = []contest{{title: "least program of each library", sides: []side{
		ours(p.ddpbatch, in("key"), in("rank")), builtin(p.ddpbatch, in("key")),
	}}}
	err = tools.EachPeer(o.peers, func(peer string) error { return p.add(ctx, dir, peer) })
	return p, err
}

// add adds a peer to those that it is to be compared with, or a contest of its own.
func (p *prepared) add(ctx context.Context, dir, peer string) error {
	if peer == "torch" {
		python, version, err := tools.FindTorch(ctx)
		if err != nil {
			return err
		}
		script := filepath.Join(dir, "meet.py")
		p.contests = append(p.contests, contest{title: "a script of PyTorch, gloo", sides: []side{
			oursOfTorch(p.ddpbatch, python, script), oursOfTorch(p.ddpbatch, python, script, "--torch-store=false"), torchrun(python, version, script),
		}})
		return nil
	}
	program, err := tools.CompileMPI(ctx, filepath.Join(dir, "mpi.c"), peer)
	if err != nil {
		return err
	}
	one := mpich(program, tools.FirstLine(ctx, "mpichversion"))
	if peer == "openmpi" {
		one = openMPI(program, tools.FirstLine(ctx, "mpirun.openmpi", "--version"))
	}
	p.contests[0].sides = append(p.contests[0].sides, one)
	return nil
}
