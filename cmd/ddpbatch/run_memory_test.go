package main

import (
	"runtime/debug"
	"testing"
)

func TestKeepSmall(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for gogc, want := range map[string]int{"": agentGC, "200": 100} { // GOGC is Go's own business
		debug.SetGCPercent(100)
		keepSmall(&env{Environ: []string{"GOGC=" + gogc}})
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d, want %d", gogc, got, want)
		}
	}
}
