package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// secret is what ranks that no agent has started know each other by; here nobody else is to be kept out.
const secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// ours is ddpbatch: `ddpbatch train` for each rank.
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

// metrics is what is of interest in a line of metrics.jsonl (docs/format.md).
type metrics struct {
	Time      time.Time `json:"time"`
	Step      int       `json:"step"`
	Loss      float64   `json:"loss"`
	CommShare float64   `json:"comm_share"`
}

// readMetrics takes the clock from the first line after the warm-up to the last, so that a step's time is all there is: reading,
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
