package main

import (
	"os/exec"
	"strconv"

	"ddpbatch/scripts/bench/internal/processes"
)

// side is one of the two that are compared.
type side struct {
	name    string
	version string

	// rank is the command of one rank in the working folder of a launch, but for what places it.
	rank func(m model, ranks int) *exec.Cmd

	// read says what a launch gave that worked in dir; output is what rank 0 wrote.
	read func(m model, dir string, output []byte) (result, error)
}

// result is what one launch gave.
type result struct {
	StepMS     float64 `json:"step_ms"`
	PeakMiB    float64 `json:"peak_mib"` // of the rank with the highest
	Loss       float64 `json:"loss"`     // mean of the last steps
	Parameters int     `json:"parameters"`
	Exposed    float64 `json:"exposed"` // share of a step in which nothing but communication went on; PyTorch does not say
	BLAS       string  `json:"blas"`    // what computes PyTorch's products
}

// commands are the processes of a launch in dir, rank 0 first: started by environment variables, each on a core of its own.
func (s side) commands(m model, ranks int, dir string) []*exec.Cmd {
	port := processes.FreePort()
	var all []*exec.Cmd
	for i := range ranks {
		cmd := s.rank(m, ranks)
		place := []string{"taskset", "-c", strconv.Itoa(i)}
		pinned := exec.Command(place[0], append(place[1:], cmd.Args...)...)
		pinned.Dir = dir
		pinned.Env = append(cmd.Env, "OMP_NUM_THREADS=1",
			"RANK="+strconv.Itoa(i), "WORLD_SIZE="+strconv.Itoa(ranks), "LOCAL_RANK="+strconv.Itoa(i), "LOCAL_WORLD_SIZE="+strconv.Itoa(ranks),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
		all = append(all, pinned)
	}
	return all
}
