package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), mode))
		must(t, os.Chmod(path, mode))
		return path
	}
	for name, tc := range map[string]struct {
		command, dir string
		exit         int
		want         string
	}{
		"not in PATH":       {"no-such-command", "", 127, `command "no-such-command" is in no folder of the workers' PATH`},
		"not there":         {dir + "/nothing", "", 127, "is not there"},
		"not executable":    {file("plain", "#!/bin/sh\n", 0o644), "", 126, "is not executable (chmod +x " + dir + "/plain)"},
		"a directory":       {dir, "", 126, "is a directory"},
		"below a file":      {dir + "/plain/x", "", 127, "is not there"},
		"no interpreter":    {file("lost", "#!/no/such/interpreter\n", 0o755), "", 127, "needs an interpreter or loader that is not there"},
		"no program":        {file("text", "hello\n", 0o755), "", 126, "is neither a program for this machine nor a script"},
		"no working folder": {"true", dir + "/nowhere", 1, "the working directory " + dir + "/nowhere cannot be used"},
		"folder is a file":  {"true", dir + "/plain", 1, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, "wait", "0")
			// One agent cannot start its workers; that of the other is stopped.
			w.agents[1].Command, w.agents[1].Dir = []string{tc.command}, tc.dir
			v := w.agree(w.run())
			if v.Cause != "start" || v.Exit != tc.exit || v.FirstRank != 1 || v.Host != "n2" ||
				!strings.HasPrefix(v.Message, "rank 1 on n2 was not started: ") || !strings.Contains(v.Message, tc.want) {
				t.Errorf("verdict is %+v; want exit %d and %q", v, tc.exit, tc.want)
			}
		})
	}
}

func TestLogsThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	logs := filepath.Dir(w.dir.LogPath(1, "n1", 0, "out"))
	must(t, os.Remove(logs))
	v := w.agree(w.run())
	if v.Cause != "start" || v.Exit != 1 || !strings.Contains(v.Message, "open the log of rank 0") {
		t.Errorf("verdict is %+v", v)
	}
	// The second of two files: the first is not left open.
	must(t, os.MkdirAll(w.dir.LogPath(1, "n1", 0, "err"), 0o700))
	if v := w.run()[0]; v.Cause != "start" {
		t.Errorf("verdict is %+v", v)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/tool", "b/tool", "b/only", "here"} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "a/only"), nil, 0o644)) // not executable: the next one is taken
	must(t, os.WriteFile(filepath.Join(dir, "a/never"), nil, 0o644))
	path := "PATH=" + filepath.Join(dir, "a") + ":" + filepath.Join(dir, "b")
	for _, tc := range []struct {
		name, env string
		want      string // below dir
		exit      int
	}{
		{"tool", path, "a/tool", 0},
		{"only", path, "b/only", 0},
		{"tool", "PATH=b:a", "b/tool", 0},     // relative to where the workers run
		{"here", "PATH=:/nowhere", "here", 0}, // an empty entry is the working directory
		{"./here", "PATH=", "here", 0},
		{"b/tool", path, "b/tool", 0},
		{filepath.Join(dir, "here"), "", "here", 0},
		{"never", path, "", exitNotExecutable},
		{"nothing", path, "", exitNotFound},
		{"tool", "HOME=/", "", exitNotFound},
	} {
		got, err := lookPath(tc.name, dir, []string{"PATH=/not/this", tc.env})
		var start *startError
		switch {
		case tc.exit == 0 && (err != nil || got != filepath.Join(dir, tc.want)):
			t.Errorf("%s with %s is %s, %v; want %s", tc.name, tc.env, got, err, tc.want)
		case tc.exit != 0 && (!errors.As(err, &start) || start.exit != tc.exit):
			t.Errorf("%s with %s is %s, %v; want exit %d", tc.name, tc.env, got, err, tc.exit)
		}
	}
}
