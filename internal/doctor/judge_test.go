package doctor

import (
	"fmt"
	"strings"
	"testing"

	"ddpbatch/mpi/launch/health"
)

func soundNode(host string) Node {
	return Node{
		Host: host, Version: "1.0", Kernel: "6.1.0", Cores: 64, Memory: 512 << 30, MemoryFree: 500 << 30,
		OpenFiles: 1 << 20, Processes: -1, LockedMemory: -1,
		Folder: Disk{Path: "/home/me", Type: "nfs", Free: 1 << 40, Total: 1 << 41}, FolderShared: true, Clock: "synchronised",
		GPUs: []GPU{{Index: 0, Name: "NVIDIA H100", Memory: 80 << 30, MemoryUsed: 4 << 20, Celsius: 30,
			Uncorrected: 0, Driver: "550.54"}},
		Networks: []string{"eth0 25 Gbit/s MTU 9000"}, RDMA: []string{"mlx5_0:1 (InfiniBand, 400 Gbit/s)"},
	}
}

func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(n []Node) // it changes nodes n1 to n4
		want   []string       // "level nodes: beginning of the finding", after the findings that are always the same
	}{
		"sound":        {func([]Node) {}, nil},
		"a kernel":     {func(n []Node) { n[2].Kernel = "6.1.9" }, []string{"warn n3: 6.1.0 on n[1-2,4], 6.1.9 on n3"}},
		"a program":    {func(n []Node) { n[3].Version = "0.9" }, []string{"warn n4: 1.0 on n[1-3], 0.9 on n4"}},
		"half of them": {func(n []Node) { n[0].Cores, n[1].Cores = 32, 32 }, []string{"warn n[3-4]: 32 on n[1-2], 64 on n[3-4]"}},
		"no card": {func(n []Node) { n[1].RDMA = nil },
			[]string{"warn n2: mlx5_0:1 (InfiniBand, 400 Gbit/s) on n[1,3-4], none on n2"}},
		"a slow link": {func(n []Node) { n[1].Networks = []string{"eth0 1 Gbit/s MTU 9000"} },
			[]string{"warn n2: eth0 25 Gbit/s MTU 9000 on n[1,3-4], eth0 1 Gbit/s MTU 9000 on n2"}},
		"a limit": {func(n []Node) { n[1].LockedMemory = 64 << 10 }, []string{"warn n2: unlimited on n[1,3-4], 64 KiB on n2"}},
		"fewer GPUs": {func(n []Node) { n[3].GPUs = nil },
			[]string{"warn n4: 1 x NVIDIA H100 on n[1-3], none on n4", "warn n4: 550.54 on n[1-3], none on n4"}},
		"a lost GPU": {func(n []Node) { n[3].GPUError = []string{"ERR!"} }, []string{"fail n4: a GPU does not answer: ERR!"}},
		"a GPU in use": {func(n []Node) { n[0].GPUs[0].MemoryUsed = 30 << 30 },
			[]string{"warn n1: other processes use 30 GiB of the 80 GiB of GPU 0"}},
		"ECC":       {func(n []Node) { n[0].GPUs[0].Uncorrected = 1 }, []string{"fail n1: the memory of GPU 0 has had 1 error"}},
		"a hot GPU": {func(n []Node) { n[0].GPUs[0].Celsius = 91 }, []string{"warn n1: GPU 0 is 91 degrees hot"}},
		"a GPU that tells nothing": {func(n []Node) {
			n[0].GPUs[0].Celsius, n[0].GPUs[0].Uncorrected, n[0].GPUs[0].MemoryUsed = -1, -1, -1
		}, nil},
		"a folder of its own": {func(n []Node) { n[2].FolderShared = false },
			[]string{"fail n3: /home/me is not the folder that the first node sees"}},
		"no folder": {func(n []Node) { n[2].Folder.Error = "permission denied" },
			[]string{"fail n3: cannot write a file in /home/me: permission denied"}},
		"little room":        {func(n []Node) { n[2].Folder.Free = 1 << 20 }, []string{"warn n3: /home/me has only 1 MiB free"}},
		"a clock":            {func(n []Node) { n[2].ClockAheadS = -2 }, []string{"warn n3: its clock is 2s behind that of n1"}},
		"a clock of its own": {func(n []Node) { n[2].ClockAheadS = 130.5 }, []string{"fail n3: its clock is 2m10.5s ahead of that of n1"}},
		"names": {func(n []Node) { n[1].Unresolved = []string{"n3: no such host"} },
			[]string{"warn n2: names of nodes cannot be resolved: n3: no such host"}},
		"memory": {func(n []Node) { n[1].MemoryFree = 100 << 30 }, []string{"warn n2: only 100 GiB of 512 GiB are free"}},
		"built-in checks, the worst first": {func(n []Node) {
			n[1].Problems = []health.Problem{{Check: "temp", Text: "/scratch takes no file"}}
			n[2].Problems = []health.Problem{{Check: "shm", Text: "/dev/shm is full", Fatal: true}}
		}, []string{"fail n3: /dev/shm is full", "warn n2: /scratch takes no file"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Report{}
			for i := range 4 {
				r.Nodes = append(r.Nodes, soundNode(fmt.Sprintf("n%d", i+1)))
			}
			tt.change(r.Nodes)
			r.judge()
			if len(r.Findings) != 2+len(tt.want) || r.Findings[0].Level != OK || r.Findings[1].Check != "clocks" {
				t.Fatalf("%+v, want %q", r.Findings, tt.want)
			}
			for i, want := range tt.want {
				if f := r.Findings[2+i]; !strings.HasPrefix(fmt.Sprintf("%s %s: %s", f.Level, f.Nodes, f.Found), want) {
					t.Errorf("%+v, want %q", f, want)
				}
			}
		})
	}
	equal := &Report{Nodes: []Node{soundNode("n1"), soundNode("n2")}}
	equal.judge()
	if got, want := equal.Findings[0].Found, "2 nodes, n[1-2], with the same ddpbatch (1.0), kernel (6.1.0), cores (64), "+
		"memory (512 GiB), GPUs (1 x NVIDIA H100), driver (550.54)"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
