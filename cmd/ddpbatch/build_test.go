package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionHasTheCommit(t *testing.T) {
	platform := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, c := range []struct {
		name     string
		settings []debug.BuildSetting
		want     string
	}{
		{"no repository", []debug.BuildSetting{setting("GOOS", "linux")}, ""},
		{"a clean clone", []debug.BuildSetting{
			setting("vcs", "git"), setting("vcs.revision", "0123456789abcdef0123456789abcdef01234567"),
			setting("vcs.time", "2026-11-26T21:53:00Z"), setting("vcs.modified", "false"),
		}, "commit 0123456789ab of 2026-11-26, "},
		{"with changes", []debug.BuildSetting{setting("vcs.revision", "0123456789abcdef"), setting("vcs.time", "2026-01-02T03:04:05Z"),
			setting("vcs.modified", "true")}, "commit 0123456789ab of 2026-01-02 with changes, "},
		{"a short commit", []debug.BuildSetting{setting("vcs.revision", "abc")}, "commit abc, "},
	} {
		if got, want := versionLine("1.2.3", buildOf(c.settings)), "ddpbatch 1.2.3 ("+c.want+platform+")"; got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}
