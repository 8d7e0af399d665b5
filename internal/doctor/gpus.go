package doctor

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/text"
)

// GPU is what nvidia-smi reports about one GPU. Numbers are -1 if it does not report them.
type GPU struct {
	Index       int    `json:"index"`
	Name        string `json:"name"`
	Memory      int64  `json:"memory"`      // bytes
	MemoryUsed  int64  `json:"memory_used"` // bytes, by any process
	Celsius     int    `json:"celsius"`
	Uncorrected int    `json:"uncorrected"` // uncorrected errors of its memory since the driver was loaded
	Driver      string `json:"driver"`
}

// gpuQuery lists the fields that nvidia-smi is asked for ("nvidia-smi --help-query-gpu").
const gpuQuery = "index,name,memory.total,memory.used,temperature.gpu,ecc.errors.uncorrected.volatile.total,driver_version"

const (
	gpuLimit     = 20 * time.Second // loading the driver takes seconds; a driver that hangs never answers
	maxGPUOutput = 64 << 10
	maxComplaint = 200 // bytes of each
)

// listGPUs asks nvidia-smi once. If there is no nvidia-smi (path is empty), it returns no GPUs. complaints are what nvidia-smi prints about
// GPUs that do not answer.
func listGPUs(ctx context.Context, path string, environ []string) (gpus []GPU, complaints []string) {
	if path == "" {
		return []GPU{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, gpuLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--query-gpu="+gpuQuery, "--format=csv,noheader,nounits")
	cmd.Env, cmd.WaitDelay = environ, time.Second
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out // one writer: exec writes to it from one goroutine
	err := cmd.Run()
	if ctx.Err() != nil {
		return []GPU{}, []string{"nvidia-smi has not answered for " + gpuLimit.String()}
	}
	gpus, complaints = parseGPUs(string(out))
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && len(complaints) == 0 && (!exited || len(gpus) == 0) {
		complaints = []string{"nvidia-smi: " + err.Error()}
	}
	return gpus, complaints
}

// limited keeps the first bytes of what is written to it.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	*l = append(*l, p[:min(len(p), maxGPUOutput-len(*l))]...)
	return len(p), nil
}

// parseGPUs parses a line of fields for each GPU. Any other line is a complaint, such as "Unable to determine the device handle for GPU
// 0000:3B:00.0: Unknown Error". A GPU that does not report its memory ("[GPU is lost]", "ERR!") is one, too.
func parseGPUs(out string) (gpus []GPU, complaints []string) {
	const most = 64
	gpus = []GPU{}
	complain := func(line string) {
		if len(complaints) < most {
			complaints = append(complaints, text.Shortened(text.Clean(line), maxComplaint))
		}
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		fields := strings.Split(line, ", ")
		index, err := strconv.Atoi(fields[0])
		switch {
		case line == "":
		case len(fields) != strings.Count(gpuQuery, ",")+1 || err != nil || index < 0:
			complain(line)
		case len(gpus) == most:
		default:
			g := GPU{
				Index: index, Name: text.Shortened(text.Clean(fields[1]), 80), Memory: mebibytes(fields[2]),
				MemoryUsed: mebibytes(fields[3]),
				Celsius:    count(fields[4]), Uncorrected: count(fields[5]), Driver: text.Shortened(text.Clean(fields[6]), 40),
			}
			if g.Memory < 0 {
				complain("GPU " + line)
				continue
			}
			gpus = append(gpus, g)
		}
	}
	return gpus, complaints
}

// count parses a whole number. It returns -1 for "[N/A]", "[Not Supported]" and the like.
func count(field string) int {
	n, err := strconv.ParseInt(strings.TrimSpace(field), 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return int(n)
}

func mebibytes(field string) int64 {
	n := count(field)
	if n < 0 {
		return -1
	}
	return int64(n) << 20
}
