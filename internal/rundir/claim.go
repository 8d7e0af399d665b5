package rundir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/vfs"
)

const (
	claimsName = "claims"
	claimName  = "claim.json"
	maxClaim   = 4 << 10 // bytes

	claimHeartbeat = 10 * time.Second // how often who holds a claim shows that it lives
	claimExpiry    = 2 * time.Minute  // a claimant of another machine that has not done so for so long is dead
)

// Claimant is the process that may submit a run, or remove it: claims/<n>/claim.json.
type Claimant struct {
	proc.Identity
	Host  string    `json:"host"`
	Doing string    `json:"doing"` // "submit", "resume" or "clean"
	Since time.Time `json:"since"`
	Nonce string    `json:"nonce"`
	Done  bool      `json:"done"`
}

func (c Claimant) String() string {
	return fmt.Sprintf("%s by process %d on %s, begun %s", c.Doing, c.PID, c.Host, c.Since.Format("2006-01-02 15:04:05"))
}

// HeldError: another process has the claim: it is about to submit the run, or to remove it.
type HeldError struct {
	Claimant
	Known bool // the process lives on this machine; else it was alive within the last two minutes
}

func (e *HeldError) Error() string {
	text := "another command has claimed this run: " + e.Claimant.String()
	if e.Known {
		return text + "; wait for its end"
	}
	return fmt.Sprintf("%s; wait for its end; if it was killed, its claim lapses within %v", text, claimExpiry)
}

// Claim is the right to submit a run, or to remove it. Of all processes that share the file system one has it: from before it checks that
// no job of the run goes on, until it has recorded the new job's id.
type Claim struct {
	Dead *Claimant // who had it before and was killed; nil: nobody

	d         *Dir
	n         int
	own       Claimant
	stop      chan struct{}
	heartbeat sync.WaitGroup
}

// Claim takes the claim of the run that d is, or belongs to; a [*HeldError] tells who has it. Locks of the file system would not do: on
// many clusters they hold on one machine alone. So claims are numbered folders, of which the highest counts. Each is put together under
// another name and renamed into place, which fails where there is one already, on NFS, too. None is removed, as a number must not come
// twice.
func (d *Dir) Claim(host, doing string, now time.Time) (*Claim, error) {
	own := Claimant{Host: host, Doing: doing, Since: now, Nonce: rand.Text()}
	var err error
	if own.Identity, err = proc.Self(); err != nil {
		return nil, fmt.Errorf("claim the run: %w", err)
	}
	c := &Claim{d: d.Whole(), own: own, stop: make(chan struct{})}
	if err := c.take(); err != nil {
		if held, ok := errors.AsType[*HeldError](err); ok {
			return nil, held
		}
		return nil, fmt.Errorf("claim the run %s: %w", d.Whole().path, err)
	}
	c.heartbeat.Go(c.sendHeartbeats)
	return c, nil
}

// take puts this claimant behind the newest claim, where that is not held any more.
func (c *Claim) take() error {
	claims := filepath.Join(c.d.path, claimsName)
	temp := filepath.Join(claims, ".new-"+c.own.Nonce)
	for _, path := range []string{claims, temp} { // that the run's owner has opened claims to others is no fault
		if err := vfs.PrivateDir(c.d.system(), path); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, vfs.ErrExposed) {
			return err
		}
	}
	defer os.RemoveAll(temp) // where it has got its name, there is nothing left of it
	newest, err := c.d.newestClaim()
	if err != nil {
		return err
	}
	for c.n = newest; ; c.n++ {
		// The file is written again each time: its time is the file server's own, with which that of the newest claim is compared.
		if err := writeClaim(temp, c.own); err != nil {
			return err
		}
		if err := c.d.checkFree(c.n, temp, &c.Dead); err != nil {
			return err
		}
		if taken, err := c.put(temp, c.n+1); taken || err != nil {
			c.n++
			return err
		}
	}
}

// put gives the folder temp the number n; false where that is taken.
func (c *Claim) put(temp string, n int) (bool, error) {
	return c.d.takeNumber(temp, c.d.claimPath(n), func() error {
		there, info, err := c.d.claimant(n)
		if info != nil && there.Nonce != c.own.Nonce { // also where it is no JSON
			return fs.ErrNotExist
		}
		return err
	})
}

// checkFree returns a HeldError where claim n is held. dead gets who was killed while it held it.
func (d *Dir) checkFree(n int, temp string, dead **Claimant) error {
	if n == 0 {
		return nil
	}
	there, info, err := d.claimant(n)
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed by a person
		return nil
	case err != nil && info == nil:
		return err
	case there.Done:
		*dead = nil
		return nil
	}
	lives, known := there.Lives()
	if !known {
		own, err := os.Stat(filepath.Join(temp, claimName))
		if err != nil {
			return err
		}
		lives = own.ModTime().Sub(info.ModTime()) < claimExpiry
	}
	if lives {
		return &HeldError{Claimant: there, Known: known}
	}
	*dead = &there
	return nil
}

// ErrClaimLost: a process stood still for so long that another took it for dead, and has the claim now.
var ErrClaimLost = errors.New("another command has claimed the run")

// Check returns [ErrClaimLost] where the claim is lost, and another error where that cannot be told.
func (c *Claim) Check() error {
	newest, err := c.d.newestClaim()
	if err != nil {
		return fmt.Errorf("look whether the run is still claimed: %w", err)
	}
	if newest > c.n {
		other, _, err := c.d.claimant(newest)
		if err != nil {
			return fmt.Errorf("this process stood still, and %w: look which: %w", ErrClaimLost, err)
		}
		return fmt.Errorf("this process stood still, and %w: %s", ErrClaimLost, other)
	}
	return nil
}

// Release gives the claim back. A run that was discarded meanwhile is no error.
func (c *Claim) Release() error {
	close(c.stop)
	c.heartbeat.Wait()
	c.own.Done = true
	if err := ignoreGone(writeClaim(c.d.claimPath(c.n), c.own)); err != nil {
		return fmt.Errorf("give back the claim of the run: %w", err)
	}
	return nil
}

// sendHeartbeats keeps the claim's time new, by the file server's clock.
func (c *Claim) sendHeartbeats() {
	beat := time.NewTicker(claimHeartbeat)
	defer beat.Stop()
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	path := filepath.Join(c.d.claimPath(c.n), claimName)
	for {
		select {
		case <-c.stop:
			return
		case <-beat.C:
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, now, 0) // the next one may succeed
		}
	}
}

// Claimed tells which other process has the claim now; false: none has.
func (d *Dir) Claimed() (Claimant, bool, error) {
	n, err := d.Whole().newestClaim()
	if err != nil || n == 0 {
		return Claimant{}, false, err
	}
	there, info, err := d.Whole().claimant(n)
	if err != nil || there.Done {
		return Claimant{}, false, ignoreGone(err)
	}
	if own, err := proc.Self(); err == nil && there.Identity == own {
		return Claimant{}, false, nil
	}
	lives, known := there.Lives()
	if !known {
		lives = time.Since(info.ModTime()) < claimExpiry+clockError // by this machine's clock: who only looks may not be allowed to write
	}
	return there, lives, nil
}

// newestClaim is the highest number of a claim; 0: there is none.
func (d *Dir) newestClaim() (int, error) {
	newest, err := newestNumber(filepath.Join(d.path, claimsName))
	return newest, ignoreGone(err)
}

// claimant reads claim n. Of one that is no JSON nothing is known but its time, beside the error.
func (d *Dir) claimant(n int) (Claimant, fs.FileInfo, error) {
	path := filepath.Join(d.claimPath(n), claimName)
	data, err := readFile(path, maxClaim)
	if err != nil {
		return Claimant{}, nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Claimant{}, nil, err
	}
	var c Claimant
	if err := json.Unmarshal(data, &c); err != nil {
		return Claimant{Doing: "a command", Host: "a host that is not known", Since: info.ModTime()}, info, fmt.Errorf("%s: %w", path, err)
	}
	return c, info, nil
}

func (d *Dir) claimPath(n int) string { return filepath.Join(d.path, claimsName, strconv.Itoa(n)) }

func writeClaim(folder string, c Claimant) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(folder, claimName), 0o600, append(data, '\n'))
}
