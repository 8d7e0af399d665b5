package doctor

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"ddpbatch/internal/text"
)

// TestParseGPUs: the lines have the form that NVIDIA documents ("nvidia-smi --help-query-gpu", --format=csv,noheader,nounits), with
// NVIDIA's words for unknown values. The lines about lost GPUs come from NVIDIA's forum and its notes on Xid 79.
func TestParseGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		out  string
		gpus []GPU
		says []string
	}{
		"none": {"", []GPU{}, nil},
		"two": {"0, NVIDIA A100-SXM4-40GB, 40960, 4, 33, 0, 535.161.08\n1, NVIDIA A100-SXM4-40GB, 40960, 31010, 61, 2, 535.161.08\n",
			[]GPU{{0, "NVIDIA A100-SXM4-40GB", 40 << 30, 4 << 20, 33, 0, "535.161.08"},
				{1, "NVIDIA A100-SXM4-40GB", 40 << 30, 31010 << 20, 61, 2, "535.161.08"}}, nil},
		"no ECC": {"0, NVIDIA GeForce RTX 3090, 24576, 0, 40, [N/A], 550.54.14",
			[]GPU{{0, "NVIDIA GeForce RTX 3090", 24 << 30, 0, 40, -1, "550.54.14"}}, nil},
		"no driver": {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that " +
			"the latest NVIDIA driver " +
			"is installed and running.\n\n", []GPU{}, []string{"NVIDIA-SMI has failed because"}},
		"no devices": {"No devices were found\n", []GPU{}, []string{"No devices were found"}},
		"one fell off the bus": {
			"Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n", []GPU{},
			[]string{"Unable to determine the device " +
				"handle for GPU 0000:3B:00.0: Unknown Error"},
		},
		"one is lost": {"0, NVIDIA H100, 81559, 0, 30, 0, 550.54\n1, NVIDIA H100, [GPU is lost], [GPU is lost], [GPU " +
			"is lost], [GPU is lost], " +
			"550.54\n", []GPU{{0, "NVIDIA H100", 81559 << 20, 0, 30, 0, "550.54"}}, []string{"GPU 1, NVIDIA H100, [GPU is lost]"}},
		"an error": {"0, NVIDIA H100, ERR!, ERR!, ERR!, ERR!, 550.54\n", []GPU{}, []string{"GPU 0, NVIDIA H100, ERR!"}},
	} {
		gpus, says := parseGPUs(tt.out)
		ok := reflect.DeepEqual(gpus, tt.gpus) && len(says) == len(tt.says)
		for i := range tt.says {
			ok = ok && strings.HasPrefix(says[i], tt.says[i])
		}
		if !ok {
			t.Errorf("%s: %+v, %q", name, gpus, says)
		}
	}
}

func TestListGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		script string // of an nvidia-smi; "": no such program
		gpus   int
		says   string
	}{
		"none":              {"", 0, ""},
		"one":               {"echo \"0, X, 1024, 0, 30, 0, 550\"", 1, ""},
		"asked for as said": {`[ "$2" = --format=csv,noheader,nounits ] || exit 1; echo "0, X, 1024, 0, 30, 0, 550"`, 1, ""},
		"fails":             {"echo No devices were found; exit 6", 0, "No devices were found"},
		"fails silently":    {"exit 9", 0, "nvidia-smi: exit status 9"},
		"rubbish":           {"head -c 1000000 /dev/zero", 0, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := ""
			if tt.script != "" {
				path = filepath.Join(t.TempDir(), "nvidia-smi")
				if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			gpus, says := listGPUs(t.Context(), path, os.Environ())
			if len(gpus) != tt.gpus || !strings.Contains(strings.Join(says, "\n"), tt.says) || (tt.says == "") != (len(says) == 0) {
				t.Errorf("%+v, %q", gpus, says)
			}
		})
	}
}

func TestParseMemory(t *testing.T) {
	for file, want := range map[string][2]uint64{
		"MemTotal:       24683616 kB\nMemFree:        10000000 kB\nMemAvailable:   20000000 kB\n": {24683616 << 10, 20000000 << 10},
		"":                                       {},
		"MemTotal: many kB\nMemAvailable:\n":     {},
		"MemTotal: 99999999999999999999999 kB\n": {},
	} {
		if total, free := parseMemory(file); total != want[0] || free != want[1] {
			t.Errorf("%q: %d, %d", file, total, free)
		}
	}
}

func TestSpeedText(t *testing.T) {
	for file, want := range map[string]string{"-1": "", "": "", "fast": "", "100": "100 Mbit/s", "25000": "25 Gbit/s",
		"2500": "2.5 Gbit/s"} {
		if got := speedText(file); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add("0, NVIDIA H100, 81559, 0, 30, 0, 550.54\nERR!\n", "MemTotal: 1 kB\n", "10")
	f.Add("-1, , , , , , \n\x1b[31m\xff, ", ":\n", "-1")
	f.Fuzz(func(t *testing.T, smi, memory, speed string) {
		gpus, says := parseGPUs(smi)
		for _, g := range gpus {
			if g.Memory < 0 || g.MemoryUsed < -1 || g.Celsius < -1 || g.Uncorrected < -1 ||
				len(g.Name) > 160 || strings.ContainsFunc(g.Name+g.Driver, text.Unsafe) {
				t.Errorf("%+v", g)
			}
		}
		for _, line := range says {
			if len(line) > 2*maxComplaint || strings.ContainsFunc(line, text.Unsafe) || utf8.ValidString(smi) && !utf8.ValidString(line) {
				t.Errorf("%q", line)
			}
		}
		parseMemory(memory)
		speedText(speed)
	})
}
