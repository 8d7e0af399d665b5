package main

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// env is all that a command may know of the world outside its flags; tests make
// their own.
type env struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string
	Dir      string // working directory, absolute
	Hostname string
	Now      func() time.Time
	// Terminal tells whether w is a terminal, and how many columns it has.
	Terminal func(w io.Writer) (columns int, ok bool)
	// Executable is the path of this program, to be copied into run directories.
	Executable func() (string, error)
}

func osEnv() *env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	return &env{
		Hostname: hostname,
		In:       os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Environ: os.Environ(), Dir: dir, Now: time.Now,
		Terminal: terminal, Executable: os.Executable,
	}
}

func terminal(w io.Writer) (int, bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		columns = 80
	}
	return columns, true
}

// lookup finds a variable in e's environment; the last entry wins, as in execve's
// callers.
func (e *env) lookup(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(e.Environ[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

func (e *env) get(name string) string {
	v, _ := e.lookup(name)
	return v
}

// log speaks to a person on standard error: warnings and above.
func (e *env) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.String(slog.TimeKey, a.Value.Time().Format("15:04:05"))
			}
			return a
		},
	}))
}
