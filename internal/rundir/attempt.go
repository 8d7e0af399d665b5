package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// ErrSuperseded: a newer attempt of this run has begun. The older one commits
// nothing, deletes nothing, and exits 93.
var ErrSuperseded = errors.New("superseded by a newer attempt")

const maxAttempt = 999_999_999

var attemptName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,8}$`) })

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
	entries, err := os.ReadDir(filepath.Join(d.path, attemptsName))
	if err != nil {
		return 0, fmt.Errorf("look for attempts: %w", err)
	}
	newest := 0
	for _, e := range entries {
		// A file of such a name would make mkdir fail for ever: it counts too.
		if !attemptName().MatchString(e.Name()) {
			continue
		}
		if n, err := strconv.Atoi(e.Name()); err == nil {
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

// LogsPath is the folder of an attempt's logs.
func (d *Dir) LogsPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), logsName) }

// LogPath is the file that holds what one rank wrote in an attempt; stream is
// "out" or "err". Host names come from Slurm's configuration and from users, so
// whatever could leave the folder or hide the file is replaced by _.
func (d *Dir) LogPath(attempt int, host string, rank int, stream string) string {
	name := fmt.Sprintf("%s.%d.%s", fileName(host), rank, fileName(stream))
	return filepath.Join(d.LogsPath(attempt), name)
}

// StopPath is the file whose being there asks the workers of an attempt to
// stop. It belongs to the attempt, so that the next one does not find it.
func (d *Dir) StopPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), "stop") }

func fileName(s string) string {
	const longest = 128 // of the 255 bytes that a name may have (NAME_MAX)
	if len(s) > longest {
		s = s[:longest]
	}
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, s)
	safe = strings.ReplaceAll(safe, "..", "__")
	if rest, dot := strings.CutSuffix(safe, "."); dot { // the dot after it would make two
		safe = rest + "_"
	}
	if safe == "" || safe[0] == '.' {
		safe = "_" + safe
	}
	return safe
}
