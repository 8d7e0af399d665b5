package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
)

// env is everything that a command may know of its surroundings, apart from its flags. Tests create their own.
type env struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string
	Dir      string // working directory, absolute
	Hostname string
	SiteFile string // the site's file of defaults; empty: none
	Now      func() time.Time
	// Terminal reports whether w is a terminal, and how many columns it has.
	Terminal func(w io.Writer) (columns int, ok bool)
	// Executable returns the path of this program, to be copied into run directories.
	Executable func() (string, error)
	// reply is what --json will print; nil without --json, or if the command prints its own output.
	reply    *reply
	defaults *readOnce // nil: not read yet
	// Release delivers the signals that were held since the start; nil: none were held.
	Release func()
}

// siteFile is the site's file of defaults. No variable can name another file, because a user who could set it for a job could write that
// job's script.
const siteFile = "/etc/ddpbatch.toml"

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
		Hostname: hostname, SiteFile: siteFile,
		In: os.Stdin, Out: &checkedOutput{file: os.Stdout}, Err: os.Stderr,
		Environ: os.Environ(), Dir: dir, Now: time.Now,
		Terminal: terminal, Executable: os.Executable,
	}
}

func terminal(w io.Writer) (int, bool) {
	f, ok := unchecked(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		columns = 80
	}
	return columns, true
}

// checkedOutput is standard output that keeps the first error, because a command whose output was lost, for example on a full disk, has
// failed.
type checkedOutput struct {
	file *os.File

	mu  sync.Mutex
	err error
}

func (o *checkedOutput) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = fmt.Errorf("write standard output: %w", err)
		}
	}
	return n, err
}

// unchecked returns w without that check, for what agents and ranks print beside their work.
func unchecked(w io.Writer) io.Writer {
	if o, ok := w.(*checkedOutput); ok {
		return o.file
	}
	return w
}

// lostOutput returns the first error of writing standard output.
func (e *env) lostOutput() error {
	o, ok := e.Out.(*checkedOutput)
	if !ok {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// lookup returns a variable of e's environment.
func (e *env) lookup(name string) (string, bool) { return jobenv.LookupIn(e.Environ)(name) }

func (e *env) get(name string) string {
	v, _ := e.lookup(name)
	return v
}

// log returns a logger for warnings and errors on standard error.
func (e *env) log() *slog.Logger {
	if e.reply != nil {
		return slog.New(sentences{to: e.Err})
	}
	return slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch {
			case a.Key == slog.TimeKey && len(groups) == 0:
				return slog.String(slog.TimeKey, a.Value.Time().Format("15:04:05"))
			case a.Value.Kind() == slog.KindString || a.Value.Kind() == slog.KindAny && a.Key != slog.LevelKey:
				return slog.String(a.Key, redact.Text(a.Value.String()))
			}
			return a
		},
	}))
}

func (e *env) dir() text.Dir { return text.Dir(e.Dir) }

func (e *env) abs(path string) string { return e.dir().Abs(path) }

func (e *env) short(path string) string { return e.dir().Short(path) }

// newTable returns a table on standard output. It has no colors if NO_COLOR is set (no-color.org), or on a terminal without colors.
func newTable(e *env, heading ...string) *text.Table {
	_, terminal := e.Terminal(e.Out)
	return text.NewTable(e.Out, terminal, e.get("NO_COLOR") == "" && e.get("TERM") != "dumb", heading...)
}
