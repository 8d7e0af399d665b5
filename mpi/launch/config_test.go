package launch

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/rendezvous"
)

func TestNprocOn(t *testing.T) {
	cores := runtime.NumCPU() // of the affinity mask, as the runtime counted it at start
	for _, tt := range []struct {
		name, text string
		counts     []int
		node       int
		env        string
		devices    []string // of the machine
		want       int
		err        string
	}{
		{name: "number", text: "4", want: 4},
		{name: "list", counts: []int{2, 1, 3}, node: 2, want: 3},
		{name: "as many as anywhere", text: "1024", want: 1024},
		{name: "far beyond the machine", text: strconv.Itoa(1025 + 16*cores), err: "workers on this node are too many for its"},
		{name: "far beyond it, in a list", counts: []int{1, 1025 + 16*cores}, node: 1, err: "too many for its"},
		{name: "list too short", counts: []int{2, 1}, node: 2, err: "lists 2 nodes"},
		{name: "cpu", text: "cpu", env: "CUDA_VISIBLE_DEVICES=0,1", want: cores},
		{name: "gpu by CUDA", text: "gpu", env: "CUDA_VISIBLE_DEVICES=0,3,5 SLURM_GPUS_ON_NODE=8", want: 3},
		{name: "gpu until the first invalid", text: "gpu", env: "CUDA_VISIBLE_DEVICES=0,-1,2", want: 1},
		{name: "gpu by Slurm", text: "gpu", env: "SLURM_GPUS_ON_NODE=2", want: 2},
		{name: "gpu hidden", text: "gpu", env: "CUDA_VISIBLE_DEVICES=NoDevFiles SLURM_GPUS_ON_NODE=2", err: "ask Slurm for GPUs"},
		{name: "no gpu", text: "gpu", err: "ask Slurm for GPUs"},
		{name: "auto with gpu", text: "auto", env: "CUDA_VISIBLE_DEVICES=GPU-8932f937", want: 1},
		{name: "auto without", text: "auto", want: cores},
		{name: "auto by device files", text: "auto", devices: []string{"0", "1"}, want: 2},
		{name: "gpu by device files", text: "gpu", devices: []string{"0", "1"}, want: 2},
		{name: "auto in a job without GPUs", text: "auto", env: "SLURM_JOB_ID=7", devices: []string{"0", "1"}, want: cores},
		{name: "gpu in a job that Slurm counts none of", text: "gpu", env: "SLURM_JOB_ID=7", devices: []string{"0", "1"}, want: 2},
		{name: "auto, and all are hidden", text: "auto", env: "CUDA_VISIBLE_DEVICES=", devices: []string{"0", "1"}, want: cores},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := Nproc{Counts: tt.counts}
			if tt.text != "" {
				var err error
				if n, err = ParseNproc(tt.text); err != nil {
					t.Fatal(err)
				}
			}
			vars := map[string]string{}
			for _, pair := range strings.Fields(tt.env) {
				k, v, _ := strings.Cut(pair, "=")
				vars[k] = v
			}
			lookup := func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
			var got int
			var err error
			if n.Word == "" {
				got, err = n.On(tt.node, lookup)
			} else {
				root := fstest.MapFS{}
				for _, d := range tt.devices {
					root["dev/nvidia"+d] = &fstest.MapFile{}
				}
				got, err = n.onMachine(device.NodeOf(slices.Repeat([]int{0}, cores), root), lookup)
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %d, %v; want %d", got, err, tt.want)
			}
		})
	}
}

func TestParseListen(t *testing.T) {
	for text, want := range map[string]string{ // "": the address is refused
		"9400": "127.0.0.1:9400", "localhost:9400": "127.0.0.1:9400", "0": "127.0.0.1:0",
		"127.0.0.1:9400": "127.0.0.1:9400", "1024": "127.0.0.1:1024",
		"0.0.0.0:9400": "0.0.0.0:9400", "[::]:65535": "[::]:65535", "[::1]:0": "[::1]:0",
		":9400": "", "node1:9400": "", "0.0.0.0": "", "65536": "", "-1": "", "1023": "", "0.0.0.0:80": "",
		"9400 ": "", "::1:9400": "", "http://127.0.0.1:9400": "",
	} {
		at, err := ParseListen(text)
		if want == "" && err == nil || want != "" && (err != nil || at.String() != want) {
			t.Errorf("%q: %v, %v; want %q", text, at, err, want)
		}
	}
	if at, err := ParseListen(""); err != nil || at.IsValid() {
		t.Errorf("%v, %v; want nowhere", at, err)
	}
}

func TestParseNprocRefuses(t *testing.T) {
	for _, text := range []string{"", "0", "-1", "two", "1.5", "GPU", strconv.Itoa(rendezvous.MaxWorld + 1), "99999999999999999999"} {
		if n, err := ParseNproc(text); err == nil {
			t.Errorf("ParseNproc(%q) = %+v, want an error", text, n)
		}
	}
}
