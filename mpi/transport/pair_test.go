package transport

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/shm"
)

// A process that scribbles over the memory it shares gets an error for it, and harms nobody: neither a crash nor a hang.
func TestScribbledMemory(t *testing.T) {
	for _, fill := range []byte{0xff, 0x7f, 0x01} {
		fabrics := meetAll(t, 2, share(ShareAlways))
		l := fabrics[0].shared[1]
		mem := fabrics[1].shared[0].pair.segment.Bytes()
		for i := range mem {
			mem[i] = fill
		}
		if n, err := l.Read(make([]byte, 1000)); !errors.Is(err, shm.ErrCorrupt) {
			t.Errorf("%x: read %d bytes, %v", fill, n, err)
		}
		if n, err := l.Write(make([]byte, ringBytes+1), nil); !errors.Is(err, shm.ErrCorrupt) {
			t.Errorf("%x: wrote %d bytes, %v", fill, n, err)
		}
		fabrics[0].Nudge(1)
		fabrics[0].Arm()
		fabrics[0].Disarm()
	}
}

// The memory and the bell of a rank that has gone can still be used: they say nothing, and harm nobody.
func TestPairOfTheGone(t *testing.T) {
	fabrics := meetAll(t, 2, share(ShareAlways))
	write(t, fabrics[1].Data(0), "last words")
	fabrics[1].Arm()
	fabrics[1].Close()
	fabrics[0].Nudge(1) // nobody hears the bell
	write(t, fabrics[0].Data(1), "too late")
	if got := drain(t, fabrics[0].Data(1), 10); string(got) != "last words" {
		t.Errorf("read %q", got)
	}
}

func TestCloseTwice(t *testing.T) {
	fabrics := meetAll(t, 3, nil)
	before := openFiles(t)
	if err := fabrics[0].Close(); err != nil {
		t.Fatal(err)
	}
	between := openFiles(t)
	b, err := newBell() // may get the numbers that were just given back
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := fabrics[0].Close(); err != nil {
		t.Errorf("again: %v", err)
	}
	if between >= before {
		t.Errorf("%d descriptors, then %d", before, between)
	}
	for _, fd := range []int{b.read, b.write} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("another's descriptor was closed: %v", err)
		}
	}
}

func TestCrowded(t *testing.T) {
	cores := runtime.NumCPU()
	var cfg Config
	if cfg.crowded(cores-1) || !cfg.crowded(cores) {
		t.Errorf("on %d cores, %d other ranks are a crowd: %v, %d: %v", cores, cores-1, cfg.crowded(cores-1), cores, cfg.crowded(cores))
	}
	if (Config{OwnCores: true}).crowded(cores) {
		t.Error("a rank with cores of its own is in a crowd")
	}
	if m := meetAll(t, cores+1, nil)[0].Manner(); !m.Yield {
		t.Error("ranks that are more than the cores do not give them away")
	}
}

// Closing waits for what was written to arrive, but not at a rank that has gone. What else the machine does may hold up some tries, and
// hardly all.
func TestCloseDoesNotWaitForTheGone(t *testing.T) {
	var took []time.Duration
	for range 20 {
		took = append(took, closeWithoutPeer(t))
		if took[len(took)-1] < linger/2 {
			return
		}
	}
	t.Errorf("closing took %v, never less than %v", took, linger/2)
}

// closeWithoutPeer tells how long it takes to close a full link to a rank that has gone.
func closeWithoutPeer(t *testing.T) time.Duration {
	t.Helper()
	fabrics := meetAll(t, 2, share(ShareNever))
	l := fabrics[0].Control(1)
	testkit.Eventually(t, "the link is full", func() bool {
		n, err := l.Write(nil, make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	fabrics[1].Close()
	testkit.Eventually(t, "its end is noticed", func() bool { _, err := l.Write(nil, []byte("x")); return err != nil })
	start := time.Now()
	fabrics[0].Close()
	return time.Since(start)
}
