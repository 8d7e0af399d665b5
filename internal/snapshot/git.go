package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// A gitProgram calls git. A repository's own configuration must not make it run programs, because the repository may come from an archive
// that somebody unpacked.
type gitProgram struct {
	path    string
	environ []string
	options []string // further options before each command
}

// gitKept are the variables of git that are passed on. All others would select another repository than the directory's, or start programs.
var gitKept = []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES",
	"GIT_DISCOVERY_ACROSS_FILESYSTEM"}

func newGitProgram(path string, environ []string) *gitProgram {
	g := &gitProgram{path: path}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "GIT_") && name != "LC_ALL" || slices.Contains(gitKept, name) {
			g.environ = append(g.environ, entry)
		}
	}
	g.environ = append(g.environ, "LC_ALL=C",
		"GIT_OPTIONAL_LOCKS=0",       // git does not rewrite the index, which would run hooks
		"GIT_NO_LAZY_FETCH=1",        // from git 2.44 on; for older versions see the next line
		"GIT_ALLOW_PROTOCOL=nothing", // no program can fetch what a partial clone lacks
		"GIT_TERMINAL_PROMPT=0")
	return g
}

// gitSettings go before each command. They override other settings that name a program which these commands would start.
var gitSettings = []string{
	"--no-pager",
	"-c", "core.fsmonitor=", // empty: git before 2.36 would take "false" for a program
	"-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false", "-c", "core.quotePath=false",
}

// pipeDelay is how long a child of git may keep git's streams open after git has ended.
const pipeDelay = 2 * time.Second

// maxGitWords limits how many bytes of git's error message are kept.
const maxGitWords = 4 << 10

// run runs git in a directory, and passes its output to read. It returns a *gitError if git's exit code is not 0. If read fails, run ends
// git and returns that error.
func (g *gitProgram) run(ctx context.Context, dir string, read func(io.Reader) error, args ...string) error {
	// git must end with this process. The parent-death signal is sent when the thread ends that started it (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var words limitedBuffer
	cmd := exec.CommandContext(ctx, g.path, slices.Concat(gitSettings, g.options, args)...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = dir, g.environ, &words, pipeDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("run git: %w", err)
	}
	failed := read(out)
	if failed == nil {
		_, failed = io.Copy(io.Discard, out)
	}
	if failed != nil {
		stop()
	}
	err = cmd.Wait()
	if failed != nil {
		return failed
	}
	if exited, ok := errors.AsType[*exec.ExitError](err); ok && exited.Exited() {
		return &gitError{dir: dir, code: exited.ExitCode(), words: text.Clean(strings.TrimSpace(words.String()))}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("run git: %w", err)
	}
	return ctx.Err()
}

// gitError means that git ended with an exit code other than 0.
type gitError struct {
	dir   string
	code  int
	words string
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git says of %s: %s", e.dir, text.Shortened(e.words, 500))
}

// refused turns an error message of git into an error of the job file.
func refused(err error) error {
	if said, ok := errors.AsType[*gitError](err); ok {
		return &usage.Error{
			Message: fmt.Sprintf("code.snapshot = %q: %v", Git, said),
			Hint:    fmt.Sprintf("without git: code.snapshot = %q", Copy),
		}
	}
	return err
}

// line returns the one line that a command prints, which may hold any byte except NUL.
func (g *gitProgram) line(ctx context.Context, dir string, args ...string) (string, error) {
	const longest = 64 << 10
	var out []byte
	err := g.run(ctx, dir, func(r io.Reader) (err error) {
		out, err = io.ReadAll(io.LimitReader(r, longest))
		return err
	}, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// each calls f for each of the NUL-terminated texts that a command prints.
func (g *gitProgram) each(ctx context.Context, dir string, f func(string) error, args ...string) error {
	return g.run(ctx, dir, func(r io.Reader) error {
		scan := bufio.NewScanner(r)
		scan.Split(splitNUL)
		for scan.Scan() {
			if err := f(scan.Text()); err != nil {
				return err
			}
		}
		return scan.Err()
	}, args...)
}

func splitNUL(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// commit returns the ID of the commit that is checked out, or "" before the first.
func (g *gitProgram) commit(ctx context.Context, dir string) (string, error) {
	id, err := g.line(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if said, ok := errors.AsType[*gitError](err); ok && said.code == 1 {
		return "", nil
	}
	return id, err
}

// withoutFilters returns a gitProgram for calls that read files of the tree. Filters (gitattributes(5)) are programs that the configuration
// names, and each is disabled by its name. A file that a filter has changed then counts as changed.
func (g *gitProgram) withoutFilters(ctx context.Context, dir string) (*gitProgram, error) {
	safe := *g
	err := g.each(ctx, dir, func(key string) error {
		name := key[:max(0, strings.LastIndexByte(key, '.'))]
		if strings.Contains(name, "=") { // -c would take it for the end of the key
			return fmt.Errorf("git's configuration in %s has a filter with = in its name, which cannot be disabled: remove it", dir)
		}
		for _, off := range []string{".clean=", ".process=", ".smudge=", ".required=false"} {
			safe.options = append(safe.options, "-c", name+off)
		}
		return nil
	}, "config", "--null", "--name-only", "--get-regexp", `^filter\..*\.(clean|process)$`)
	if said, ok := errors.AsType[*gitError](err); ok && said.code == 1 { // there are no filters
		err = nil
	}
	return &safe, err
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxGitWords-b.Len()))])
	return len(p), nil
}
