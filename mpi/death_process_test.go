package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dieProcess is a rank of deaths, which prints when it dies or is told. Every other death is by signal.
func dieProcess(ctx context.Context, c *Comm) error {
	die := func(before int) {
		fmt.Println("died", before, time.Now().UnixMicro())
		if before%2 == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return
		}
		os.Exit(7)
	}
	return deaths(ctx, c, die, func(before int) { fmt.Println("told", before, time.Now().UnixMicro()) })
}

// Processes that die in the middle of collectives are errors on the others at once, by their right names.
func TestDeathsOfProcesses(t *testing.T) {
	for _, over := range realTransports {
		t.Run(over, func(t *testing.T) {
			size := len(everyCall) + 2
			ranks := startRanks(t, "die", over, size, time.Minute)
			wait(t, ranks...)
			var died, told [64]int64
			survivors := 0
			for rank, p := range ranks {
				if code := p.cmd.ProcessState.ExitCode(); code == 0 {
					survivors++
				} else if exit := (*exec.ExitError)(nil); !errors.As(p.err, &exit) || p.errOut.Len() > 0 || code != -1 && code != 7 {
					t.Errorf("rank %d: %v; said %q", rank, p.err, p.errOut.String())
				}
				for _, text := range strings.Split(strings.TrimSpace(p.out.String()), "\n") {
					var what string
					var i int
					var at int64
					if _, err := fmt.Sscan(text, &what, &i, &at); err != nil {
						t.Fatalf("rank %d printed %q", rank, text)
					}
					if what == "died" {
						died[i] = at
					} else {
						told[i] = max(told[i], at)
					}
				}
			}
			if survivors != size-len(everyCall) {
				t.Errorf("%d ranks are left of %d, after %d deaths", survivors, size, len(everyCall))
			}
			var times []time.Duration
			for i := range everyCall {
				times = append(times, time.Duration(told[i]-died[i])*time.Microsecond)
			}
			toldSoon(t, times)
		})
	}
}
