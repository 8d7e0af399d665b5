package testkit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Saved is called by a victim of Kill after a step is safe.
func Saved(step int64) { fmt.Println("saved", step) }

// victimTime is enough for a few saves on the slowest machine; a victim that takes longer hangs.
const victimTime = 3 * time.Minute

// Kill starts the test binary again, with only the named test and with further variables, as a victim that calls Saved after every step.
// Kill waits for the given number of saves and then a little longer, kills the victim (SIGKILL), and returns the last step that the victim
// reported, or 0. It is an error if the victim writes to standard error, if it ends by itself, or if it has not saved often enough within
// three minutes or before ctx ends. In these cases Kill kills the victim too.
func Kill(ctx context.Context, test string, environ []string, saves int, longer time.Duration) (last int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, victimTime, fmt.Errorf("not done within %v", victimTime))
	defer cancel()
	victim := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+test+"$")
	victim.Env = append(os.Environ(), environ...)
	out, err := victim.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var trouble strings.Builder
	victim.Stderr = &trouble
	if err := victim.Start(); err != nil {
		return 0, err
	}
	kill := func() { time.AfterFunc(longer, func() { victim.Process.Kill() }) }
	if saves == 0 {
		kill()
	}
	said := 0
	var verdict strings.Builder // package testing prints it when a test ends
	for lines := bufio.NewScanner(out); lines.Scan(); {
		number, saved := strings.CutPrefix(lines.Text(), "saved ")
		step, err := strconv.ParseInt(number, 10, 64)
		if !saved || err != nil {
			fmt.Fprintln(&verdict, lines.Text())
			continue
		}
		last = step
		if said++; said == saves {
			kill()
		}
	}
	victim.Wait() // only reports that it was killed
	switch {
	case verdict.Len() > 0:
		return last, fmt.Errorf("the victim ended: %s%s", &verdict, &trouble)
	case trouble.Len() > 0:
		return last, fmt.Errorf("victim: %s", &trouble)
	case said < saves && ctx.Err() != nil:
		return last, fmt.Errorf("victim: it hangs after %d of %d saves, the last one of step %d: %w", said, saves, last, context.Cause(ctx))
	case said < saves:
		return last, fmt.Errorf("the victim ended after %d of %d saves: %v", said, saves, victim.ProcessState)
	}
	return last, nil
}
