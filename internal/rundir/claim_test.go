package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// claimed claims d, which is free.
func claimed(t *testing.T, d *Dir) *Claim {
	t.Helper()
	c, err := d.Claim("here", "resume", noon)
	must(t, err)
	return c
}

// heldBy writes a claim as a process on another machine, or a process that is gone, would have left it.
func heldBy(t *testing.T, d *Dir, n int, age time.Duration, change func(*Claimant)) {
	t.Helper()
	c := claimed(t, d)
	must(t, c.Release())
	other := c.own
	other.Done, other.Host, other.Nonce = false, "login2", "another"
	change(&other)
	must(t, os.RemoveAll(d.claimPath(c.n)))
	must(t, os.Mkdir(d.claimPath(n), 0o700))
	must(t, writeClaim(d.claimPath(n), other))
	at := time.Now().Add(-age)
	must(t, os.Chtimes(filepath.Join(d.claimPath(n), claimName), at, at))
}

// startOf returns field 22 of /proc/PID/stat (proc(5)).
func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	must(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	start, err := strconv.ParseUint(fields[19], 10, 64)
	must(t, err)
	return start
}

func TestClaimIsExclusive(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	element, err := d.Task(3)
	must(t, err)
	first := claimed(t, d)
	for _, other := range []*Dir{d, element} {
		_, err := other.Claim("here", "resume", noon)
		var held *HeldError
		if !errors.As(err, &held) || !held.Known || held.PID != os.Getpid() ||
			!strings.Contains(err.Error(), "on here, begun 2026-11-21 12:00:00; wait for its end") {
			t.Errorf("a second claim: %v", err)
		}
	}
	if who, is, err := d.Claimed(); err != nil || is {
		t.Errorf("claimed by another: %v, %t, %v", who, is, err)
	}
	must(t, first.Check())
	must(t, first.Release())
	if _, is, err := d.Claimed(); err != nil || is {
		t.Errorf("given back, and claimed %t, %v", is, err)
	}
	second := claimed(t, element)
	if second.n != first.n+1 || second.Dead != nil {
		t.Errorf("claim %d after %d; dead: %v", second.n, first.n, second.Dead)
	}
	must(t, second.Release())
	if names := listing(t, filepath.Join(d.path, claimsName)); len(names) != 2 {
		t.Errorf("left in claims: %q", names)
	}
}

// The error names a claimant that was killed, and its claim passes on. It passes on at once if its end can be known.
func TestClaimOfTheDeadPassesOn(t *testing.T) {
	gone := func(c *Claimant) { c.Start++ } // of an earlier process with this one's number
	elsewhere := func(c *Claimant) { c.Machine = "another" }
	parent := func(c *Claimant) { c.PID, c.Start = os.Getppid(), startOf(t, os.Getppid()) }
	for name, test := range map[string]struct {
		age    time.Duration
		change func(*Claimant)
		held   bool
	}{
		"killed here":                {0, gone, false},
		"of another machine, alive":  {claimExpiry / 2, elsewhere, true},
		"of another machine, silent": {claimExpiry + time.Minute, elsewhere, false},
		"alive here, and silent":     {claimExpiry + time.Minute, parent, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "x")
			heldBy(t, d, 7, test.age, test.change)
			who, is, err := d.Claimed()
			if err != nil || is && who.Host != "login2" || is != test.held {
				t.Errorf("claimed: %v, %t, %v", who, is, err)
			}
			c, err := d.Claim("here", "resume", noon)
			var held *HeldError
			switch {
			case test.held && (!errors.As(err, &held) || held.Host != "login2"):
				t.Errorf("claimed, or not known who has it: %v", err)
			case !test.held && (err != nil || c.n != 8 || c.Dead == nil || c.Dead.Host != "login2"):
				t.Errorf("%+v, %v", c, err)
			}
			if c != nil {
				must(t, c.Release())
			}
		})
	}
}

// A claim that is not JSON holds until it lapses.
func TestUnreadableClaimHoldsUntilItLapses(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	heldBy(t, d, 1, 0, func(*Claimant) {})
	file := filepath.Join(d.claimPath(1), claimName)
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	if _, err := d.Claim("here", "resume", noon); !errors.As(err, new(*HeldError)) {
		t.Errorf("a fresh one: %v", err)
	}
	old := time.Now().Add(-claimExpiry - time.Minute)
	must(t, os.Chtimes(file, old, old))
	must(t, claimed(t, d).Release())
	must(t, os.Remove(file)) // as a person may do
	must(t, claimed(t, d).Release())
}

// A process that stood still for so long that it was taken for dead notices that it lost its claim.
func TestLapsedClaimIsLost(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	first := claimed(t, d)
	lost := first.own
	lost.Machine = "another"
	must(t, writeClaim(d.claimPath(first.n), lost))
	old := time.Now().Add(-claimExpiry - time.Minute)
	must(t, os.Chtimes(filepath.Join(d.claimPath(first.n), claimName), old, old))
	second := claimed(t, d)
	if err := first.Check(); !errors.Is(err, ErrClaimLost) || !strings.Contains(err.Error(), "resume by process") {
		t.Errorf("the first: %v", err)
	}
	must(t, second.Check())
	must(t, errors.Join(first.Release(), second.Release()))
	if _, is, _ := d.Claimed(); is {
		t.Error("it is claimed still")
	}
}

// A file server that got a request twice answers that the name is taken. The claimant recognizes the name as its own claim.
func TestRepeatedClaimIsKnownAsItsOwn(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	c := claimed(t, d)
	if taken, err := c.put(filepath.Join(d.path, claimsName, ".gone"), c.n); !taken || err != nil {
		t.Errorf("its own claim: %t, %v", taken, err)
	}
	stranger := &Claim{d: c.d, own: c.own}
	stranger.own.Nonce = "another"
	temp := filepath.Join(d.path, claimsName, ".new-1")
	must(t, os.Mkdir(temp, 0o700))
	must(t, writeClaim(temp, stranger.own))
	if taken, err := stranger.put(temp, c.n); taken || err != nil {
		t.Errorf("another's claim: %t, %v", taken, err)
	}
	if taken, err := stranger.put(filepath.Join(d.path, claimsName, ".gone"), c.n+1); taken || err == nil {
		t.Errorf("a folder that is gone: %t, %v", taken, err)
	}
	must(t, c.Release())
}

// If many processes claim at the same time, each of them holds the claim alone.
func TestClaimsAtOnceAreHeldInTurn(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	var have, had atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				c, err := d.Claim("here", "resume", noon)
				if errors.As(err, new(*HeldError)) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if have.Add(1) != 1 {
					t.Error("two have it")
				}
				had.Add(1)
				have.Add(-1)
				if err := c.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if had.Load() == 0 {
		t.Error("nobody had it")
	}
}
