package rundir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"

	"ddpbatch/internal/vfs"
)

// ErrSuperseded: a newer attempt of this run has begun. The older one commits
// nothing, deletes nothing, and exits 93.
var ErrSuperseded = errors.New("superseded by a newer attempt")

const (
	maxAttempt  = 999_999_999
	claimPrefix = "claim-" // begins the name of the folder by which who has claimed an attempt knows it
)

var numberName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,8}$`) })

// ClaimAttempt makes attempts/<n> with its logs folder for the next n, from 1
// on, and returns n. Of several processes that claim at once, each gets another
// number: rename(2) tells exactly one of them that it gave the folder its name.
func (d *Dir) ClaimAttempt() (int, error) {
	n, err := d.claim()
	if err != nil {
		return 0, fmt.Errorf("claim an attempt of %s: %w", d.path, err)
	}
	return n, nil
}

func (d *Dir) claim() (int, error) {
	const tries = 1000
	c, err := d.newAttemptClaim()
	if err != nil {
		return 0, err
	}
	defer c.discard()
	n := 0
	for range tries {
		newest, err := d.NewestAttempt()
		if err != nil {
			return 0, err
		}
		// a number that was found taken is passed over: a network file system may list it late
		n = max(n, newest) + 1
		if n > maxAttempt {
			return 0, fmt.Errorf("attempt %d is the last that there can be", maxAttempt)
		}
		if taken, err := c.take(n); taken || err != nil {
			return n, err
		}
	}
	return 0, fmt.Errorf("others took %d numbers in a row", tries)
}

// NewestAttempt is the highest attempt that was claimed, 0 where none was.
// Names that are no attempt's are ignored.
func (d *Dir) NewestAttempt() (int, error) {
	newest, err := newestNumber(filepath.Join(d.path, attemptsName))
	if err != nil {
		return 0, fmt.Errorf("look for attempts: %w", err)
	}
	return newest, nil
}

// newestNumber is the highest number that a name in a folder is, 0 where none is. A file of such a name would make mkdir
// fail for ever: it counts, too.
func newestNumber(folder string) (int, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	newest := 0
	for _, entry := range entries {
		if !numberName().MatchString(entry.Name()) {
			continue
		}
		if n, err := strconv.Atoi(entry.Name()); err == nil {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// Fence returns ErrSuperseded where an attempt above n exists.
func (d *Dir) Fence(n int) error {
	newest, err := d.NewestAttempt()
	if err != nil {
		return err
	}
	if newest > n {
		return fmt.Errorf("attempt %d: %w (%d)", n, ErrSuperseded, newest)
	}
	return nil
}

func (d *Dir) attemptPath(n int) string {
	return filepath.Join(d.path, attemptsName, strconv.Itoa(n))
}

// StopPath is the file whose being there asks the workers of an attempt to
// stop. It belongs to the attempt, so that the next one does not find it.
func (d *Dir) StopPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), "stop") }

// SignalPath is the file by which the batch script says that Slurm has warned it. It lies beside the stop file, as the script knows that.
func (d *Dir) SignalPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), "signal") }

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
	nonce := claimPrefix + rand.Text()
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
	path := c.d.attemptPath(n)
	return c.d.takeNumber(c.temp, path, func() error {
		_, err := c.d.system().Stat(filepath.Join(path, c.nonce))
		return err
	})
}

// takeNumber renames the folder temp to path, which ends in a number; it returns false where another process has that number. own looks
// whose path is: nil means this process's, fs.ErrNotExist and ENOTDIR mean another's.
func (d *Dir) takeNumber(temp, path string, own func() error) (bool, error) {
	if err := d.system().Rename(temp, path); err != nil {
		look := own()
		others := errors.Is(look, fs.ErrNotExist) || errors.Is(look, syscall.ENOTDIR)
		switch {
		case look == nil: // the answer of a file server was lost
		case others && (errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR)): // a folder, or a file of that name
			return false, nil
		case others:
			return false, err
		default: // whose it is cannot be seen
			return false, errors.Join(err, look)
		}
	}
	return true, d.system().SyncDir(filepath.Dir(path))
}

// discard removes what has not got a number.
func (c *attemptClaim) discard() { _ = os.RemoveAll(c.temp) } // what stays is no attempt, and hinders none

// maxReach is far more than an agent writes.
const maxReach = 64 << 10

// WriteReach replaces attempts/<n>/reach/<agent>.json: what an agent leaves for the others. Agent 0 leaves the port that it listens at. Any
// other agent leaves what it has tried so far to reach agent 0, which reports that if the agent never comes.
func (d *Dir) WriteReach(attempt, agent int, data []byte) error {
	path := d.reachPath(attempt, agent)
	err := os.Mkdir(filepath.Dir(path), 0o700)
	if err == nil || errors.Is(err, os.ErrExist) {
		err = writeBytes(path, 0o600, data)
	}
	if err != nil {
		return fmt.Errorf("write what agent %d leaves for the others: %w", agent, err)
	}
	return nil
}

// Reach reads what an agent wrote. An error that is fs.ErrNotExist means that it wrote nothing (yet).
func (d *Dir) Reach(attempt, agent int) ([]byte, error) {
	data, err := readFile(d.reachPath(attempt, agent), maxReach)
	if err != nil {
		return nil, fmt.Errorf("read what agent %d has left: %w", agent, err)
	}
	return data, nil
}

// RemoveReach removes what an agent wrote, which has got through.
func (d *Dir) RemoveReach(attempt, agent int) error {
	return ignoreGone(os.Remove(d.reachPath(attempt, agent)))
}

func (d *Dir) reachPath(attempt, agent int) string {
	return filepath.Join(d.attemptPath(attempt), "reach", fmt.Sprintf("%d.json", agent))
}
