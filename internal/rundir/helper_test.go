package rundir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	syscall.Umask(0o022) // a run folder that the group may write to is refused
	os.Exit(m.Run())
}

// config returns a valid CreateConfig below parent.
func config(t testing.TB, parent, name string) CreateConfig {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755))
	return CreateConfig{
		Parent:  parent,
		Spec:    Spec{Name: name, Kind: "slurm", Version: "v0", WorkDir: "/w", Nodes: 2, Job: json.RawMessage(`{"a":1}`)},
		JobFile: []byte("schema = 1\n"),
		Binary:  binary,
		Now:     noon,
	}
}

func create1(t testing.TB, parent, name string) *Dir {
	t.Helper()
	d, err := Create(config(t, parent, name))
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing returns every name in dir.
func listing(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
