package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"ddpbatch/internal/vfs"
)

// ClaimAfter is ClaimAttempt for who holds attempt n: it claims n+1, or returns ErrSuperseded where another has. As
// mkdir(2) decides that, an attempt that has been superseded unawares cannot supersede its successor.
func (d *Dir) ClaimAfter(n int) (int, error) {
	if err := d.Fence(n); err != nil {
		return 0, err
	}
	next := n + 1
	err := os.Mkdir(d.attemptPath(next), 0o700)
	switch {
	case errors.Is(err, os.ErrExist):
		return 0, fmt.Errorf("attempt %d: %w (%d)", n, ErrSuperseded, next)
	case err != nil:
		return 0, fmt.Errorf("claim attempt %d: %w", next, err)
	}
	if err := os.Mkdir(filepath.Join(d.attemptPath(next), logsName), 0o700); err != nil {
		return 0, fmt.Errorf("claim attempt %d: %w", next, err)
	}
	return next, vfs.OS{}.SyncDir(filepath.Join(d.path, attemptsName))
}
