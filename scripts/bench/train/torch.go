package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed train.py
var trainSource []byte

// torch is PyTorch: train.py beside the data, with DistributedDataParallel over gloo where there are several ranks.
func torch(python, version string) side {
	return side{
		name: "PyTorch", version: version,
		rank: func(m model, ranks int) *exec.Cmd {
			cmd := exec.Command(python, filepath.Join("..", "train.py"), m.name, strconv.Itoa(m.batch), fmt.Sprint(m.lr), strconv.Itoa(m.warmUp), strconv.Itoa(m.steps(1)))
			if ranks > 1 {
				cmd.Env = []string{"GLOO_SOCKET_IFNAME=lo"}
			}
			return cmd
		},
		read: readTorch,
	}
}

// readTorch reads the object that train.py prints.
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
