package stack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Stand finds where ranks stand in the stacks of real programs. testdata/NAME.python and NAME.goroutines hold these, one process after
// another. A line "== PID PARENT" begins each process.
func TestStand(t *testing.T) {
	for name, want := range map[string]Standing{
		"all_reduce.python":  {Call: "all_reduce", Line: "hang.py:20 in missing"},
		"asleep.python":      {Line: "hang.py:19 in missing"},
		"barrier.python":     {Call: "barrier", Line: "hang.py:53 in barrier"},
		"ddp.python":         {Call: "DistributedDataParallel", Line: "hang.py:46 in ddp"},
		"deadlock.python":    {Line: "hang.py:61 in deadlock", Helper: "a thread at hang.py:59 in <lambda>"},
		"loader.python":      {Line: "hang.py:38 in loader", Helper: "process 12 at hang.py:13 in __getitem__"},
		"idle.python":        {Line: "hang.py:38 in loader"},
		"import.python":      {Line: "h1.py:1"},
		"objects.python":     {Call: "all_gather_object", Line: "train.py:9 in gather"},
		"save.python":        {Line: "train.py:40 in save"},
		"module.python":      {Call: "backward", Line: "engine.py:7 in fit"},
		"barrier.goroutines": {Call: "Barrier", Line: "main.go:26 in main"},
		"reducer.goroutines": {Call: "AllReduce", Line: "main.go:40 in main"},
		"file.goroutines":    {Line: "main.go:31 in load"},
		"trainer.goroutines": {Line: "save.go:70 in until"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := Stand(processesOf(string(text), strings.HasSuffix(name, ".goroutines"))); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// processesOf parses the processes in a file of testdata.
func processesOf(text string, goes bool) (all []Process) {
	for i, part := range strings.Split(text, "== ") {
		if i == 0 {
			continue
		}
		head, body, _ := strings.Cut(part, "\n")
		p := Process{Go: goes}
		words := strings.Fields(head)
		p.PID, p.Parent = number(words[0]), number(words[1])
		if p.Threads = Python(body); goes {
			p.Threads = Go(body)
		}
		all = append(all, p)
	}
	return all
}

func number(s string) (n int) {
	for _, digit := range s {
		n = 10*n + int(digit-'0')
	}
	return n
}

func TestLinesOfOthersArePassedOver(t *testing.T) {
	const text = "epoch 1\n  File \"x.py\", line 3, in <module>\nFatal Python error: Aborted\n\n" +
		"Thread 0x00007fe4790636c0 [worker (most] (most recent call first):\n  File \"a b.py\", line 5 in f\n[rank 0] a line between\n" +
		"  <no Python frame>\n  File \"c.py\", line ??? in g\n\n  File \"of nothing.py\", line 7 in h\n"
	got := Python(text)
	if want := []Frame{{"f", "a b.py", 5}, {"g", "c.py", 0}}; len(got) != 1 || !slices.Equal(got[0].Frames, want) {
		t.Errorf("got %+v, want the frames %+v", got, want)
	}
	if got := Python("Traceback (most recent call last):\n  File \"x.py\", line 3, in f\n"); got != nil {
		t.Errorf("a traceback: %+v", got)
	}
	if got := Go("panic: x\n\nmain.main()\n\t/x/main.go:3 +0x1\n"); got != nil {
		t.Errorf("no goroutine: %+v", got)
	}
}

func TestFunctionsAreTakenApart(t *testing.T) {
	for function, want := range map[string][2]string{
		"main.main":                        {"main", "main"},
		"main.(*T).load":                   {"main", "load"},
		"ddpbatch/mpi.AllReduce[...]":      {"ddpbatch/mpi", "AllReduce"},
		"ddpbatch/mpi.(*Comm).Barrier":     {"ddpbatch/mpi", "Barrier"},
		"example.org/a/b.v2.F.func1":       {"example.org/a/b", "func1"},
		"gopkg.in/x.v2.Do":                 {"gopkg.in/x", "Do"}, // the dots are not escaped here; the runtime writes x%2ev2
		"internal/poll.(*FD).Read":         {"internal/poll", "Read"},
		"runtime.gopark":                   {"runtime", "gopark"},
		"panic":                            {"", "panic"},
		"":                                 {"", ""},
		"main.run[go.shape.int]":           {"main", "int]"},
		"ddpbatch/trainer.(*Loop).(x/y).z": {"ddpbatch/trainer", "z"},
	} {
		path, name := packageOf(function)
		if got := [2]string{path, plainName(name)}; got != want {
			t.Errorf("%q: %q, want %q", function, got, want)
		}
	}
}

func TestFlightRecordNamesTheCall(t *testing.T) {
	record := `{"number":1,"call":"broadcast #1 float32 x 4 from rank 0","group":"0","state":"done"}
rubbish
{"number":2,"call":"gather #7 uint8 to rank 0","group":"22fabe","state":"running"}
{"number":2,"call":"all_reduce #2 float32 x 4 sum","group":"1","state":"running"}
{"number":3,"call":"all_reduce #3 float32 x 9 sum","group":"1","state":"failed","error":"connection lost"}
{"number":4,"call":"half of a li`
	got := Standing{Call: "AllReduce", Line: "main.go:3 in main"}.Flight([]byte(record))
	want := Standing{Call: "all_reduce #2 float32 x 4 sum", Line: "main.go:3 in main", Last: "broadcast #1 float32 x 4 from rank 0"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Standing{Call: "Barrier"}).Flight(nil); got != (Standing{Call: "Barrier"}) {
		t.Errorf("without a record: %+v", got)
	}
}

// FuzzStacks checks that the result of parsing stacks is bounded, whatever a worker writes.
func FuzzStacks(f *testing.F) {
	names, err := filepath.Glob("testdata/*.*")
	if err != nil || len(names) == 0 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			f.Add(string(text))
		}
	}
	f.Add(strings.Repeat("Thread 0x1 (most recent call first):\n  File \"a\", line 1 in f\n", 1000))
	f.Add("goroutine 1 [x]:\nf(\n\ta.go:1\n" + strings.Repeat("f(x)\n\ta.go:1\n", 1000))
	f.Add(`{"call":"x","state":"running"}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, threads := range [][]Thread{Python(text), Go(text)} {
			if len(threads) > maxThreads {
				t.Fatalf("%d threads", len(threads))
			}
			for _, one := range threads {
				if len(one.Frames) > maxFrames {
					t.Fatalf("%d frames", len(one.Frames))
				}
				for _, frame := range one.Frames {
					if len(frame.Function) > maxName || len(frame.File) > maxName {
						t.Fatalf("a frame of %d and %d bytes", len(frame.Function), len(frame.File))
					}
				}
			}
		}
		for _, goes := range []bool{false, true} {
			p := Process{PID: 2, Parent: 2, Go: goes, Threads: Python(text)}
			if goes {
				p.Threads = Go(text)
			}
			s := Stand([]Process{p, p}).Flight([]byte(text))
			if len(s.Call)+len(s.Line)+len(s.Helper)+len(s.Last) > 10*maxName {
				t.Fatalf("a standing of %+v", s)
			}
		}
	})
}
