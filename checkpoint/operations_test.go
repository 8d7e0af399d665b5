package checkpoint

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/oplog.txt")

// TestOperationsComeInTheReviewedOrder compares the file operations of saves with testdata/oplog.txt. That file was reviewed by hand
// against the order that the package documentation promises, so a diff shows any change of the order. It leaves out operations that only
// read, except the length check.
func TestOperationsComeInTheReviewedOrder(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	in := vfstest.NewInjector(m, nil)
	d := openDir(t, Options{FS: in, Codec: "none", Keep: Policy{Last: 2}, Run: "golden", Attempt: 3})
	step := func(step int64) func() { return func() { save(t, d, testState(step, 0)) } }
	var log strings.Builder
	seen := 0
	for _, part := range []struct {
		title string
		do    func()
	}{
		{"a probe", func() { _, err := d.Probe(t.Context(), "host"); must(t, err) }},
		{"an attempt begins from nothing", func() { must(t, d.Begin(t.Context(), nil)) }},
		{"the first save of a run", step(100)},
		{"a later save", step(200)},
		{"a save that prunes step 100", step(300)},
		{"another save of step 300", step(300)},
		{"a pin", func() { must(t, d.Pin(t.Context(), 200, "best")) }},
		{"step 200 is damaged, and rejected", func() {
			path := find(t, m, d.stepPath(200), "shard-")
			vfstest.Put(t, m, path, flip(vfstest.Read(t, m, path), 8*100))
			c, err := d.Find(t.Context(), 200)
			must(t, err)
			must(t, d.Reject(t.Context(), c))
			must(t, c.Close())
		}},
	} {
		part.do()
		ops := in.Log()
		log.WriteString("# " + part.title + "\n")
		for _, op := range ops[seen:] {
			switch op.Kind {
			case "open", "read", "readdir", "space":
				continue
			case "stat":
				if !strings.HasSuffix(op.Path, manifest.TmpSuffix) {
					continue
				}
			}
			log.WriteString(strings.ReplaceAll(op.String(), testPath, "checkpoints") + "\n")
		}
		log.WriteString("\n")
		seen = len(ops)
	}
	golden := filepath.Join("testdata", "oplog.txt")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(log.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if log.String() != string(want) {
		t.Errorf("the operations are\n%s\nwant those of %s\n%s", log.String(), golden, want)
	}
}

// crashScript is the list of saves in the crash tests, which keep the last 2: two saves, a third that prunes the first, and one that
// replaces the third.
var crashScript = []struct {
	step    int64
	variant int
}{{100, 0}, {200, 0}, {300, 0}, {300, 1}}

func crashOptions(fsys vfs.FS, attempt int) Options {
	return Options{FS: fsys, Codec: "none", Keep: Policy{Last: 2}, Run: "crash", Attempt: attempt}
}

// runScript runs crashScript and returns how many saves were acknowledged before the first error.
func runScript(t *testing.T, fsys vfs.FS) (acknowledged int, err error) {
	d := openDir(t, crashOptions(fsys, 1))
	for i, s := range crashScript {
		if _, err := d.Save(context.Background(), testState(s.step, s.variant)); err != nil {
			return i, err
		}
	}
	return len(crashScript), nil
}

// TestCrashAfterEveryOperationLosesNothing cuts the power after operation k of the script, for every k, and keeps a part of what was not
// synced. After that, what was acknowledged must be there, Latest must work, and a new attempt must be able to resume and must remove
// everything that the dead attempt left.
func TestCrashAfterEveryOperationLosesNothing(t *testing.T) { // without the race detector
	t.Parallel()
	whole := vfstest.NewInjector(vfstest.New(t), nil)
	if n, err := runScript(t, whole); n != len(crashScript) {
		t.Fatal(err)
	}
	seeds := 100 / thin.Step(100)
	log := whole.Log()
	operations := len(log)
	t.Logf("%d operations, 0, 10 and 50 %% kept, seeds 0 to %d", operations, seeds-1)
	for k := 0; k <= operations; k++ {
		if k > 0 && slices.Contains([]string{"open", "read", "readdir", "stat"}, log[k-1].Kind) {
			continue // an operation that only reads does not change the disk
		}
		m := vfstest.New(t)
		acknowledged, err := runScript(t, vfstest.NewInjector(m, vfstest.CrashAfter(k)))
		if err != nil && !errors.Is(err, vfstest.ErrCrashed) {
			t.Fatalf("after operation %d: %v", k, err)
		}
		for _, percent := range []int{0, 10, 50} {
			for seed := range uint64(seeds) {
				after := m.CrashClone(percent, rand.New(rand.NewPCG(seed, uint64(k))))
				if err := checkSurvivors(after, acknowledged); err != nil {
					t.Fatalf("crash after operation %d, %d %% kept, seed %d, %d saves acknowledged: %v\n%s",
						k, percent, seed, acknowledged, err, strings.Join(tree(t, after), "\n"))
				}
				if seed >= 1 {
					continue // checkGoesOn costs more
				}
				if err := checkGoesOn(t, after); err != nil {
					t.Fatalf("crash after operation %d, %d %% kept, seed %d, next attempt: %v", k, percent, seed, err)
				}
				if percent == 0 {
					break // every seed gives the same then
				}
			}
		}
	}
}

// checkSurvivors compares a crashed file system with the saves that were acknowledged. The save in flight may have been committed or not.
func checkSurvivors(fsys vfs.FS, acknowledged int) error {
	d, err := Open(testPath, crashOptions(fsys, 2))
	if err != nil {
		return err
	}
	ctx := context.Background()
	list, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, info := range list { // a manifest has its shards, even while its checkpoint is pruned
		if err := VerifyFolder(ctx, d, filepath.Base(info.Path)); err != nil && info.State != StatePartial {
			return err
		}
	}
	latest, _, err := d.Latest(ctx)
	if errors.Is(err, ErrNone) && acknowledged == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var kept []int64 // the steps that retention wants, newest first
	newest := acknowledged - 1
	if newest < 0 || !isSave(latest, newest) {
		if newest++; newest == len(crashScript) || !isSave(latest, newest) {
			return fmt.Errorf("latest is of step %d, neither the last acknowledged save nor the one in flight", latest.Step)
		}
	}
	for i := newest; i >= 0 && len(kept) < minKeep; i-- {
		if step := crashScript[i].step; len(kept) == 0 || kept[len(kept)-1] != step {
			kept = append(kept, step)
		}
	}
	for _, step := range kept[1:] {
		s, err := d.Load(ctx, step)
		if err != nil {
			return fmt.Errorf("an acknowledged checkpoint is lost: %w", err)
		}
		if err := sameState(s, testState(step, 0)); err != nil {
			return err
		}
	}
	return nil
}

func isSave(s *State, i int) bool {
	return sameState(s, testState(crashScript[i].step, crashScript[i].variant)) == nil
}

// checkGoesOn lets attempt 2 resume and save twice. After that, only its two checkpoints and the records of attempts may be there.
func checkGoesOn(t *testing.T, fsys vfs.FS) error {
	d, err := Open(testPath, crashOptions(fsys, 2))
	if err != nil {
		return err
	}
	c, err := d.FindForResume(t.Context())
	if err == nil {
		defer c.Close()
	} else if !errors.Is(err, ErrNone) {
		return err
	}
	if err := d.Begin(t.Context(), c); err != nil {
		return err
	}
	for _, step := range []int64{400, 500} {
		if _, err := d.Save(context.Background(), testState(step, 0)); err != nil {
			return err
		}
	}
	list, err := d.List(context.Background())
	if err != nil {
		return err
	}
	files := saved(t, fsys)
	if len(list) != 2 || !list[0].Committed || !list[1].Committed || list[0].Step != 400 || len(files) != 6 {
		return fmt.Errorf("left behind:\n%s", strings.Join(files, "\n"))
	}
	return nil
}

// crashed returns m after a power cut that keeps about a third of what was not synced.
func crashed(m *vfstest.Mem, seed uint64) *vfstest.Mem {
	return m.CrashClone(30, rand.New(rand.NewPCG(seed, 1)))
}
