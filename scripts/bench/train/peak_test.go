package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

// A child does not have the peak that this process once had.
func TestPeak(t *testing.T) {
	much := make([]byte, 256<<20)
	for i := 0; i < len(much); i += 4096 {
		much[i] = 1
	}
	runtime.KeepAlive(much)
	much = nil
	if err := forgetPeak(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	// What this process has now counts: the race detector does not give back all of its own.
	if got, own := peak([]*exec.Cmd{cmd}), resident(t); got <= 0 || got > own+64 {
		t.Errorf("a peak of %v MiB, started from a process of %v MiB", got, own)
	}
}

// resident is what of this process is in memory, in MiB.
func resident(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(string(regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024
}
