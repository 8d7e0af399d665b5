package processes

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	"ddpbatch/scripts/bench/internal/tools"
)

// Run runs a command to its end, and gives all that it said and how long it took. It is a launch as those of [Start] are: its environment
// is the same, and an interrupt, whose error is that of ctx, leaves nothing behind.
func Run(ctx context.Context, cmd *exec.Cmd) (said string, took time.Duration, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started := time.Now()
	group, err := Start(cmd)
	if err != nil {
		return "", 0, err
	}
	group.Await(ctx, nil)
	took = time.Since(started)
	group.Kill() // all that it wrote has been read
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	if code := group.Code(0); code != 0 {
		return "", 0, fmt.Errorf("exit code %d: %s", code, tools.LastLine(out.String()))
	}
	return out.String(), took, nil
}
