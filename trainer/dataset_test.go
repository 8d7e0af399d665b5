package trainer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// If the ranks are asked to stop while another process holds the lock of the data cache, they end without a step, even though only one of
// them waits for the lock. A later run trains once the lock is free.
func TestStopEndsTheWaitForData(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "table.csv")
	if err := os.WriteFile(table, []byte(strings.Repeat("1,0\n2,1\n", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Model.Hidden = 1, 4, []int{3}
	cfg.Data.Kind, cfg.Data.Path, cfg.Data.Cache = "csv", table, filepath.Join(dir, "cache")
	first := mustTrain(t, 2, cfg, nil)
	if first[0].Steps == 0 {
		t.Fatalf("the ranks have taken no step: %+v", first[0].Result)
	}

	found, err := filepath.Glob(filepath.Join(cfg.Data.Cache, "*.data"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the cache holds %q, error %v", found, err)
	}
	lock := found[0] + ".lock"
	held, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(found[0]); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	ended := make(chan []*rank)
	go func() {
		ended <- train(t, 2, cfg, func(rank int, cfg *Config, env *Env) {
			env.Stop = stop
			if rank == 1 {
				cfg.Data.Cache = ""
			}
		})
	}()
	testkit.Eventually(t, "rank 0 waits for the lock", func() bool { return opened(t, lock) == 2 })
	close(stop)
	for _, r := range <-ended {
		if r.err != nil || !r.Stopped || r.Steps != 0 {
			t.Errorf("ended with %+v, error %v", r.Result, r.err)
		}
	}

	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if again := mustTrain(t, 2, cfg, nil); again[0].Result != first[0].Result {
		t.Errorf("ended with %+v, and before with %+v", again[0].Result, first[0].Result)
	}
}

// The error about a data cache that others can write to says which key of the job names the cache.
func TestExposedCacheIsNamed(t *testing.T) {
	dir := t.TempDir()
	table, cache := filepath.Join(dir, "table.csv"), filepath.Join(dir, "cache")
	err := errors.Join(os.WriteFile(table, []byte("1,0\n2,1\n"), 0o600), os.Mkdir(cache, 0o700), os.Chmod(cache, 0o777))
	for _, above := range []string{dir, filepath.Dir(dir)} {
		err = errors.Join(err, os.Chmod(above, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Data.Kind, cfg.Data.Path, cfg.Data.Cache = "csv", "table.csv", "cache"
	_, _, err = openData(t.Context(), cfg, dir, nil)
	if !errors.Is(err, vfs.ErrExposed) || !strings.Contains(err.Error(), "data.cache names the folder") {
		t.Errorf("error %v", err)
	}
}

// opened returns how many of this process's open files are the file at path.
func opened(t *testing.T, path string) int {
	t.Helper()
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		t.Skipf("needs /proc to see who waits for a lock: %v", err)
	}
	return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		to, err := os.Readlink(filepath.Join(open, e.Name()))
		return err != nil || to != path
	}))
}
