package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/text"
)

// The programs under test: this one, and ddpbatch, which starts several processes of it.
var custom, ddpbatch string

func TestMain(m *testing.M) {
	os.Exit(testkit.WithProgram(func(program string) int { return buildAnd(m, program) }))
}

func buildAnd(m *testing.M, program string) int {
	dir, err := os.MkdirTemp("", "custom")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	custom, ddpbatch = filepath.Join(dir, "custom"), program
	if out, err := exec.Command("go", "build", "-o", custom, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the example: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// start runs a command with its own home folder, without the variables of a job around the test, and returns its output.
func start(t *testing.T, words ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = time.Minute
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var lastLine = regexp.MustCompile(`(?m)(\d+ ranks?) \| accuracy ([0-9.]+) %$`)

// learns checks that ranks have learned the spirals together, and that exactly one of them has printed. Chance is 33 %.
func learns(t *testing.T, ranks int, output string, err error) {
	t.Helper()
	found := lastLine.FindAllStringSubmatch(output, -1)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %d last lines:\n%s", err, len(found), output)
	}
	if accuracy, _ := strconv.ParseFloat(found[0][2], 64); found[0][1] != text.Plural(ranks, "rank") || accuracy < 90 {
		t.Errorf("%d ranks: %s", ranks, found[0][0])
	}
	if n := strings.Count(output, "epoch  0 |"); n != 1 {
		t.Errorf("%d ranks have printed", n)
	}
}

func TestOneRank(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "model.safetensors")
	output, err := start(t, custom, "-save", file)
	learns(t, 1, output, err)
	tensors, _, err := safetensors.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]string{}
	for _, tensor := range tensors {
		shapes[tensor.Name] = fmt.Sprint(tensor.Shape)
	}
	for name, want := range map[string]string{"hidden.weight": "[64 2]", "norm.running_var": "[64]",
		"act.weight": "[64]", "head.bias": "[3]"} {
		if shapes[name] != want {
			t.Errorf("%s is %q in the file, want %s", name, shapes[name], want)
		}
	}
}

func TestTwoRanks(t *testing.T) {
	t.Parallel()
	output, err := start(t, ddpbatch, "run", "--standalone", "--nproc-per-node", "2", "--", custom)
	learns(t, 2, output, err)
}

func TestTwoNodes(t *testing.T) {
	t.Parallel()
	output, err := start(t, ddpbatch, "simulate", "--nodes", "2", "--nproc-per-node", "2", "--", custom, "-epochs", "20")
	learns(t, 4, output, err)
}

// The job of job.toml receives a warning halfway, saves and starts again. It ends with the same checkpoint as a job without a warning.
func TestStoppedJobGoesOn(t *testing.T) {
	t.Parallel()
	job, err := os.ReadFile("job.toml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "job.toml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(job), `"./custom"`, strconv.Quote(custom), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := start(t, ddpbatch, "rehearse", path)
	if err != nil || !strings.Contains(output, "requeued") ||
		!strings.Contains(output, "same: the last checkpoints are equal bit for bit") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// A preemption sends only TERM. The ranks save then, too, long before the first checkpoint is due, and exit with 75.
func TestPreemptedRanksSave(t *testing.T) {
	t.Parallel()
	output, err := start(t, ddpbatch, "simulate", "--nodes", "2", "--nproc-per-node", "1", "--fault", "term@step=10", "--", custom)
	if err != nil || !strings.Contains(output, "the job was preempted, and the workers saved: requeue 1") || !lastLine.MatchString(output) {
		t.Errorf("%v:\n%s", err, output)
	}
}

// Ctrl-C asks the ranks for the same as TERM.
func TestInterruptedRanksSave(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), ddpbatch, "run", "--standalone", "--nproc-per-node", "2", "--", custom, "-checkpoints", folder,
		"-epochs", "1000000")
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Minute
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for interrupted := false; lines.Scan(); {
		if !interrupted && strings.Contains(lines.Text(), "epoch  0 |") { // long before the first checkpoint is due
			interrupted = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	opened, openErr := checkpoint.Open(folder, checkpoint.Options{Run: "custom"})
	if openErr != nil {
		t.Fatalf("%v; %v:\n%s", openErr, err, errs.String())
	}
	if _, _, openErr := opened.Latest(t.Context()); openErr != nil || cmd.ProcessState.ExitCode() != 75 {
		t.Errorf("%v; %v:\n%s", openErr, err, errs.String())
	}
	output, err := start(t, custom, "-checkpoints", folder, "-epochs", "1")
	if err != nil || !strings.Contains(output, "resumed at step ") {
		t.Errorf("the next time: %v:\n%s", err, output)
	}
}

// Within a job, the example records its progress up to the last step, and its attempt.
func TestStatusKnowsTheLastStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output, err := start(t, ddpbatch, "simulate", "--nodes", "1", "--nproc-per-node", "2", "--set", "run_dir="+strconv.Quote(dir),
		"--", custom, "-epochs", "1")
	folders, globErr := filepath.Glob(filepath.Join(dir, "custom-*", "checkpoints"))
	if err != nil || globErr != nil || len(folders) != 1 {
		t.Fatalf("%v, %v, checkpoints in %q:\n%s", err, globErr, folders, output)
	}
	opened, err := checkpoint.Open(folders[0], checkpoint.Options{Run: "custom"})
	if err != nil {
		t.Fatal(err)
	}
	state, info, err := opened.Latest(t.Context())
	if err != nil || info.Attempt != 1 {
		t.Fatalf("%v, the checkpoint is of attempt %d, want 1", err, info.Attempt)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(folders[0]), "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last struct {
		Step, Steps int64
		Attempt     int
		Time        time.Time
		Loss        float64
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Step != state.Step || last.Steps != state.Step || last.Attempt != 1 || last.Time.IsZero() || last.Loss <= 0 {
		t.Errorf("the last line is %+v, want step %d of as many", last, state.Step)
	}
}

// All ranks refuse a checkpoint of a different model.
func TestOtherModelIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	dir, err := checkpoint.Open(folder, checkpoint.Options{Run: "custom"})
	if err != nil {
		t.Fatal(err)
	}
	other := checkpoint.Float32Tensor("model.hidden.weight", []int{1}, []float32{0})
	if _, err := dir.Save(t.Context(), &checkpoint.State{Step: 1, World: 1, Tensors: []checkpoint.Tensor{other}}); err != nil {
		t.Fatal(err)
	}
	output, err := start(t, ddpbatch, "run", "--standalone", "--nproc-per-node", "2", "--", custom, "-checkpoints", folder)
	if err == nil || strings.Count(output, "of a different model") < 2 {
		t.Errorf("%v:\n%s", err, output)
	}
}

// Without a launcher, ranks meet at an address or through a file.
func TestInitMethods(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", testkit.FreePort(t, "127.0.0.1"))
	for name, words := range map[string][]string{
		"tcp":  {"-init", "tcp://" + address},
		"file": {"-listen", "127.0.0.1", "-init", "file://" + filepath.Join(t.TempDir(), "store")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 2
			outputs := make([]string, size)
			errs := testkit.Each(size, func(rank int) (err error) {
				env := []string{"env", "CUSTOM_SECRET=" + strings.Repeat("5a", 32), custom}
				method := fmt.Sprintf("?rank=%d&world_size=%d", rank, size)
				outputs[rank], err = start(t, append(append(env, words[:len(words)-1]...), words[len(words)-1]+method)...)
				return err
			})
			learns(t, size, strings.Join(outputs, ""), errors.Join(errs...))
		})
	}
}

// If the homes of the nodes hold different keys, no rank is accepted by mistake, and the error says what to do.
func TestOtherKeyIsRefused(t *testing.T) {
	t.Parallel()
	output, err := start(t, ddpbatch, "run", "--standalone", "--nproc-per-node", "2", "--", "sh", "-c",
		`HOME=$HOME/$RANK exec "$0"`, custom)
	if err == nil {
		t.Fatalf("ranks with different keys have met:\n%s", output)
	}
	for _, want := range []string{"refused this side's secret", "/1/.config/ddpbatch/key", "DDPBATCH_SECRET_FILE", "rank 1 on"} {
		if !strings.Contains(output, want) {
			t.Errorf("no word of %q in\n%s", want, output)
		}
	}
}
