package main

import (
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadMetricsCountsTheLastSteps(t *testing.T) {
	const lines = `{"time":"2026-01-01T00:00:01.000Z","step":10,"loss":5,"comm_share":1}
{"time":"2026-01-01T00:00:02.000Z","step":20,"loss":4,"comm_share":1}
{"time":"2026-01-01T00:00:02.500Z","step":30,"loss":3,"comm_share":0.1}
{"time":"2026-01-01T00:00:03.100Z","step":35,"loss":2,"comm_share":0.4}
{"time":"2026-01-01T00:00:09.000Z","step":35,"loss":2,"comm_share":0.4,"save_s":5}
`
	got, err := readMetrics([]byte(lines), 15)
	// 15 steps in 1.1 s: ten of them spend a tenth of their time on communication, and five spend four tenths.
	if err != nil || math.Abs(got.StepMS-1100./15) > 1e-9 || got.Loss != 2 || math.Abs(got.Exposed-0.2) > 1e-9 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, warmUp := range []int{31, 36} {
		if _, err := readMetrics([]byte(lines), warmUp); err == nil {
			t.Errorf("nothing to measure after step %d, and no error", warmUp)
		}
	}
	if _, err := readMetrics([]byte("{\n"), 0); err == nil {
		t.Error("half a line is not an error")
	}
}

// A side gets its rank from the environment, and each rank is bound to one core.
func TestCommandsBindEachRankToACore(t *testing.T) {
	for _, side := range []side{ours("ddpbatch", ""), torch("python3", "")} {
		for i, cmd := range side.commands(models[0], 2, "") {
			line := strings.Join(append(cmd.Env, cmd.Args...), " ")
			for _, want := range []string{
				[]string{"RANK=0 ", "RANK=1 "}[i], "WORLD_SIZE=2 ", "OMP_NUM_THREADS=1 ", "taskset -c " + core(i) + " ",
				side.rank(models[0], 2).Args[0],
			} {
				if !strings.Contains(line, want) {
					t.Errorf("%s, rank %d: no %q in %s", side.name, i, want, line)
				}
			}
		}
	}
}

// Ranks use the cores that this program may use. Core 0 need not be one of them.
func TestCoreIsOneOfThisProgram(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	last := 0
	for left := all.Count(); left > 0; last++ {
		if all.IsSet(last) {
			left--
		}
	}
	last--
	if want := strconv.Itoa(last); core(all.Count()-1) != want {
		t.Errorf("the last core is %s, want %s", core(all.Count()-1), want)
	}
	var one unix.CPUSet
	one.Set(last)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	got := core(0)
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(last); got != want {
		t.Errorf("of core %s alone, the first one is %s", want, got)
	}
}
