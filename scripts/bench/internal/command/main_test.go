package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
)

func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{Usagef("-ranks: %q", "x"), 2, "bench-x: -ranks: \"x\"; try -h\n"},
		{fmt.Errorf("a launch: %w", context.Canceled), 130, "bench-x: interrupted; its processes and temporary files are gone\n"},
		{errors.New("no disk"), 1, "bench-x: no disk\n"},
	} {
		var said strings.Builder
		if code := end("bench-x", tt.err, &said); code != tt.code || said.String() != tt.said {
			t.Errorf("%v: code %d and %q, want %d and %q", tt.err, code, said.String(), tt.code, tt.said)
		}
	}
}
