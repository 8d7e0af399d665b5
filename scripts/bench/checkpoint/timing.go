package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// timing is what some work took, in seconds.
type timing struct {
	cpu, wall float64 // of all threads of this process, in user space and in the kernel; of the clock
	err       error
}

func cpuTime(work func() error) (t timing) {
	var before, after unix.Rusage
	unix.Sync()
	if t.err = unix.Getrusage(unix.RUSAGE_SELF, &before); t.err != nil {
		return t
	}
	start := time.Now()
	err := work()
	t.wall = time.Since(start).Seconds()
	if t.err = unix.Getrusage(unix.RUSAGE_SELF, &after); t.err == nil {
		t.err = err
	}
	used := func(r unix.Rusage) float64 {
		return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	t.cpu = used(after) - used(before)
	return t
}
