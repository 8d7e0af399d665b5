package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/scripts/bench/internal/command"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("--part meet,crash,meet --peers none --ranks 2,8 --quick --meet 3x5"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.parts, []string{"meet", "crash"}) || len(o.peers) != 0 || !slices.Equal(o.ranks, []int{2, 8}) || o.meet != (shape{3, 5}) {
		t.Errorf("what is named beside --quick does not stay: %+v", o)
	}
	if o.launches != 3 || o.idle != 5*time.Second {
		t.Errorf("--quick: %+v", o)
	}
	if o, err = parseOptions(nil, io.Discard); err != nil || o.launches != 7 || o.meet != (shape{64, 8}) || !slices.Equal(o.ranks, []int{1, 2, 4}) || len(o.parts) != 4 || len(o.peers) != 3 {
		t.Errorf("by default: %+v, %v", o, err)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--part start":  `-part: there is no "start"; it is one of launch,`,
		"--peers nccl":  `-peers: there is no "nccl"`,
		"--ranks 0":     `-ranks: "0" is no number from 1 to 4096`,
		"--meet 64":     `-meet: "64" is not written like 64x8`,
		"--meet 4x4x4":  `-meet: "4x4x4" is not written like 64x8`,
		"--meet 0x8":    `-meet: "0x8" is not written like 64x8`,
		"--meet 4096x2": `is more than 4096 workers`,
		"--idle 1ms":    "-idle is 1ms; it must be 1s to 1h",
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		var usage *command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
