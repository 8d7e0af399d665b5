package main

import (
	"slices"
	"testing"
)

// The option --redirects for torchrun names a rank that does not exist.
func TestTorchrunRedirectsNoRank(t *testing.T) {
	for ranks, want := range map[int]string{1: "--redirects=1:1", 4: "--redirects=4:1"} {
		if args := torchrun("python3", "", "meet.py").command(ranks).Args; !slices.Contains(args, want) {
			t.Errorf("%d ranks: %q", ranks, args)
		}
	}
}

func TestRowsSayThatAllHaveMet(t *testing.T) {
	own := builtin("ddpbatch", "key")
	for line, want := range map[string]bool{`{"size":0,"time_us":9037.0}`: true, "met": false, `{"error":1}`: false, "": false} {
		if own.met(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}
