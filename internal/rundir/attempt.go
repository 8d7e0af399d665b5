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

// ErrSuperseded means that a newer attempt of this run has begun. The older attempt must not commit or delete anything, and exits with 93.
var ErrSuperseded = errors.New("superseded by a newer attempt")

const (
	maxAttempt  = 999_999_999
	claimPrefix = "claim-" // begins the name of the directory by which a claimant recognizes its attempt
)

var numberName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,8}$`) })

// ClaimAttempt creates attempts/<n> with its logs directory for the next free n, from 1 on, and returns n. If several processes claim at
// once, each gets another number, because rename(2) succeeds for only one of them.
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
		// skip a number that was found taken: a network file system may list it late
		n = max(n, newest) + 1
		if n > maxAttempt {
			return 0, fmt.Errorf("attempt %d is the last possible one", maxAttempt)
		}
		if taken, err := c.take(n); taken || err != nil {
			return n, err
		}
	}
	return 0, fmt.Errorf("other processes took %d numbers in a row", tries)
}

// NewestAttempt returns the highest attempt that was claimed, or 0 if there is none. It ignores other names.
func (d *Dir) NewestAttempt() (int, error) {
	newest, err := newestNumber(filepath.Join(d.path, attemptsName))
	if err != nil {
		return 0, fmt.Errorf("look for attempts: %w", err)
	}
	return newest, nil
}

// newestNumber returns the highest number among the names in a directory, or 0 if there is none. Files count too: they would make mkdir
// fail forever.
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

// Fence returns ErrSuperseded if an attempt above n exists.
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

// StopPath returns the file whose existence asks the workers of an attempt to stop. It belongs to the attempt, so that the next one does
// not find it.
func (d *Dir) StopPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), "stop") }

// SignalPath returns the file by which the batch script says that Slurm has warned it. It is next to the stop file, whose path the script
// knows.
func (d *Dir) SignalPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), "signal") }

// ClaimAfter is ClaimAttempt for the holder of attempt n: it claims n+1, or returns ErrSuperseded if another process has done so. Because
// rename(2) decides that, an attempt that does not know that it was superseded cannot supersede its successor.
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

// attemptClaim is the directory of an attempt before it has its number. It holds a nonce by which its creator recognizes it: if the reply
// of a file server is lost, the repeated request fails because the name is taken, by the caller itself.
type attemptClaim struct {
	d     *Dir
	temp  string
	nonce string // the name of an empty directory in it
}

func (d *Dir) newAttemptClaim() (*attemptClaim, error) {
	nonce := claimPrefix + rand.Text()
	c := &attemptClaim{d: d, temp: filepath.Join(d.path, attemptsName, "."+nonce), nonce: nonce}
	for _, name := range []string{"", logsName, nonce} {
		err := vfs.PrivateDir(d.system(), filepath.Join(c.temp, name))
		if err != nil && !errors.Is(err, fs.ErrExist) { // no other process uses such a name
			c.discard()
			return nil, err
		}
	}
	return c, nil
}

// take renames the directory to attempt n. It returns false if another process has that number.
func (c *attemptClaim) take(n int) (bool, error) {
	path := c.d.attemptPath(n)
	return c.d.takeNumber(c.temp, path, func() error {
		_, err := c.d.system().Stat(filepath.Join(path, c.nonce))
		return err
	})
}

// takeNumber renames the directory temp to path, which ends in a number. It returns false if another process has that number. own finds out
// whose path is: nil means this process's, fs.ErrNotExist and ENOTDIR mean another's.
func (d *Dir) takeNumber(temp, path string, own func() error) (bool, error) {
	if err := d.system().Rename(temp, path); err != nil {
		look := own()
		others := errors.Is(look, fs.ErrNotExist) || errors.Is(look, syscall.ENOTDIR)
		switch {
		case look == nil: // the reply of a file server was lost
		case others && (errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR)): // a directory or a file of that name
			return false, nil
		case others:
			return false, err
		default: // whose it is cannot be determined
			return false, errors.Join(err, look)
		}
	}
	return true, d.system().SyncDir(filepath.Dir(path))
}

// discard removes a directory that has not got a number.
func (c *attemptClaim) discard() { _ = os.RemoveAll(c.temp) } // what remains is not an attempt and does no harm

// maxReach is far more than an agent writes.
const maxReach = 64 << 10

// WriteReach replaces attempts/<n>/reach/<agent>.json, which an agent leaves for the others. Agent 0 writes the port that it listens on.
// Any other agent writes its attempts to reach agent 0, which reports them if the agent never connects.
func (d *Dir) WriteReach(attempt, agent int, data []byte) error {
	path := d.reachPath(attempt, agent)
	err := os.Mkdir(filepath.Dir(path), 0o700)
	if err == nil || errors.Is(err, os.ErrExist) {
		err = writeBytes(path, 0o600, data)
	}
	if err != nil {
		return fmt.Errorf("write how agent %d can be reached: %w", agent, err)
	}
	return nil
}

// Reach reads what an agent wrote. The error is fs.ErrNotExist if it has written nothing (yet).
func (d *Dir) Reach(attempt, agent int) ([]byte, error) {
	data, err := readFile(d.reachPath(attempt, agent), maxReach)
	if err != nil {
		return nil, fmt.Errorf("read how agent %d can be reached: %w", agent, err)
	}
	return data, nil
}

// RemoveReach removes what an agent wrote, after the agent has connected.
func (d *Dir) RemoveReach(attempt, agent int) error {
	return ignoreGone(os.Remove(d.reachPath(attempt, agent)))
}

func (d *Dir) reachPath(attempt, agent int) string {
	return filepath.Join(d.attemptPath(attempt), "reach", fmt.Sprintf("%d.json", agent))
}
