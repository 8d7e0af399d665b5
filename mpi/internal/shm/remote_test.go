package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

func TestManyReadLongBlocks(t *testing.T) {
	const size = 3
	members := group(t, size)
	block := manyReadFrom/4/size + 1
	var want []uint32
	for i := range size * block {
		want = append(want, uint32(i*i))
	}
	errs := together(members, func(m *member) error {
		buf := make([]uint32, len(want))
		copy(buf[m.rank*block:], want[m.rank*block:][:block])
		err := m.node.AllGather(m.w, Fingerprint{1}, bytesOf(buf), []int{0, 4 * block, 8 * block, 12 * block})
		if err == nil && !slices.Equal(buf, want) {
			err = fmt.Errorf("rank %d got something else", m.rank)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
