package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/exit"
)

// life is how a rank of resume.py began: its round, its port and its first step.
type life struct{ rank, round, port, step int }

// lives parses what the ranks of resume.py print when they begin.
func lives(text string) (all []life) {
	for _, line := range linesOf(`begin \d+ round`, text) {
		var l life
		if _, err := fmt.Sscanf(line, "begin %d round %d port %d step %d", &l.rank, &l.round, &l.port, &l.step); err == nil {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b life) int { return 100*(a.round-b.round) + a.rank - b.rank })
	return all
}

// finals returns the final states that the ranks of resume.py print.
func finals(text string) []string { return linesOf(`end \d+ state [0-9a-f]{64}`, text) }

// uninterrupted returns the final states of two ranks that are not interrupted.
func (p *pytorch) uninterrupted() []string {
	p.t.Helper()
	out := p.good("--nproc-per-node", "2", p.script("resume.py"), "--file", filepath.Join(p.dir, "uninterrupted.pt"))
	states := finals(out.stdout)
	if len(states) != 2 || strings.Fields(states[0])[3] != strings.Fields(states[1])[3] {
		p.t.Fatalf("ranks that are not interrupted: %v", out)
	}
	return states
}

// TestTorchRestartComesToTheSameEnd makes a rank fail in the first round. Both ranks start again, continue from what they saved, and end
// with the same state. The port is another one unless the user chose it.
func TestTorchRestartComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	want := p.uninterrupted()
	for _, row := range []struct {
		name  string
		flags string
		each  []string
		fixed bool // the port
	}{
		{"one agent", "--standalone --nproc-per-node 2", []string{""}, false},
		{"two agents, torch's store", "--nnodes 2 --torch-store --master-addr 127.0.0.1 --master-port PORT",
			[]string{"--node-rank 0", "--node-rank 1"}, true},
	} {
		file := filepath.Join(p.dir, row.name+".pt")
		flags := strings.ReplaceAll(row.flags, "PORT", fmt.Sprint(handPort(t)))
		var agents []*process
		for _, own := range row.each {
			words := strings.Fields("ddpbatch run --max-restarts 2 " + flags + " " + own)
			agents = append(agents, p.launch(append(words, p.script("resume.py"), "--file", file, "--crash-at", "3")...))
		}
		var said, problems string
		for _, agent := range agents {
			out := agent.end(torchLimit)
			if out.code != 0 {
				t.Errorf("%s: %v", row.name, out)
			}
			said, problems = said+out.stdout, problems+out.stderr
		}
		p.gone()
		sameLines(t, row.name, finals(said), want)
		if !strings.Contains(problems, "rank 1 does not like step 3") || !strings.Contains(problems, "restart 1 of 2") {
			t.Errorf("%s: it is not told why, and that, the workers start again: %s", row.name, problems)
		}
		all := lives(said)
		if len(all) != 4 {
			t.Fatalf("%s: ranks began as %+v", row.name, all)
		}
		for i, got := range all {
			if want := (life{i % 2, i / 2, all[i/2*2].port, i / 2 * 3}); got != want {
				t.Errorf("%s: a rank began as %+v, want %+v", row.name, got, want)
			}
		}
		if same := all[0].port == all[2].port; same != row.fixed {
			t.Errorf("%s: the rounds' MASTER_PORT are %d and %d", row.name, all[0].port, all[2].port)
		}
	}
}

// TestTorchGoesOnWithoutALostAgent kills one of two agents. As --nnodes permits, the other continues alone from what was saved, and no
// process of the killed agent is left.
func TestTorchGoesOnWithoutALostAgent(t *testing.T) {
	t.Parallel()
	p := newPyTorch(t)
	endpoint := fmt.Sprint("localhost:", handPort(t))
	agent := func() *process {
		return p.launch("ddpbatch", "run", "--nnodes", "1:2", "--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint,
			"--shutdown-timeout", "2",
			"--rdzv-conf", "last_call_timeout=20", p.script("resume.py"), "--file", filepath.Join(p.dir, "state.pt"), "--wait-at", "3")
	}
	agents := []*process{agent(), agent()}
	waiting := func(a *process) bool { return strings.Contains(a.stdout.String(), "waiting") }
	eventually(t, torchLimit, "both ranks have trained three steps", func() bool { return waiting(agents[0]) && waiting(agents[1]) })
	stays, goes := agents[0], agents[1]
	if strings.Contains(goes.stdout.String(), "begin 0") { // it came first, and is agent 0
		stays, goes = goes, stays
	}
	// `env`, with which launch started it, has become the agent
	if err := syscall.Kill(goes.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	goes.end(torchLimit)
	out := stays.end(torchLimit)
	p.gone()
	if all := lives(out.stdout); out.code != 0 || len(all) != 2 || all[1].rank != 0 || all[1].round != 1 || all[1].step != 3 ||
		len(finals(out.stdout)) != 1 {
		t.Errorf("the agent that is left: %+v, %v", all, out)
	}
}

// TestTorchSavesWhenWarned sends the warning to an agent. Its workers handle USR2, save, and exit with 75, and so does the agent. The next
// run ends with the same state as one that was not interrupted.
func TestTorchSavesWhenWarned(t *testing.T) {
	t.Parallel()
	p := newPyTorch(t)
	want := p.uninterrupted()
	run := []string{"--nproc-per-node", "2", p.script("resume.py"), "--file", filepath.Join(p.dir, "state.pt"),
		"--wait-at", "4", "--signal"}
	agent := p.launch(append([]string{"ddpbatch", "run", "--standalone", "--shutdown-timeout", "120"}, run...)...)
	eventually(t, torchLimit, "both ranks have trained four steps",
		func() bool { return strings.Count(agent.stdout.String(), "waiting ") == 2 })
	if err := syscall.Kill(agent.cmd.Process.Pid, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	out := agent.end(torchLimit)
	p.gone()
	if out.code != exit.Requeue || len(linesOf(`saved \d`, out.stdout)) != 2 {
		t.Errorf("warned, it ended so: %v", out)
	}
	out = p.good(run...)
	sameLines(t, "the next run", finals(out.stdout), want)
	if begun := regexp.MustCompile(`begin . round 0 port \d+ step 4\n`).FindAllString(out.stdout, -1); len(begun) != 2 {
		t.Errorf("the next run began so: %s", out.stdout)
	}
}

// TestTorchRehearsalFindsTheSameEnd makes rehearse interrupt a job of two pretend nodes at some step in the middle. If the job has
// completed by then, rehearse tries again with an earlier step. It compares the final files.
func TestTorchRehearsalFindsTheSameEnd(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	p.env = append(p.env, "TMPDIR="+t.TempDir())
	out := p.launch("ddpbatch", "rehearse", "--nodes", "2", "--nproc-per-node", "1", "--compare", "checkpoints/*.end",
		"--", p.python, "-u", p.script("resume.py"), "--steps", "40", "--pace", "0.05").end(torchLimit)
	p.gone()
	if out.code != 0 || !regexp.MustCompile(`interrupted(-\d)?\t2\t`).MatchString(out.stdout) ||
		!strings.Contains(out.stdout, "same: 1 file equal") {
		t.Errorf("rehearse: %v", out)
	}
}
