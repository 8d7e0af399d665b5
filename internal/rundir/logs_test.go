package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRankLogs(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	n, err := d.ClaimAttempt()
	must(t, err)
	want := []RankLog{
		{"n1", 1, "out", d.LogPath(n, "n1", 1, "out")},
		{"n1", 1, "err", d.LogPath(n, "n1", 1, "err")},
		{"a.cluster.local", 2, "err", d.LogPath(n, "a.cluster.local", 2, "err")},
		{"n2.1.out", 11, "out", d.LogPath(n, "n2.1.out", 11, "out")},
	}
	for _, log := range want {
		must(t, os.WriteFile(log.Path, nil, 0o600))
	}
	for _, name := range []string{ // what else lies there, and what may
		"n1.1.error.json", "n1.1.flight.jsonl", "n1.1.outer", "n1.out", ".1.out", "n1.-1.out", "n1.01.out", "n1.+1.out", "n1..out", "out", ".err",
		"n1.99999999999999999999.out", filepath.Base(d.FilteredPath(n, "n1", "out")),
	} {
		must(t, os.WriteFile(filepath.Join(d.LogsPath(n), name), nil, 0o600))
	}
	got, err := d.RankLogs(n)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := d.RankLogs(n + 1); err == nil {
		t.Error("an attempt that is not there has logs")
	}
}

func TestFilteredPath(t *testing.T) {
	d := create1(t, t.TempDir(), "job")
	if got, want := d.FilteredPath(3, "../n1", "out"), filepath.Join(d.Path(), "attempts", "3", "logs", "___n1.filtered.out"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
