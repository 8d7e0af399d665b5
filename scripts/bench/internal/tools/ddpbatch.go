package tools

import (
	"context"
	"fmt"
	"path/filepath"
)

// Ddpbatch finds what is measured, and its version: the program that is given, or, where that is "", this tree's, built in dir.
func Ddpbatch(ctx context.Context, dir, given string) (program, version string, err error) {
	program = given
	if program == "" {
		program = filepath.Join(dir, "ddpbatch")
		if err := Run(ctx, "go", "build", "-o", program, "./cmd/ddpbatch"); err != nil {
			return "", "", err
		}
	}
	version = FirstLine(ctx, program, "version")
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case version == "":
		return "", "", fmt.Errorf("%s does not tell its version: is it ddpbatch?", program)
	}
	return program, version, nil
}
