package proc

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// The reaper waits for orphans, and takes the status of no child: hundreds of children of both kinds end at the same time, beside as many
// orphans.
func TestReaperTakesOrphansAlone(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	const each = 100
	var all sync.WaitGroup
	limit := make(chan struct{}, 8)
	try := func(f func() error) {
		all.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range each {
		want := 1 + i%200
		script := fmt.Sprintf("exit %d", want)
		try(func() error {
			// leaves two processes behind in a session of their own: one ends at once, the other a little later
			p, err := Start(exec.Command("/bin/sh", "-c", "setsid sh -c 'true & sleep 0.05 & exit 0'; "+script))
			if err != nil {
				return err
			}
			<-p.Done()
			if p.Code() != want || p.Err() != nil {
				return fmt.Errorf("a Process: code %d, error %v; want %d", p.Code(), p.Err(), want)
			}
			return nil
		})
		try(func() error {
			var exit *exec.ExitError
			if err := exec.Command("/bin/sh", "-c", script).Run(); !errors.As(err, &exit) || exit.ExitCode() != want {
				return fmt.Errorf("a child of os/exec: %v; want %d", err, want)
			}
			return nil
		})
	}
	all.Wait()
	var left []stat
	defer func() {
		if t.Failed() {
			t.Errorf("left: %+v", left)
		}
	}()
	testkit.Eventually(t, "no orphan is left", func() bool {
		left, err = stats()
		left = slices.DeleteFunc(left, func(s stat) bool { return s.parent != unix.Getpid() })
		return err == nil && len(left) == 0
	})
}

// A child that is waited for late keeps its status, and does not hide an orphan.
func TestReaperLeavesTheLate(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	late := exec.Command("/bin/sh", "-c", "exit 7")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it has ended", func() bool { return !alive(late.Process.Pid) })
	p, lines := startTest(t, exec.Command("/bin/sh", "-c", `setsid sh -c 'echo orphan $$; exec sleep 0.1' & wait`), Start)
	orphan := pidAfter(t, lines, "orphan")
	p.Signal(unix.SIGTERM)
	wait(t, p)
	testkit.Eventually(t, "the orphan was waited for", func() bool { _, err := readStat(orphan); return err != nil })
	var exit *exec.ExitError
	if err := late.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("its status: %v", err)
	}
}

// A look that takes long because the machine is busy does not make this process slow, and the next look follows soon.
func TestReaperLooksOnAfterASlowLook(t *testing.T) {
	reaper, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Close()
	late := exec.Command("/bin/sh", "-c", "exit 7") // the reaper looks at it again as long as it is not waited for
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	defer late.Wait()
	testkit.Eventually(t, "it has ended", func() bool { return !alive(late.Process.Pid) })
	children.mu.Lock() // makes the look that is due by then wait
	<-time.After(time.Second)
	children.mu.Unlock()
	p, lines := startTest(t, exec.Command("/bin/sh", "-c", `setsid sh -c 'echo orphan $$; exec sleep 0.1' & wait`), Start)
	orphan := pidAfter(t, lines, "orphan")
	p.Signal(unix.SIGTERM)
	wait(t, p)
	testkit.Eventually(t, "the orphan was waited for", func() bool { _, err := readStat(orphan); return err != nil })
}

func TestReapersShareUntilTheLastCloses(t *testing.T) {
	is := func(want bool) {
		t.Helper()
		p, lines := startTest(t, exec.Command("/bin/sh", "-c", "setsid sleep 1000 & echo orphan $!; wait"), Start)
		orphan := pidAfter(t, lines, "orphan")
		executes(t, "sleep", orphan)
		p.Signal(unix.SIGTERM)
		wait(t, p)
		s, err := readStat(orphan)
		unix.Kill(orphan, unix.SIGKILL) // it still lived
		if err != nil || (s.parent == unix.Getpid()) != want {
			t.Errorf("the parent of an orphan is %d, this process %d; want the same: %v (%v)", s.parent, unix.Getpid(), want, err)
		}
	}
	first, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Subreaper()
	if err != nil {
		t.Fatal(err)
	}
	is(true)
	first.Close()
	first.Close()
	is(true)
	second.Close()
	is(false)
}
