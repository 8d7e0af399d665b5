package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/tools"

	"golang.org/x/sys/unix"
)

// side is one of the two sides.
type side struct {
	name    string
	version string

	// rank returns the command of one rank in the working directory of a launch, without what binds it to a core.
	rank func(m model, ranks int) *exec.Cmd

	// read returns the result of a launch that worked in dir. output is rank 0's.
	read func(m model, dir string, output []byte) (result, error)
}

// result is the result of one launch.
type result struct {
	StepMS     float64
	PeakMiB    float64 // of the rank with the highest peak
	Loss       float64 // mean of the last steps
	Parameters int
	Exposed    float64 // share of a step with only communication; PyTorch does not report it
	BLAS       string  // the library of PyTorch's matrix products
}

// commands returns the processes of a launch in dir, rank 0 first. They are configured by environment variables, each on its own core.
func (s side) commands(m model, ranks int, dir string) []*exec.Cmd {
	port := processes.FreePort()
	var all []*exec.Cmd
	for i := range ranks {
		cmd := s.rank(m, ranks)
		place := []string{"taskset", "-c", core(i)}
		pinned := exec.Command(place[0], append(place[1:], cmd.Args...)...)
		pinned.Dir = dir
		pinned.Env = append(cmd.Env, "OMP_NUM_THREADS=1",
			"RANK="+strconv.Itoa(i), "WORLD_SIZE="+strconv.Itoa(ranks), "LOCAL_RANK="+strconv.Itoa(i),
			"LOCAL_WORLD_SIZE="+strconv.Itoa(ranks),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
		all = append(all, pinned)
	}
	return all
}

// core returns the i-th core that this program may use; they need not begin with 0.
func core(i int) string {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || i >= allowed.Count() {
		return strconv.Itoa(i) // taskset reports that it is not available
	}
	core := 0
	for before := i; before > 0 || !allowed.IsSet(core); core++ {
		if allowed.IsSet(core) {
			before--
		}
	}
	return strconv.Itoa(core)
}

// secret authenticates ranks that no agent has started. Here nobody else must be kept out.
const secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// ours returns the side of ddpbatch: `ddpbatch train` for each rank.
func ours(program, version string) side {
	return side{
		name: "ddpbatch", version: version,
		rank: func(m model, ranks int) *exec.Cmd {
			cmd := exec.Command(program, "train", m.name+".toml")
			if ranks > 1 {
				cmd.Env = []string{"DDPBATCH_SECRET=" + secret, "DDPBATCH_OWN_CORES=1"} // as ddpbatch's own launcher sets them
			}
			return cmd
		},
		read: func(m model, dir string, _ []byte) (result, error) { return readRun(program, m, dir) },
	}
}

// readRun reads the run directory that a launch has left in dir.
func readRun(program string, m model, dir string) (result, error) {
	runs, err := filepath.Glob(filepath.Join(dir, "runs", "*"))
	if err != nil || len(runs) != 1 {
		return result{}, fmt.Errorf("%d run directories, want one", len(runs))
	}
	text, err := os.ReadFile(filepath.Join(runs[0], "metrics.jsonl"))
	if err != nil {
		return result{}, err
	}
	r, err := readMetrics(text, m.warmUp)
	if err != nil {
		return r, err
	}
	r.Parameters, err = countParameters(program, runs[0])
	return r, err
}

// metrics are the members of interest in a line of metrics.jsonl (docs/format.md).
type metrics struct {
	Time      time.Time `json:"time"`
	Step      int       `json:"step"`
	Loss      float64   `json:"loss"`
	CommShare float64   `json:"comm_share"`
}

// readMetrics takes the time from the first line after the warm-up to the last, so that the time of a step includes everything: reading,
// reports and whatever else a run does between two steps.
func readMetrics(text []byte, warmUp int) (result, error) {
	var first, last metrics
	exposed, steps := 0.0, 0
	for line := range bytes.Lines(text) {
		var now metrics
		if err := json.Unmarshal(line, &now); err != nil {
			return result{}, fmt.Errorf("metrics: %w", err)
		}
		if now.Step < warmUp || now.Step == last.Step { // a line after the last step is about its checkpoint
			continue
		}
		if first.Step == 0 {
			first = now
		} else {
			exposed += now.CommShare * float64(now.Step-last.Step)
			steps += now.Step - last.Step
		}
		last = now
	}
	if steps == 0 {
		return result{}, errors.New("metrics: there are none after the warm-up")
	}
	return result{
		StepMS:  float64(last.Time.Sub(first.Time).Microseconds()) / 1000 / float64(steps),
		Loss:    last.Loss,
		Exposed: exposed / float64(steps),
	}, nil
}

// countParameters adds up the model's tensors in the run's checkpoint.
func countParameters(program, run string) (int, error) {
	text, err := exec.Command(program, "ckpt", "show", "--json", run).Output()
	if err != nil {
		return 0, fmt.Errorf("ckpt show: %w", err)
	}
	var checkpoint struct {
		Tensors []struct {
			Name  string `json:"name"`
			Shape []int  `json:"shape"`
		} `json:"tensors"`
	}
	if err := json.Unmarshal(text, &checkpoint); err != nil {
		return 0, fmt.Errorf("ckpt show: %w", err)
	}
	total := 0
	for _, t := range checkpoint.Tensors {
		if !strings.HasPrefix(t.Name, "model.") {
			continue
		}
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		total += n
	}
	return total, nil
}

//go:embed train.py
var trainSource []byte

// torch returns the side of PyTorch: train.py next to the data, with DistributedDataParallel over gloo if there are several ranks.
func torch(python, version string) side {
	return side{
		name: "PyTorch", version: version,
		rank: func(m model, ranks int) *exec.Cmd {
			cmd := exec.Command(python, filepath.Join("..", "train.py"), m.name, strconv.Itoa(m.batch), fmt.Sprint(m.lr),
				strconv.Itoa(m.warmUp), strconv.Itoa(m.steps(1)))
			if ranks > 1 {
				cmd.Env = []string{"GLOO_SOCKET_IFNAME=lo"}
			}
			return cmd
		},
		read: readTorch,
	}
}

// readTorch parses the object that train.py prints.
func readTorch(_ model, _ string, output []byte) (result, error) {
	var got struct {
		StepS      float64  `json:"step_s"`
		Loss       float64  `json:"loss"`
		Parameters int      `json:"parameters"`
		BLAS       []string `json:"blas"`
	}
	if err := json.Unmarshal(output, &got); err != nil {
		return result{}, fmt.Errorf("train.py: %w", err)
	}
	if got.StepS <= 0 {
		return result{}, errors.New("train.py: no time")
	}
	return result{StepMS: 1000 * got.StepS, Loss: got.Loss, Parameters: got.Parameters, BLAS: strings.Join(got.BLAS, " ")}, nil
}

// prepare builds what is to be launched, in dir. Our side comes first.
func prepare(ctx context.Context, dir string, o options) (sides [2]side, err error) {
	program, version, err := tools.Ddpbatch(ctx, dir, o.Program)
	if err != nil {
		return sides, err
	}
	if err := os.WriteFile(filepath.Join(dir, "train.py"), trainSource, 0o600); err != nil {
		return sides, fmt.Errorf("write PyTorch's program: %w", err)
	}
	python, torchVersion, err := tools.FindTorch(ctx)
	if err != nil {
		return sides, err
	}
	return [2]side{ours(program, version), torch(python, torchVersion)}, nil
}
