package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A process reads what the maker of a segment has in its memory, and nothing through a handle of another process.
func TestOnlyTheOwnerIsRead(t *testing.T) {
	s := create(t, 100)
	if !s.ReadsOwner() {
		t.Skip("the kernel does not let a process read its own memory by process_vm_readv")
	}
	want := bytes.Repeat([]byte("own"), 50_000)
	got := make([]byte, len(want))
	if err := readMemory(os.Getpid(), addressOf(want), got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes, or %v", err)
	}
	if err := readMemory(os.Getpid(), 4096, got); !errors.Is(err, unix.EFAULT) {
		t.Errorf("an address that is not mapped: %v", err)
	}
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	s.handle.PID = other.Process.Pid
	if s.ReadsOwner() {
		t.Error("another process passes for the owner")
	}
	other.Process.Kill()
	other.Wait()
	if s.ReadsOwner() {
		t.Error("a process that is gone passes for the owner")
	}
	if err := readMemory(other.Process.Pid, addressOf(want), got); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a process that is gone: %v", err)
	}
}

// Blocks of several pieces, of which some ranks have fewer, and a whole buffer.
func TestLongBuffersAreReadInPieces(t *testing.T) {
	members := group(t, 2)
	var want []uint32
	for i := range (2*fetchPiece + 100) / 4 {
		want = append(want, uint32(i*i))
	}
	at := []int{0, 96, 4 * len(want)}
	errs := together(members, func(m *member) error {
		buf := make([]byte, at[2])
		copy(block(buf, at, m.rank), block(bytesOf(want), at, m.rank))
		err := m.node.AllGather(m.w, Fingerprint{1}, buf, at, block(buf, at, m.rank))
		if err == nil && !bytes.Equal(buf, bytesOf(want)) {
			err = fmt.Errorf("all-gather: rank %d got something else", m.rank)
		}
		if err != nil {
			return err
		}
		if m.rank == 0 {
			clear(buf)
		}
		err = m.node.Broadcast(m.w, Fingerprint{2}, buf, 1)
		if err == nil && !bytes.Equal(buf, bytesOf(want)) {
			err = fmt.Errorf("broadcast: rank %d got something else", m.rank)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// A rank that gives up may use its buffer again at once: whoever reads it then gets the group's error, and no other data.
func TestBufferOfAFailedRankIsNotTaken(t *testing.T) {
	at := []int{0, readFrom, 2 * readFrom}
	for _, tt := range []struct{ registered, withCounts bool }{{false, false}, {true, false}, {false, true}} {
		members := group(t, 2)
		exchange := func(m *member, w Waiter) error {
			buf := make([]byte, at[2])
			if tt.registered {
				buf = m.region.Bytes()[:len(buf)]
			}
			if tt.withCounts {
				return m.node.AllToAllV(w, m.p, Fingerprint{1}, make([]byte, len(buf)), at, buf, at)
			}
			return m.node.AllToAll(w, Fingerprint{1}, make([]byte, len(buf)), buf, at)
		}
		late := &lateWaiter{testWaiter: members[1].w, entered: make(chan struct{}), goOn: make(chan struct{})}
		done := make(chan error)
		go func() { done <- exchange(members[1], late) }()
		<-late.entered
		// Rank 0 has read all that it wants, and waits for rank 1 alone as the group fails.
		members[0].w.failed.Store(true)
		if err := exchange(members[0], members[0].w); !errors.Is(err, errGroupFailed) {
			t.Fatalf("%+v: rank 0 got %v", tt, err)
		}
		close(late.goOn)
		if err := <-done; !errors.Is(err, errGroupFailed) {
			t.Errorf("%+v: rank 1 got %v", tt, err)
		}
	}
}

// lateWaiter is that of a rank which does nothing for a while when the others see it in the call.
type lateWaiter struct {
	*testWaiter
	entered, goOn chan struct{}
}

func (w *lateWaiter) Entered() error {
	close(w.entered)
	<-w.goOn
	return nil
}
