package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// trained returns the lines of the ranks of train.py, in the order of the ranks.
func trained(text string) []string { return linesOf(`rank \d+ world`, text) }

// onTwoNodes changes the lines of two ranks of one node to those that the ranks print if each is on its own node.
func onTwoNodes(lines []string) []string {
	place := regexp.MustCompile(`place ([01])/2/0/1`)
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i] = place.ReplaceAllString(lines[i], "place 0/1/$1/2")
	}
	return lines
}

// TestTorchScriptRunsAsByTorchrun runs a script with torchrun and in every way that run supports. All ranks print the same. One script
// trains, and another only prints its place, for rows to which the training would add nothing.
func TestTorchScriptRunsAsByTorchrun(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	train, place := p.script("train.py"), p.script("place.py")
	arguments := []string{"--lr", "0.1", "--nnodes=7", "-m"} // the script's own
	// under Python 3.11, torchrun 1.13 needs the two maps: it fails without them, and with -r 3 -t 1
	files := []string{"--nproc_per_node", "2", "-r", "0:2,1:2", "-t", "0:1,1:1", "--log_dir"}
	theirs := filepath.Join(p.dir, "theirs")
	by := func(script, logs string) []string {
		t.Helper()
		at := []string{"--master_addr", "127.0.0.1", "--master_port", fmt.Sprint(handPort(t))}
		out := p.torchrun("torch.distributed.run", slices.Concat(at, files, []string{logs, script}, arguments)...)
		lines := trained(out.stdout)
		if len(lines) != 2 || !strings.Contains(lines[1], "rank 1 world 2 ") || !strings.Contains(lines[1], "place 1/2/0/1 ") {
			t.Fatalf("torchrun: %v", out)
		}
		return lines
	}
	want := map[string][]string{train: by(train, filepath.Join(p.dir, "trained")), place: by(place, theirs)}
	for name, row := range map[string]struct {
		script string
		flags  []string
	}{
		"script":     {train, []string{train}},
		"own server": {train, []string{"--torch-store=false", train}},
		"module":     {place, []string{"-m", "place"}},
		"no-python":  {place, []string{"--no-python", p.python, "-u", place}},
		"run-path":   {place, []string{"--run-path", place}},
	} {
		out := p.good(slices.Concat([]string{"--nproc-per-node", "2"}, row.flags, arguments)...)
		sameLines(t, name, trained(out.stdout), want[row.script])
		if words := linesOf("rank . has a word", out.stderr); len(words) != 2 {
			t.Errorf("%s: on standard error: %q", name, words)
		}
	}
	// the row "own server" covers only a store that rank 0 serves
	for flag, want := range map[string]string{"--torch-store": "True\n", "--torch-store=false": "False\n"} {
		if out := p.good(flag, "--no-python", "sh", "-c", "echo $TORCHELASTIC_USE_AGENT_STORE"); out.stdout != want {
			t.Errorf("with %s TORCHELASTIC_USE_AGENT_STORE is %s", flag, out.stdout)
		}
	}
	for i, flags := range [][]string{files, {"--nproc-per-node=2", "-r", "3", "-t", "1", "--log-dir"}} {
		ours := filepath.Join(p.dir, fmt.Sprint("ours", i))
		out := p.good(slices.Concat(flags, []string{ours, place}, arguments)...)
		sameLines(t, fmt.Sprintf("%q", flags), trained(out.stdout), want[place])
		if strings.Contains(out.stderr, "has a word") {
			t.Errorf("%q: what goes to files alone is on the console: %s", flags, out.stderr)
		}
		for rank := range 2 {
			for _, name := range []string{"stdout.log", "stderr.log"} {
				if got, want := logOf(t, ours, rank, name), logOf(t, theirs, rank, name); got != want || want == "" {
					t.Errorf("%q: rank %d's %s holds %q, torchrun's %q", flags, rank, name, got, want)
				}
			}
		}
	}
}

// logOf returns the text of a file of the first round, in a --log-dir of one run.
func logOf(t *testing.T, dir string, local int, name string) string {
	t.Helper()
	pattern := filepath.Join(dir, "*", "attempt_0", fmt.Sprint(local), name)
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q (%v)", pattern, found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Two agents, as on two machines, train their ranks as one agent does.
func TestTorchTrainsOnTwoNodesAsOnOne(t *testing.T) {
	t.Parallel()
	p := newPyTorch(t)
	script := p.script("train.py")
	want := onTwoNodes(trained(p.good("--nproc-per-node", "2", script).stdout))
	for _, row := range []struct {
		flags string
		each  [2]string
	}{
		{"--nnodes 2 --master-addr 127.0.0.1 --master-port PORT", [2]string{"--node-rank 0", "--node_rank=1"}},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:PORT", [2]string{}},
		{"--nnodes 1:2 --rdzv-id a --rdzv-backend c10d --rdzv-endpoint localhost:PORT --torch-store", [2]string{}},
	} {
		flags := strings.ReplaceAll(row.flags, "PORT", fmt.Sprint(handPort(t)))
		var agents []*process
		for _, own := range row.each {
			agents = append(agents,
				p.launch(slices.Concat([]string{"ddpbatch", "run"}, strings.Fields(flags+" "+own), []string{script})...))
		}
		var said string
		for _, agent := range agents {
			out := agent.end(torchLimit)
			if out.code != 0 || len(trained(out.stdout)) != 1 {
				t.Errorf("%s: %v", flags, out)
			}
			said += out.stdout
		}
		sameLines(t, flags, trained(said), want)
		p.gone()
	}
}

// TestTorchDistributedLaunchScriptsRun runs a script from before torchrun, with torch.distributed.launch and with run, without and with its
// local rank as an argument.
func TestTorchDistributedLaunchScriptsRun(t *testing.T) {
	t.Parallel()
	p := newPyTorch(t)
	script := p.script("local.py")
	theirs := func(flags ...string) []string {
		flags = append([]string{"--nproc_per_node=2", "--master_port", fmt.Sprint(handPort(t)), "-r", "9:1", "-t", "9:1"}, flags...)
		return linesOf("argument", p.torchrun("torch.distributed.launch", append(flags, script, "--lr", "0.5")...).stdout)
	}
	argument, variable := theirs(), theirs("--use_env")
	if !slices.Equal(argument, []string{"argument 0 variable 0 lr 0.5", "argument 1 variable 1 lr 0.5"}) ||
		!slices.Equal(variable, []string{"argument -1 variable 0 lr 0.5", "argument -1 variable 1 lr 0.5"}) {
		t.Fatalf("torch.distributed.launch: %q, with --use_env %q", argument, variable)
	}
	for _, row := range []struct {
		words []string
		want  []string
	}{
		{[]string{"--use_env", script}, variable},
		{[]string{"--use-env", script}, variable},
		{[]string{script}, variable}, // as torchrun
		{[]string{"--pass-local-rank", script}, argument},
		{[]string{script, "--local_rank=${local_rank}"}, argument},
		{[]string{script, "--local-rank", "${local_rank}"}, argument},
	} {
		out := p.good(slices.Concat([]string{"--nproc_per_node=2"}, row.words, []string{"--lr", "0.5"})...)
		sameLines(t, fmt.Sprintf("%q", row.words), linesOf("argument", out.stdout), row.want)
	}
}

// A script that starts its ranks itself with mp.spawn is one worker of run, and its ranks meet at its MASTER_PORT. If a rank fails, the run
// fails, and no ranks are left.
func TestTorchSpawnIsOneWorker(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	script := p.script("spawn.py")
	sameLines(t, "spawn.py", linesOf("spawned", p.good(script).stdout), []string{"spawned 0 of 2 met 3", "spawned 1 of 2 met 3"})
	out := p.run(script, "raise")
	if out.code != 1 || !strings.Contains(out.stderr, "ValueError: rank 1 gives up") || strings.Contains(out.stdout, "spawned") {
		t.Errorf("a rank raises: %v", out)
	}
}
