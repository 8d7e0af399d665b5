package rundir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ddpbatch/internal/vfs"
)

// ClaimAfter is ClaimAttempt for who holds attempt n: it claims n+1, or returns ErrSuperseded where another has. As
// rename(2) decides that, an attempt that has been superseded unawares cannot supersede its successor.
func (d *Dir) ClaimAfter(n int) (int, error) {
	if err := d.Fence(n); err != nil {
		return 0, err
	}
	next := n + 1
	c, err := d.newAttemptClaim()
	if err != nil {
		return 0, fmt.Errorf("claim attempt %d: %w", next, err)
	}
	defer c.discard()
	switch taken, err := c.take(next); {
	case err != nil:
		return 0, fmt.Errorf("claim attempt %d: %w", next, err)
	case !taken:
		return 0, fmt.Errorf("attempt %d: %w (%d)", n, ErrSuperseded, next)
	}
	return next, nil
}

// attemptClaim is the folder of an attempt before it has its number. In it is a nonce by which who made it knows it: the answer of a file
// server may get lost, and the request that is sent again is then told that the name is taken, by oneself.
type attemptClaim struct {
	d     *Dir
	temp  string
	nonce string // the name of an empty folder in it
}

func (d *Dir) newAttemptClaim() (*attemptClaim, error) {
	nonce := "claim-" + rand.Text()
	c := &attemptClaim{d: d, temp: filepath.Join(d.path, attemptsName, "."+nonce), nonce: nonce}
	for _, name := range []string{"", logsName, nonce} {
		err := vfs.PrivateDir(d.system(), filepath.Join(c.temp, name))
		if err != nil && !errors.Is(err, fs.ErrExist) { // nobody else makes one of such a name
			c.discard()
			return nil, err
		}
	}
	return c, nil
}

// take makes the folder attempt n; false where another has that number.
func (c *attemptClaim) take(n int) (bool, error) {
	system, path := c.d.system(), c.d.attemptPath(n)
	if err := system.Rename(c.temp, path); err != nil {
		_, look := system.Stat(filepath.Join(path, c.nonce))
		missing := errors.Is(look, fs.ErrNotExist) || errors.Is(look, syscall.ENOTDIR)
		switch {
		case look == nil: // it is this claim's own
		case missing && (errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR)): // a folder, or a file of that name
			return false, nil
		case missing:
			return false, err
		default: // whose it is cannot be seen
			return false, errors.Join(err, look)
		}
	}
	return true, system.SyncDir(filepath.Dir(path))
}

// discard removes what has not got a number.
func (c *attemptClaim) discard() { _ = os.RemoveAll(c.temp) } // what stays is no attempt, and hinders none

// system is the file system that attempts are claimed in.
func (d *Dir) system() vfs.FS {
	if d.files != nil {
		return d.files
	}
	return vfs.OS{}
}
