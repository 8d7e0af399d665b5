package main

import "testing"

func TestUnlabelled(t *testing.T) {
	for line, want := range map[string]string{"[n1 0] met": "met", "met": "met", "[n1 3] [a] b": "[a] b", "[1, 2]": "[1, 2]", "": ""} {
		if got := unlabelled(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestParseWorker(t *testing.T) {
	if w, ok := parseWorker("worker 77 12"); !ok || w.pid != 77 || w.agent != 12 {
		t.Errorf("%+v, %v", w, ok)
	}
	for _, line := range []string{"", "worker", "worker 7", "worker x 7", "worker 7 1", "worker -7 12", "a worker 7 12"} {
		if w, ok := parseWorker(line); ok {
			t.Errorf("%q is taken for a worker: %+v", line, w)
		}
	}
}
