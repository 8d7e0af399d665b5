package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// documentedPython returns the block of Python in docs/job/progress.md that names a variable.
func documentedPython(t *testing.T, variable string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "job", "progress.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range regexp.MustCompile("(?s)\n```python\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], variable) {
			found = append(found, block[1])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of Python in docs/job/progress.md name %s", len(found), variable)
	}
	return found[0]
}

// The parts of a script around the documented lines, which are a loop over loader. The loop ends on all ranks in the same step, once a line
// of step times has the times of both ranks. Each batch takes 10 ms to load.
const (
	progressHead = `
import json, os, sys, time
import torch
import torch.distributed as dist

class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, batch):
        return self.layer(batch).square().mean()

def timed():
    try:
        with open(os.environ["DDPBATCH_RUN_DIR"] + "/steps.jsonl") as f:
            lines = f.readlines()
    except FileNotFoundError:
        return False
    return any(min(json.loads(line)["step_s"]) > 0 for line in lines if line.endswith("\n"))

def batches():
    while True:
        over = torch.tensor([float(timed())])
        dist.all_reduce(over)
        if over > 0:
            return
        time.sleep(0.01)
        yield torch.randn(8, 4)

dist.init_process_group("gloo")
rank, first, loader = dist.get_rank(), 1, batches()
model = torch.nn.parallel.DistributedDataParallel(Loss())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
`
	progressTail = `
    if rank == 0 and step % 5 == 0:
        said = json.dumps({"step": step, "loss": loss.item()})
if rank == 0:
    print("the last: " + said)
sys.stdout.flush()
os._exit(0)  # as in resume.py
`
)

// TestDocumentedLinesSayHowFarATorchJobIs puts the lines of Python that docs/job/progress.md shows into a script. Then status has its step
// and its loss, and steps.jsonl has the times of its steps.
func TestDocumentedLinesSayHowFarATorchJobIs(t *testing.T) {
	t.Parallel()
	p := newPyTorch(t)
	beat, metrics := documentedPython(t, "DDPBATCH_HEARTBEAT_FILE"), documentedPython(t, "DDPBATCH_METRICS_FILE")
	often := "    if rank == 0 and step % 5 == 0:\n"
	for line := range strings.Lines(metrics) {
		often += strings.Repeat(" ", 8) + line
	}
	p.write("train.py", progressHead+beat+often+progressTail)
	job := p.launch("ddpbatch", "simulate", "--nodes", "1", "--nproc-per-node", "2",
		"--set", `launch.hang="20s"`, "--", p.python, "-u", "train.py")
	out := job.end(torchLimit)
	p.gone()
	if out.code != 0 {
		t.Fatal(out)
	}
	type progress struct {
		Step int64   `json:"step"`
		Loss float64 `json:"loss"`
	}
	_, last, _ := strings.Cut(out.stdout, "the last: ")
	line, _, _ := strings.Cut(last, "\n")
	want := decode[progress](t, []byte(line))

	runs, err := rundir.List(filepath.Join(p.dir, "runs"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, %v", runs, err)
	}
	shown := decode[[]progress](t, []byte(p.launch("ddpbatch", "status", "--json", runs[0].Path()).end(torchLimit).stdout))
	if want.Step < 5 || len(shown) != 1 || shown[0] != want {
		t.Errorf("status has %+v, the script wrote %+v", shown, want)
	}
	times, err := runs[0].StepTimes(1000)
	at := slices.IndexFunc(times, func(line rundir.StepTimes) bool { return slices.Min(line.StepS) > 0 })
	if err != nil || at < 0 {
		t.Fatalf("step times %+v, %v", times, err)
	}
	const least = 0.0099 // the time that a batch takes to load, rounded
	got := times[at]
	if got.Step < 1 || len(got.StepS) != 2 || len(got.InputS) != 2 || len(got.ComputeS) != 2 ||
		slices.Min(got.StepS) < least || slices.Min(got.InputS) < least || slices.Min(got.ComputeS) <= 0 {
		text, err := json.Marshal(got)
		t.Errorf("steps.jsonl has %s, %v", text, err)
	}
}
