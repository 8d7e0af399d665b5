package watch

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const maxPySpy = 64 << 10 // bytes that are kept of what it writes

// pySpy is what py-spy says of a process, or why it says nothing.
func (d Dumper) pySpy(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, pySpyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.PySpy, "dump", "--pid", strconv.Itoa(pid))
	var out capped
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for what it may have started
	err := cmd.Run()
	text := strings.TrimRight(out.String(), "\n")
	switch {
	case ctx.Err() != nil:
		text += fmt.Sprintf("\npy-spy did not end within %v", pySpyLimit)
	case err != nil:
		text += fmt.Sprintf("\npy-spy: %v", err)
	}
	return fmt.Sprintf("Python stacks of process %d:\n%s\n", pid, indent(strings.TrimLeft(text, "\n")))
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// capped keeps the beginning of what is written to it.
type capped struct {
	kept bytes.Buffer // not embedded: io.Copy would go round Write, by ReadFrom
}

func (c *capped) String() string { return c.kept.String() }

func (c *capped) Write(p []byte) (int, error) {
	if room := maxPySpy - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
