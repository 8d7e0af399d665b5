package main

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// The launchers of MPI are told to bind ranks where there is a core for each, and only there.
func TestPeersBind(t *testing.T) {
	o := options{begin: 4, end: 4, factor: 4, budget: time.Millisecond}
	for flag, side := range map[string]side{"--bind-to": openMPI("mpi", ""), "-bind-to": mpich("mpi", "")} {
		for ranks, want := range map[int]bool{runtime.NumCPU(): true, runtime.NumCPU() + 1: false} {
			args := side.commands(o, setting{"allreduce", "tcp", ranks})[0].Args
			if slices.Contains(args, flag) != want {
				t.Errorf("%s, %d ranks on %d cores: %q", side.name, ranks, runtime.NumCPU(), args)
			}
		}
	}
}
