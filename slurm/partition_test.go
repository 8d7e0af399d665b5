package slurm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPartition(t *testing.T) {
	nodes := func(lines ...string) []byte {
		return []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "|", separator) + "\n")
	}
	main := Partition{Name: "main", State: "UP", MaxTime: Unlimited, MaxNodes: -1, MaxMem: -1, Nodes: 4, NodeCPUs: 4,
		NodeMem: 4000, NodeGPUs: 2}
	small := Partition{Name: "small", State: "UP", MaxTime: 5 * time.Minute, MaxNodes: 1, MaxMem: -1, Nodes: 1, NodeCPUs: 128,
		NodeMem: 512000, NodeGPUs: 8}
	unknown := Partition{Name: "closed", State: "DOWN", MaxTime: Unlimited, MaxNodes: -1, MaxMem: -1, Nodes: 4, NodeCPUs: -1,
		NodeMem: -1, NodeGPUs: -1}
	for name, test := range map[string]struct {
		sinfo []byte
		want  Partition
		err   error
	}{
		"":       {nodes("4|4000|gpu:2"), main, nil},
		"main":   {nodes("4|4000|gpu:2"), main, nil},
		"small":  {nodes("64|256000|gpu:a100:4(S:0-1)", "128|512000|gpu:h100:8(IDX:0-7),fpga:1", "8|1000|(null)"), small, nil},
		"closed": {nodes("4+|4000+|gpu:x"), unknown, nil}, // nodes of several kinds on one line, and GPUs in a nonstandard form
		"nosuch": {nil, Partition{}, ErrNoPartition},
	} {
		p := &pretend{answers: map[string]Output{"scontrol": recorded(t, "cli/scontrol-show-partition-o"), "sinfo": {Stdout: test.sinfo}}}
		got, err := p.client().Partition(t.Context(), name)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%q: %+v, %v; want %+v, %v", name, got, err, test.want, test.err)
		}
	}
	if _, err := (&pretend{}).client().Partition(t.Context(), "main"); !errors.Is(err, ErrNoSlurm) {
		t.Errorf("without Slurm: %v", err)
	}
	p := &pretend{}
	if _, err := p.client().Partition(t.Context(), "-a"); err == nil || len(p.asked) > 0 {
		t.Errorf("a name like an option: %v, asked %q", err, p.asked)
	}
}

func TestCountGPUs(t *testing.T) {
	for gres, want := range map[string]int{
		"gpu:2": 2, "gpu:a100:4": 4, "gpu:a100:4(S:0-1)": 4, "gpu:1g.5gb:7,gpu:a100:1": 8, "fpga:1,gpu:2": 2, "(null)": 0, "": 0,
		"fpga:3": 0, "gpu": -1, "gpu:99999999999": -1, "shard:gpu": -1,
	} {
		if got := countGPUs(gres); got != want {
			t.Errorf("%s: %d, want %d", gres, got, want)
		}
	}
}
