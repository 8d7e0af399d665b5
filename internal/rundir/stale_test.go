package rundir

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestFresh: a file that was replaced while it was read is read again, a few times, and nothing else is.
func TestFresh(t *testing.T) {
	stale := fmt.Errorf("read f: %w", &os.PathError{Op: "read", Path: "f", Err: syscall.ESTALE})
	for name, test := range map[string]struct {
		errs  []error // of one try after the other; the last one again and again
		tries int
	}{
		"at once":     {[]error{nil}, 1},
		"replaced":    {[]error{stale, stale, nil}, 3},
		"gone":        {[]error{stale, os.ErrNotExist}, 2},
		"a bad disk":  {[]error{syscall.EIO}, 1},
		"always gone": {[]error{stale}, staleTries},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				want := test.errs[min(test.tries, len(test.errs))-1]
				got, err := fresh(func() (int, error) {
					tries++
					return tries, test.errs[min(tries, len(test.errs))-1]
				})
				if tries != test.tries || got != test.tries || err != want {
					t.Errorf("after %d tries: %d, %v; want %d tries and %v", tries, got, err, test.tries, want)
				}
			})
		})
	}
}
