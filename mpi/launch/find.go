package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// startError says why a worker cannot be started, with the code that a shell
// would exit with.
type startError struct {
	exit int
	err  error
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// findCommand finds the file of the workers' command, and checks where they
// are to run: exec would report a directory that is not there like a command
// that is not.
func (c AgentConfig) findCommand() (string, error) {
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err == nil && !info.IsDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return "", &startError{exitFailed, fmt.Errorf("the working directory %s cannot be used: %w", c.Dir, err)}
		}
	}
	return lookPath(c.Command[0], c.Dir, c.Env)
}

// lookPath finds a command as execvp(3) does, in the workers' own PATH rather
// than the agent's: the job may set another. Relative names count from dir,
// where the workers run.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return checkCommand(name, under(dir, name))
	}
	var found error
	for _, folder := range filepath.SplitList(valueOf(env, "PATH")) {
		path, err := checkCommand(name, under(dir, filepath.Join(folder, name)))
		if err == nil {
			return path, nil
		}
		var start *startError
		if errors.As(err, &start) && start.exit == exitNotExecutable && found == nil {
			found = err
		}
	}
	if found != nil {
		return "", found
	}
	return "", &startError{exitNotFound, fmt.Errorf("command %q is in no folder of the workers' PATH", name)}
}

// checkCommand tells whether path can be executed; name is what the user wrote.
func checkCommand(name, path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "", &startError{exitNotFound, fmt.Errorf("command %q is not there: %w", name, err)}
	case err != nil:
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q: %w", name, err)}
	case info.IsDir():
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q is a directory", name)}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", &startError{exitNotExecutable, fmt.Errorf("command %q is not executable (chmod +x %s): %w", name, path, err)}
	}
	return path, nil
}

// under is path as seen from dir; "" is the agent's own directory.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	// exec takes a name without a slash for one in PATH.
	abs, err := filepath.Abs(filepath.Join(dir, path))
	if err != nil {
		return path
	}
	return abs
}

// valueOf is the last value of a variable, as exec hands it on.
func valueOf(env []string, name string) string {
	var value string
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// hasName tells whether a variable is set at all.
func hasName(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// execError is what remains to go wrong when the file is there and executable.
func execError(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return &startError{exitNotFound, fmt.Errorf("command %q needs an interpreter or loader that is not there: %w", name, err)}
	case errors.Is(err, unix.ENOEXEC):
		return &startError{exitNotExecutable, fmt.Errorf("command %q is neither a program for this machine nor a script that begins with #!: %w", name, err)}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ETXTBSY):
		return &startError{exitNotExecutable, fmt.Errorf("command %q: %w", name, err)}
	}
	return &startError{exitFailed, fmt.Errorf("command %q: %w", name, err)}
}
