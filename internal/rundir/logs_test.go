package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRankLogsAreFoundByTheirNames(t *testing.T) {
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
	for _, name := range []string{ // other files that are or may be there
		"n1.1.error.json", "n1.1.flight.jsonl", "n1.1.outer", "n1.out", ".1.out", "n1.-1.out", "n1.01.out", "n1.+1.out",
		"n1..out", "out", ".err",
		"n1.99999999999999999999.out", "n1.filtered.out",
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

func TestLogPathNamesHostRankAndStream(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	logs := filepath.Join(d.Path(), "attempts", "2", "logs")
	for _, tc := range []struct {
		host   string
		stream string
		want   string
	}{
		{"n1", "out", "n1.3.out"},
		{"gpu-01.cluster.local", "err", "gpu-01.cluster.local.3.err"},
		{"../../etc", "out", "______etc.3.out"},
		{"", "out", "_.3.out"},
		{".hidden", "out", "_.hidden.3.out"},
		{"a b\n", "out", "a_b_.3.out"},
		{"n1", "../out", "n1.3.___out"},
	} {
		if got := d.LogPath(2, tc.host, 3, tc.stream); got != filepath.Join(logs, tc.want) {
			t.Errorf("LogPath(%q, %q) = %s, want %s", tc.host, tc.stream, filepath.Base(got), tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		path := d.LogPath(2, rapid.String().Draw(t, "host"), 3, "out")
		if filepath.Dir(path) != logs || strings.Contains(path, "..") || len(filepath.Base(path)) > 255 {
			t.Fatalf("path is %q", path)
		}
	})
}
