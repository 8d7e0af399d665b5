package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A heading says under what settings the rows come.
func TestBenchSettings(t *testing.T) {
	for name, want := range map[string]string{
		"startup": "", "store": "", "pingpong": ", transport tcp", "broadcast": ", transport tcp, algorithm star",
		"allreduce": ", transport tcp, algorithm star, deterministic",
	} {
		o := benchOptions{collective: collectiveNamed(name), transport: "tcp", algorithm: "star", deterministic: true}
		if got := o.settings(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The words for another process say what they were made of.
func TestBenchArgs(t *testing.T) {
	for _, c := range benchCollectives {
		o := benchOptions{
			collective: c, begin: 8, end: 64, factor: 8, transport: "tcp", algorithm: "auto", element: &benchElements[1], op: opMax,
			iters: 3, warmup: 2, budget: time.Second,
		}
		line := fmt.Sprint(o.args())
		if strings.Contains(line, "--op max") != c.reduces || strings.Contains(line, "--type float64") == c.unsized {
			t.Errorf("%s: %s", c.name, line)
		}
	}
}
