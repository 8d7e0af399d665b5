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

// A process reads only the memory of the process that made a segment, and never memory through another process's handle.
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

// Long blocks with unequal numbers of pieces, and a long broadcast, arrive whole.
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

// A rank that gives up may use its buffer again at once. A rank that reads the buffer later gets the group's error, and no other data.
func TestBufferOfAFailedRankIsNotTaken(t *testing.T) {
	at := []int{0, readFrom, 2 * readFrom}
	plain := func(*member) []byte { return make([]byte, at[2]) }
	registered := func(m *member) []byte { return m.region.Bytes()[:at[2]] }
	for name, tt := range map[string]struct {
		buffer func(m *member) []byte
		call   func(m *member, w Waiter, buf []byte) error
	}{
		"all_to_all": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.AllToAll(w, Fingerprint{1}, make([]byte, len(buf)), buf, at)
		}},
		"all_to_all_registered": {registered, func(m *member, w Waiter, buf []byte) error {
			return m.node.AllToAll(w, Fingerprint{1}, make([]byte, len(buf)), buf, at)
		}},
		"all_to_all_v": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.AllToAllV(w, m.p, Fingerprint{1}, make([]byte, len(buf)), at, buf, at)
		}},
		"all_gather": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.AllGather(w, Fingerprint{1}, buf, at, block(buf, at, m.rank))
		}},
		"broadcast": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.Broadcast(w, Fingerprint{1}, buf, 0)
		}},
		"gather_v": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.GatherV(w, m.p, Fingerprint{1}, buf, at, block(buf, at, m.rank), 1)
		}},
		"scatter_v": {plain, func(m *member, w Waiter, buf []byte) error {
			return m.node.ScatterV(w, m.p, Fingerprint{1}, make([]byte, readFrom), buf, at, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			members := group(t, 2)
			if !members[0].readable && name != "all_to_all_registered" {
				t.Skip("the kernel does not let processes read each other's memory")
			}
			call := func(m *member, w Waiter) error { return tt.call(m, w, tt.buffer(m)) }
			late := &lateWaiter{testWaiter: members[1].w, entered: make(chan struct{}), goOn: make(chan struct{})}
			done := make(chan error)
			go func() { done <- call(members[1], late) }()
			<-late.entered
			// Rank 0 has read everything that it wants, and waits only for rank 1 when the group fails.
			members[0].w.failed.Store(true)
			if err := call(members[0], members[0].w); !errors.Is(err, errGroupFailed) {
				t.Fatalf("rank 0 got %v", err)
			}
			close(late.goOn)
			if err := <-done; !errors.Is(err, errGroupFailed) {
				t.Errorf("rank 1 got %v", err)
			}
		})
	}
}

// A rank with an empty block has nothing to read. The blocks of the others are read or staged as usual.
func TestEmptyBlockBesideLongOnes(t *testing.T) {
	for _, readable := range []bool{false, true} {
		members := group(t, 3)
		at := []int{0, readFrom, readFrom, 2*readFrom + 4}
		want := make([]byte, at[3])
		for i := range want {
			want[i] = byte(i % 251)
		}
		errs := together(members, func(m *member) error {
			m.node.readable = readable && m.readable
			in, out := bytes.Clone(block(want, at, m.rank)), make([]byte, at[3])
			if len(in) == 0 {
				in = nil
			}
			err := m.node.AllGather(m.w, Fingerprint{1}, out, at, in)
			if err == nil && !bytes.Equal(out, want) {
				err = fmt.Errorf("rank %d got something else", m.rank)
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("readable %v: %v", readable, err)
		}
	}
}

// lateWaiter is the waiter of a rank that pauses as soon as the others see it in the call.
type lateWaiter struct {
	*testWaiter
	entered, goOn chan struct{}
}

func (w *lateWaiter) Entered() error {
	close(w.entered)
	<-w.goOn
	return nil
}
