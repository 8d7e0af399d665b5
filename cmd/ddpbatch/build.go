package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is the release that this source belongs to; see CHANGELOG.md. All agents of a run must have the same version. A release is built
// with -ldflags "-X main.version=1.2.3" (scripts/release).
var version = "0.1.0"

// build describes the source that a program was built from. Go records it if it builds in a clone of the repository.
type build struct {
	Commit   string // "": not recorded
	Time     string // of the commit, in RFC 3339; "": not recorded
	Modified bool   // the source had uncommitted changes
}

// ownBuild returns this program's build.
func ownBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{}
	}
	return buildOf(info.Settings)
}

func buildOf(settings []debug.BuildSetting) (b build) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// date returns the day of the commit, or "" if it is not recorded.
func (b build) date() string {
	day, _, _ := strings.Cut(b.Time, "T")
	return day
}

// words describes a build in parentheses, to follow the version. It returns "" if nothing is known.
func (b build) words() string {
	if b.Commit == "" {
		return ""
	}
	const short = 12 // digits of a commit
	text := "commit " + b.Commit[:min(len(b.Commit), short)]
	if day := b.date(); day != "" {
		text += " of " + day
	}
	if b.Modified {
		text += " with changes"
	}
	return text + ", "
}

func versionString() string { return versionLine(version, ownBuild()) }

func versionLine(version string, b build) string {
	return fmt.Sprintf("ddpbatch %s (%s%s %s/%s)", version, b.words(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
