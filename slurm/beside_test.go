package slurm

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// clientSaying returns a Client whose commands all print the same. It stores in called how it was called last.
func clientSaying(stdout string, called *[]string) *Client {
	return &Client{Run: func(_ context.Context, c Command) (Output, error) {
		*called = append([]string{c.Name}, c.Args...)
		return Output{Stdout: []byte(strings.ReplaceAll(stdout, "|", separator))}, nil
	}}
}

func TestPartsAreAJobsComponents(t *testing.T) {
	// Slurm 22.05's answers to squeue -o "%i|%A|%T|%r|%N|%j" for a running job, an element, a heterogeneous job, and a job that waits.
	for _, test := range []struct {
		id, says string
		nodes    [][]string
		parts    []int
		args     []string // of srun for the last part
	}{
		{"1", "1|1|RUNNING|None|n[1-2]|live\n", [][]string{{"n1", "n2"}}, []int{-1},
			[]string{"--jobid=1", "--nodelist=n[1-2]", "--nodes=2", "--ntasks=2"}},
		{"2_3", "2_3|3|RUNNING|None|n2|a|b c\n", [][]string{{"n2"}}, []int{-1}, []string{"--jobid=3", "--nodelist=n2", "--nodes=1"}},
		{"4", "4+0|4|RUNNING|None|n1|het\n4+1|5|RUNNING|None|n[2-3]|het\n", [][]string{{"n1"}, {"n2", "n3"}}, []int{0, 1},
			[]string{"--jobid=4", "--het-group=1", "--nodelist=n[2-3]"}},
		{"4", "welcome to the cluster\n4|4|PENDING|Resources||x\n9|9|RUNNING|None|n9|other\n", [][]string{nil}, []int{-1}, nil},
	} {
		var called []string
		parts, err := clientSaying(test.says, &called).Parts(t.Context(), test.id)
		if err != nil || len(parts) != len(test.nodes) {
			t.Errorf("%q: %+v, %v", test.says, parts, err)
			continue
		}
		if called[0] != "squeue" || !slices.Contains(called, test.id) {
			t.Errorf("%s: asked by %q", test.id, called)
		}
		for i, p := range parts {
			if !reflect.DeepEqual(p.Nodes, test.nodes[i]) || p.Component() != test.parts[i] || p.Running() != (test.nodes[i] != nil) {
				t.Errorf("%q: part %d is %+v, component %d", test.says, i, p, p.Component())
			}
		}
		last := parts[len(parts)-1]
		args, err := Beside{Part: last, Nodes: last.Nodes, Command: []string{"/run/ddpbatch", "x"}}.args()
		if (err == nil) != (test.args != nil) {
			t.Errorf("%q: %v", test.says, err)
		}
		for _, want := range test.args {
			if !slices.Contains(args, want) {
				t.Errorf("%q: srun %q lacks %s", test.says, args, want)
			}
		}
	}
}

func TestPartsOfNoJob(t *testing.T) {
	var called []string
	if _, err := clientSaying("", &called).Parts(t.Context(), "7"); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("of a job that is forgotten: %v", err)
	}
	if _, err := clientSaying("7|7|RUNNING|None|n[1-|x\n", &called).Parts(t.Context(), "7"); err == nil {
		t.Error("nodes that are not a list were accepted")
	}
	called = nil
	if _, err := clientSaying("", &called).Parts(t.Context(), "7; rm"); err == nil || called != nil {
		t.Errorf("an id that is none: %v, asked %q", err, called)
	}
}

// A command beside a job neither waits for the job's step nor takes resources from it, and only one task receives the input.
func TestBesideTakesNothing(t *testing.T) {
	b := Beside{Part: Part{JobStatus: JobStatus{ID: "1", RawID: "1"}}, Nodes: []string{"n1"}, Dir: "/runs/x", Command: []string{"p", "-v"}}
	for _, test := range []struct {
		terminal, input bool
		want, not       string
	}{{false, false, "--input=none", "--pty"}, {false, true, "--overlap", "--input=none"}, {true, true, "--pty", "--input=none"}} {
		b.Terminal, b.Input = test.terminal, test.input
		args, err := b.args()
		if err != nil || !slices.Contains(args, test.want) || slices.Contains(args, test.not) {
			t.Errorf("terminal %v, input %v: %q, %v", test.terminal, test.input, args, err)
		}
		for _, want := range []string{"--overlap", "--mem=0", "--cpu-bind=none", "--ntasks-per-node=1", "--chdir=/runs/x"} {
			if !slices.Contains(args, want) {
				t.Errorf("%q lacks %s", args, want)
			}
		}
		if !slices.Equal(args[len(args)-2:], b.Command) {
			t.Errorf("%q does not end with the command", args)
		}
		for _, word := range args {
			if strings.HasPrefix(word, "--gres") || strings.HasPrefix(word, "--gpus") {
				t.Errorf("%s may leave the step without GPUs", word)
			}
		}
	}
}

func FuzzParts(f *testing.F) {
	f.Add("4+0|4|RUNNING|None|n1|het\n4+1|5|RUNNING|None|n[2-3]|het\n", "4")
	f.Add("2_[1-3]|2|PENDING|None||x", "2_1")
	f.Fuzz(func(t *testing.T, says, id string) {
		var called []string
		parts, err := clientSaying(says, &called).Parts(t.Context(), id)
		if err == nil && len(parts) == 0 {
			t.Error("no part, and no error")
		}
		for _, p := range parts {
			args, err := Beside{Part: p, Nodes: p.Nodes, Command: []string{"p"}}.args()
			if err == nil && args[len(args)-1] != "p" {
				t.Errorf("srun %q", args)
			}
			for _, node := range p.Nodes {
				if strings.HasPrefix(node, "-") && err == nil && slices.Contains(args, node) {
					t.Errorf("node %q is a word of its own in %q", node, args)
				}
			}
		}
	})
}
