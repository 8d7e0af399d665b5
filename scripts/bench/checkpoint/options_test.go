package main

import (
	"errors"
	"io"
	"testing"

	"ddpbatch/scripts/bench/internal/command"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"--quick"}, io.Discard)
	if err != nil || o.launches != 3 || o.mib != 96 {
		t.Errorf("--quick gives %+v, %v", o, err)
	}
	if o, err := parseOptions([]string{"--quick", "--figures", "--mib", "128"}, io.Discard); err != nil || !o.figures || o.mib != 128 {
		t.Errorf("--quick --figures --mib 128 gives %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"--mib", "1"}, {"--dir", "/does/not/exist"}} {
		var usage *command.UsageError
		if _, err := parseOptions(bad, io.Discard); !errors.As(err, &usage) {
			t.Errorf("%v: error %v, want one about usage", bad, err)
		}
	}
}
