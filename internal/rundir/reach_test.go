package rundir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReach(t *testing.T) {
	d := create1(t, t.TempDir(), "r")
	n, err := d.ClaimAttempt()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reach(n, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it was written: %v", err)
	}
	if err := d.RemoveReach(n, 3); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := d.WriteReach(n, 3, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Reach(n, 3); err != nil || string(got) != text {
			t.Errorf("read %q, %v", got, err)
		}
	}
	path := filepath.Join(d.Path(), "attempts", "1", "reach", "3.json")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), maxReach+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reach(n, 3); err == nil {
		t.Error("a file of any length is read")
	}
	if err := d.RemoveReach(n, 3); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := d.WriteReach(n+1, 3, nil); err == nil {
		t.Error("an attempt was made that nobody claimed")
	}
}
