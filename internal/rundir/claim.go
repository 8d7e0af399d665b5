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

	claimHeartbeat = 10 * time.Second // how often the holder of a claim shows that it is alive
	claimExpiry    = 2 * time.Minute  // a claimant on another machine is dead if it has not done so for this long
)

// Claimant is the process that may submit or remove a run: claims/<n>/claim.json.
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

// HeldError means that another process has the claim, because it is about to submit or remove the run.
type HeldError struct {
	Claimant
	Known bool // the process lives on this machine; if false, it was alive within the last two minutes
}

func (e *HeldError) Error() string {
	text := "another command has claimed this run: " + e.Claimant.String()
	if e.Known {
		return text + "; wait for its end"
	}
	return fmt.Sprintf("%s; wait for its end; if it was killed, its claim lapses within %v", text, claimExpiry)
}

// Claim is the right to submit or remove a run. Of all processes that share the file system only one has it: from before it checks that no
// job of the run is left, until it has recorded the new job's ID.
type Claim struct {
	Dead *Claimant // the previous holder, if it was killed; otherwise nil

	d         *Dir
	n         int
	own       Claimant
	stop      chan struct{}
	heartbeat sync.WaitGroup
}

// Claim takes the claim of the run that d is or belongs to. If another process has it, the error is a [*HeldError]. File locks are not used
// because on many clusters they work only within one machine. Instead, claims are numbered directories, of which the highest counts. Each
// is created under another name and renamed, which fails if the number exists, also on NFS. Claims are never removed, because a number must
// not be used twice.
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

// take puts this claim after the newest one, if that is no longer held.
func (c *Claim) take() error {
	claims := filepath.Join(c.d.path, claimsName)
	temp := filepath.Join(claims, ".new-"+c.own.Nonce)
	for _, path := range []string{claims, temp} { // the run's owner may have made claims accessible to others
		if err := vfs.PrivateDir(c.d.system(), path); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, vfs.ErrExposed) {
			return err
		}
	}
	defer os.RemoveAll(temp) // nothing is left of it if it was renamed
	newest, err := c.d.newestClaim()
	if err != nil {
		return err
	}
	for c.n = newest; ; c.n++ {
		// Write the file again each time: its time, by the file server's clock, is compared with that of the newest claim.
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

// put renames the directory temp to claim n. It returns false if that number is taken.
func (c *Claim) put(temp string, n int) (bool, error) {
	return c.d.takeNumber(temp, c.d.claimPath(n), func() error {
		there, info, err := c.d.claimant(n)
		if info != nil && there.Nonce != c.own.Nonce { // also if it is not JSON
			return fs.ErrNotExist
		}
		return err
	})
}

// checkFree returns a HeldError if claim n is held. If its holder was killed, dead is set to the holder.
func (d *Dir) checkFree(n int, temp string, dead **Claimant) error {
	if n == 0 {
		return nil
	}
	there, info, err := d.claimant(n)
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed by hand
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

// ErrClaimLost means that this process was stopped for so long that another process considered it dead and took the claim.
var ErrClaimLost = errors.New("another command has claimed the run")

// Check returns [ErrClaimLost] if the claim is lost, and another error if that cannot be determined.
func (c *Claim) Check() error {
	newest, err := c.d.newestClaim()
	if err != nil {
		return fmt.Errorf("check the claim of the run: %w", err)
	}
	if newest > c.n {
		other, _, err := c.d.claimant(newest)
		if err != nil {
			return fmt.Errorf("this process was stopped too long, and %w: read its claim: %w", ErrClaimLost, err)
		}
		return fmt.Errorf("this process was stopped too long, and %w: %s", ErrClaimLost, other)
	}
	return nil
}

// Release releases the claim. It is not an error if the run has been discarded meanwhile.
func (c *Claim) Release() error {
	close(c.stop)
	c.heartbeat.Wait()
	c.own.Done = true
	if err := ignoreGone(writeClaim(c.d.claimPath(c.n), c.own)); err != nil {
		return fmt.Errorf("release the claim of the run: %w", err)
	}
	return nil
}

// sendHeartbeats keeps the claim's time current, by the file server's clock.
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

// Claimed returns the other process that has the claim now; false if there is none.
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
		lives = time.Since(info.ModTime()) < claimExpiry+clockError // by this machine's clock: readers may not write
	}
	return there, lives, nil
}

// newestClaim returns the highest number of a claim, or 0 if there is none.
func (d *Dir) newestClaim() (int, error) {
	newest, err := newestNumber(filepath.Join(d.path, claimsName))
	return newest, ignoreGone(err)
}

// claimant reads claim n. If it is not valid JSON, the result has only the claim's time, and there is an error.
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
		return Claimant{Doing: "a command", Host: "an unknown host", Since: info.ModTime()}, info, fmt.Errorf("%s: %w", path, err)
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
