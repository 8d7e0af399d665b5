package shm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// mapped counts the segments in the address space of this process.
func mapped(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:"+name)
}

// A rank that is killed in the middle of a call leaves the others with an error, and nothing behind.
func TestKill(t *testing.T) {
	if r, w, err := os.Pipe(); err == nil { // for the first one the runtime opens files of its own
		r.Close()
		w.Close()
	}
	files, maps := openFiles(t), mapped(t)
	p := startProcesses(t, 2)
	if got := mapped(t); got < maps+4 {
		t.Fatalf("%d segments are mapped, and %d were before", got, maps)
	}
	if err := p.in[0].Encode(order{Job: "all_reduce", Bytes: 1 << 20, Rounds: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for range 20 {
		if err := p.node.AllReduce(p.w, Stamp{1}, buf, addFloats); err != nil {
			t.Fatal(err)
		}
	}
	var handles []Handle
	for _, s := range p.opened {
		handles = append(handles, s.Handle())
	}
	if err := p.cmds[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.cmds[0].Wait() // also closes its pipes
		p.w.failed.Store(true)
	}()
	testkit.Within(t, testkit.Patience, func() {
		for {
			if err := p.node.AllReduce(p.w, Stamp{1}, buf, addFloats); err != nil {
				if !errors.Is(err, errGroupFailed) {
					t.Error(err)
				}
				return
			}
		}
	})
	<-ended
	for _, h := range handles {
		if s, err := Open(h); !errors.Is(err, ErrElsewhere) {
			t.Errorf("a dead process's segment: %v, %v", s, err)
		}
	}
	p.close()
	if got := mapped(t); got != maps {
		t.Errorf("%d segments are mapped, and %d were before", got, maps)
	}
	if got := openFiles(t); got > files {
		t.Errorf("%d open files, and %d were before", got, files)
	}
}
