package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"

	"pgregory.net/rapid"
)

// model describes what a run may look like from outside. Each attempt has its own history (variant) after the step that it resumed from.
type model struct {
	disk     *vfstest.Mem
	attempt  int
	newest   saved   // the save that was acknowledged last, or that the newest attempt resumed from
	inFlight []saved // saves that may have been committed, too, newest last
	before   []saved // saves of the history that led here, acknowledged earlier, newest first
	damaged  bool    // a checkpoint newer than newest is damaged and has not been rejected yet
}

type saved struct {
	step    int64
	variant int
}

// run runs one attempt of the run: it resumes, saves some steps, and may crash.
func (m *model) run(t *rapid.T) {
	ctx := context.Background()
	m.attempt++
	saves := rapid.IntRange(0, 5).Draw(t, "saves")
	crashAfter := rapid.IntRange(-60, 150).Draw(t, "crash after") // below 0 means no crash
	in := vfstest.NewInjector(m.disk, func(k int, _ vfstest.Op) vfstest.Fault {
		if crashAfter >= 0 && k > crashAfter {
			return vfstest.Fault{Err: vfstest.ErrCrashed}
		}
		return vfstest.Fault{}
	})
	j := job{
		world: rapid.IntRange(1, 5).Draw(t, "world"), attempt: m.attempt, fs: same(in),
		keep: checkpoint.Policy{Last: rapid.IntRange(2, 3).Draw(t, "keep")},
		saver: distributed.Options{
			Async: rapid.Bool().Draw(t, "async"), Delta: rapid.IntRange(0, 3).Draw(t, "delta"),
			Workers: rapid.IntRange(1, 3).Draw(t, "workers"),
		},
	}
	var resumed int64
	began, started, acknowledged := false, 0, 0
	err := j.run(ctx, func(r *rank) error {
		step, err := r.resume(ctx)
		if err != nil {
			return err
		}
		if r.number == 0 {
			resumed, began = step, true
		}
		for i := range saves {
			if r.number == 0 {
				started = i + 1
			}
			if err := r.save(ctx, step+int64(i)+1, m.attempt); err != nil {
				return err
			}
			if r.number == 0 {
				acknowledged = i // Save has waited for the save before it
				if !j.saver.Async {
					acknowledged = i + 1
				}
			}
			if i%2 == 1 {
				continue
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			if r.number == 0 {
				acknowledged = i + 1
			}
		}
		_, err = r.Wait(ctx)
		if r.number == 0 && err == nil {
			acknowledged = saves
		}
		return err
	})
	if err != nil && !errors.Is(err, vfstest.ErrCrashed) && !crashWords(err) {
		t.Fatalf("attempt %d: %v", m.attempt, err)
	}
	if began {
		m.damaged = false
		m.resumedFrom(t, resumed)
		for i := range acknowledged {
			m.acknowledge(saved{resumed + int64(i) + 1, m.attempt})
		}
		for i := acknowledged; i < started; i++ {
			m.inFlight = append(m.inFlight, saved{resumed + int64(i) + 1, m.attempt})
		}
	}
	if err != nil {
		percent := rapid.SampledFrom([]int{0, 10, 50, 100}).Draw(t, "kept")
		m.disk = m.disk.CrashClone(percent, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
	}
}

// crashWords reports whether the text of an error says that a file system has crashed. An error from another rank arrives as text only.
func crashWords(err error) bool { return strings.Contains(err.Error(), vfstest.ErrCrashed.Error()) }

func (m *model) acknowledge(s saved) {
	if m.newest.step > 0 {
		m.before = slices.Insert(m.before, 0, m.newest)
	}
	m.newest, m.inFlight = s, nil
}

// resumedFrom checks that an attempt may have resumed from this step.
func (m *model) resumedFrom(t *rapid.T, step int64) {
	for i, s := range m.inFlight {
		if s.step == step && step > m.newest.step {
			m.acknowledge(m.inFlight[i])
			return
		}
	}
	if step != m.newest.step {
		t.Fatalf("attempt %d resumed from step %d; %v was acknowledged, in flight were %v", m.attempt, step, m.newest, m.inFlight)
	}
	m.inFlight = nil
}

// look checks the disk from outside: the newest checkpoint must be the acknowledged one or one in flight, and complete.
func (m *model) look(t *rapid.T) {
	if m.damaged {
		return // without reading data, the newest checkpoint is the damaged one
	}
	ctx := context.Background()
	step, variant, err := newestOf(ctx, m.disk, hardPath)
	if err != nil {
		t.Fatal(err)
	}
	got := saved{step, variant}
	if got != m.newest && !slices.Contains(m.inFlight, got) {
		t.Fatalf("the newest is %v; %v was acknowledged, in flight were %v", got, m.newest, m.inFlight)
	}
	if _, err := wholeDisk(ctx, m.disk, hardPath); err != nil {
		t.Fatal(err)
	}
}

// damageable reports whether the newest checkpoint may be damaged: no save is in flight, and the checkpoint before the newest is of the
// same attempt, so retention has kept it.
func (m *model) damageable() bool {
	return !m.damaged && len(m.inFlight) == 0 && len(m.before) > 0 && m.newest.variant == m.before[0].variant
}

// damage flips a bit of a shard of the newest checkpoint. The next attempt must skip that checkpoint and resume from the one before it.
func (m *model) damage(t *rapid.T) {
	ctx := context.Background()
	d, err := checkpoint.Open(hardPath, checkpoint.Options{FS: m.disk, Run: "run"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.FindLatest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	folder := hardPath + "/" + c.Folder()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	var shards []string
	for line := range strings.SplitSeq(filesBelow(m.disk, folder), "\n") {
		if strings.Contains(line, "/shard-") {
			shards = append(shards, line)
		}
	}
	path := rapid.SampledFrom(shards).Draw(t, "shard")
	data := vfstest.Read(t, m.disk, path)
	bit := rapid.IntRange(0, 8*len(data)-1).Draw(t, "bit")
	data[bit/8] ^= 1 << (bit % 8)
	f, err := m.disk.Create(path + "-new")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close(), m.disk.Rename(path+"-new", path), m.disk.SyncDir(folder)); err != nil {
		t.Fatal(err)
	}
	m.newest, m.before, m.damaged = m.before[0], nil, true // a policy may keep only two, so there may be none before it
}

// TestRandomAttemptsAgreeWithAModel runs attempts with random worlds, saves, crashes and damage, and compares them with the model.
func TestRandomAttemptsAgreeWithAModel(t *testing.T) { // without the race detector
	t.Parallel()
	property := func(t *rapid.T) {
		m := &model{disk: vfstest.New(t)}
		for range rapid.IntRange(1, 6).Draw(t, "actions") {
			if m.damageable() && rapid.IntRange(0, 2).Draw(t, "action") == 0 {
				m.damage(t)
			}
			m.run(t)
			m.look(t)
		}
	}
	thin.Property(t, func() { rapid.Check(t, property) }, rapid.MakeFuzz(property))
}

// TestAnyWorldResumesFromAnyOther saves with n ranks, resumes and saves with m, and resumes and saves with n again, for all pairs up to 8.
// The first attempt saves full checkpoints, and the others also deltas.
func TestAnyWorldResumesFromAnyOther(t *testing.T) { // without the race detector
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for m := 1 + n%thin.Step(3); m <= 8; m += thin.Step(3) {
			t.Run(fmt.Sprintf("%d to %d", n, m), func(t *testing.T) {
				t.Parallel()
				disk := vfstest.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				last := int64(0)
				for attempt, world := range []int{n, m, n} {
					j := job{
						world: world, attempt: attempt + 1, fs: same(disk), keep: checkpoint.Policy{Last: 2},
						saver: distributed.Options{Async: attempt != 1, Delta: attempt},
					}
					need(t, j.run(ctx, func(r *rank) error {
						step, err := r.resume(ctx)
						if err != nil {
							return err
						}
						if step != last {
							return fmt.Errorf("resumed from step %d, want %d", step, last)
						}
						for step := last + 1; step <= last+3; step++ {
							if err := r.save(ctx, step, world); err != nil {
								return err
							}
						}
						info, err := r.Wait(ctx)
						if err == nil && info.Step != last+3 {
							err = fmt.Errorf("wait says that step %d is the newest, want %d", info.Step, last+3)
						}
						return err
					}))
					last += 3
					step, variant, err := newestOf(ctx, disk, hardPath)
					need(t, err)
					if step != last || variant != world {
						t.Fatalf("the newest is step %d of %d ranks, want %d of %d", step, variant, last, world)
					}
				}
				_, err := wholeDisk(ctx, disk, hardPath)
				need(t, err)
			})
		}
	}
}
