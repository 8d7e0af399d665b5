package main

import (
	"errors"
	"io"
	"testing"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"--quick"}, io.Discard)
	if err != nil || o.launches != 3 || o.mib != 96 {
		t.Errorf("--quick gives %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"x"}, {"--launches", "0"}, {"--mib", "1"}, {"--dir", "/does/not/exist"}, {"--what"}} {
		var usage *usageError
		if _, err := parseOptions(bad, io.Discard); !errors.As(err, &usage) {
			t.Errorf("%v: error %v, want one about usage", bad, err)
		}
	}
}
