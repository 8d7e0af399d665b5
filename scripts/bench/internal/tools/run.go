package tools

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Run runs a command. Where it fails the error shows what it said.
func Run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// FirstLine is what a command says first, or empty where it cannot be run.
func FirstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// LastLine is what a program said last: of one that failed, the reason.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
