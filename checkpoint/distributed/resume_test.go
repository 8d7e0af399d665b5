package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"

	"pgregory.net/rapid"
)

// saveSteps runs a first attempt of three ranks that saves steps.
func saveSteps(t *testing.T, fs func(int) vfs.FS, o Options, steps ...int64) {
	t.Helper()
	mustAll(t, trial{world: 3, attempt: 1, o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
		if _, err := r.resume(ctx); err != nil {
			return err
		}
		for _, step := range steps {
			if err := r.save(ctx, step); err != nil {
				return err
			}
		}
		_, err := r.Wait(ctx)
		return err
	}))
}

// harm flips a byte of the only file whose path contains the parts.
func harm(t *testing.T, disk *vfstest.Mem, parts ...string) {
	t.Helper()
	files := slices.DeleteFunc(tree(disk, sharedPath), func(path string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(path, part) })
	})
	if len(files) != 1 {
		t.Fatalf("files with %v: %v", parts, files)
	}
	flip(t, disk, files[0])
}

// Shards of steps 3 and 2 are damaged, and not every rank notices the damage of step 3. All ranks resume from step 1, and the bad
// checkpoints are set aside.
func TestResumeFallsBackToAGoodStep(t *testing.T) {
	t.Parallel()
	disk, fs := newDisk(t)
	saveSteps(t, fs, Options{}, 1, 2, 3)
	harm(t, disk, "step-000000000003/", "shard-00001")
	harm(t, disk, "step-000000000002/", "shard-00002")
	var journal testkit.Journal
	mustAll(t, trial{world: 2, attempt: 2, o: Options{Log: journal.Logger()}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error {
				if r.rank == 0 && c.Step() == 3 {
					return nil // as if it did not need the damaged part
				}
				return check(c)
			})
			if err != nil {
				return err
			}
			defer c.Close()
			if c.Step() != 1 {
				return fmt.Errorf("resumed from step %d", c.Step())
			}
			return nil
		}))
	files := strings.Join(tree(disk, sharedPath), "\n")
	for _, want := range []string{"step-000000000003.broken/MANIFEST.json", "step-000000000002.broken/MANIFEST.json",
		"/attempt-000000002-"} {
		if !strings.Contains(files, want) {
			t.Errorf("no %s in\n%s", want, files)
		}
	}
	if log := journal.String(); strings.Count(log, "resuming from the checkpoint before") != 1 || !strings.Contains(log, "step=1 ") {
		t.Errorf("log: %s", log)
	}
}

// Resume also sets aside a damaged checkpoint that only rank 0 has looked at and that no rank has read.
func TestResumeSetsAsideWhatIsCutShort(t *testing.T) {
	t.Parallel()
	disk, fs := newDisk(t)
	saveSteps(t, fs, Options{}, 1, 2, 3)
	for _, part := range []string{"step-000000000003/shard-00001", "step-000000000002/MANIFEST"} {
		for _, path := range tree(disk, sharedPath) {
			if strings.Contains(path, part) {
				must(t, disk.Remove(path))
				f, err := disk.Create(path)
				must(t, err)
				must(t, f.Close())
			}
		}
	}
	mustAll(t, trial{world: 2, attempt: 2, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
		if step, err := r.resume(ctx); step != 1 || err != nil {
			return fmt.Errorf("resumed from step %d: %w", step, err)
		}
		return nil
	}))
	files := strings.Join(tree(disk, sharedPath), "\n")
	for _, want := range []string{"step-000000000003.broken/MANIFEST.json", "step-000000000002.broken/MANIFEST.json"} {
		if !strings.Contains(files, want) {
			t.Errorf("no %s in\n%s", want, files)
		}
	}
}

func TestResumeFailsWhereAllAreCorrupt(t *testing.T) {
	t.Parallel()
	disk, fs := newDisk(t)
	saveSteps(t, fs, Options{}, 1, 2)
	harm(t, disk, "step-000000000001/", "shard-00001")
	harm(t, disk, "step-000000000002/", "shard-00001")
	var journal testkit.Journal
	errs := trial{world: 4, attempt: 2, o: Options{Log: journal.Logger()}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			_, err := r.resume(ctx)
			return err
		})
	wantAll(t, errs, checkpoint.ErrCorrupt, "the newest was rejected: ")
	if log := journal.String(); !strings.Contains(log, "corrupt") || strings.Contains(log, "the checkpoint before") {
		t.Errorf("there is none before the oldest, and the log says: %s", log)
	}
}

// A checkpoint that cannot be read now is not corrupt, and Resume does not fall back to an older one.
func TestResumeStopsAtOtherErrors(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("does not fit")
	for name, fail := range map[string]error{"own": errOwn, "disk": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			saveSteps(t, fs, Options{}, 1, 2)
			errs := trial{world: 3, attempt: 2, o: Options{Errors: []error{errOwn, syscall.EIO}}, fs: fs}.run(t.Context(),
				func(ctx context.Context, r *one) error {
					_, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error {
						switch r.rank {
						case 1:
							return fmt.Errorf("it says so: %w", checkpoint.ErrCorrupt)
						case 2:
							return fail
						}
						return nil
					})
					return err
				})
			wantAll(t, errs, fail, "rank 2: ")
			if files := strings.Join(tree(disk, sharedPath), " "); strings.Contains(files, "broken") ||
				strings.Contains(files, "attempt-000000002") {
				t.Errorf("files: %s", files)
			}
		})
	}
}

// If rank 1 reports damage in a checkpoint that rank 0 reads as good, the ranks try it once more. If rank 1 reports damage again, all ranks
// fail. The checkpoint is not renamed.
func TestDamageThatOneRankSeesRenamesNothing(t *testing.T) {
	t.Parallel()
	for _, times := range []int{1, 2} {
		disk, fs := newDisk(t)
		saveSteps(t, fs, Options{}, 1, 2)
		errs := trial{world: 3, attempt: 2, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
			seen := 0
			c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error {
				if seen++; r.rank == 1 && seen <= times {
					return fmt.Errorf("bad memory: %w", checkpoint.ErrCorrupt)
				}
				return check(c)
			})
			if err != nil {
				return err
			}
			defer c.Close()
			if c.Step() != 2 {
				err = fmt.Errorf("resumed from %d", c.Step())
			}
			return err
		})
		if times == 1 {
			mustAll(t, errs)
		} else {
			wantAll(t, errs, checkpoint.ErrCorrupt, "rank 1: bad memory")
		}
		if step, err := latest(disk, 2); step != 2 || err != nil {
			t.Fatalf("latest is %d: %v", step, err)
		}
	}
}

// TestAnyWorldLoadsWhatAnotherSaved saves random arrays with n ranks and loads them with m, for all pairs up to 8.
func TestAnyWorldLoadsWhatAnotherSaved(t *testing.T) {
	t.Parallel()
	dtypes := map[string]int{"uint8": 1, "bfloat16": 2, "float32": 4, "float64": 8}
	for n := 1; n <= 8; n++ {
		_, fs := newDisk(t)
		names := rapid.SampledFrom([]string{"uint8", "bfloat16", "float32", "float64"})
		state := rapid.Custom(func(t *rapid.T) [][]Array { return randomState(t, n, names, dtypes) }).Example(n)
		whole := map[string][]byte{}
		for _, arrays := range state {
			for _, a := range arrays {
				whole[a.Name] = a.Data
			}
		}
		tr := trial{world: n, attempt: 1, fs: fs, codec: "auto"}
		mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return nil })) // it makes the folder
		m := newGoroutineGroup(n)
		mustAll(t, testkit.Each(n, func(rank int) error {
			var dir *checkpoint.Dir
			o := Options{FS: fs(rank), Async: n%2 == 0}
			if rank == 0 {
				var err error
				if dir, err = checkpoint.Open(sharedPath, tr.dirOptions(o)); err != nil {
					return err
				}
			}
			s, err := New(t.Context(), m.member(rank), dir, state[rank], o)
			if err != nil {
				return err
			}
			return errors.Join(s.Save(t.Context(), Meta{Step: 7}), s.Close())
		}))
		for to := 1; to <= 8; to++ {
			mustAll(t, trial{world: to, attempt: 1 + to, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error { return compareParts(ctx, c, whole, r.rank, to) })
				if err != nil {
					return err
				}
				return c.Close()
			}))
		}
	}
}

// randomState returns the arrays of n ranks: arrays that some or all ranks hold, and arrays of one rank alone.
func randomState(t *rapid.T, n int, names *rapid.Generator[string], sizes map[string]int) [][]Array {
	state := make([][]Array, n)
	for i := range rapid.IntRange(1, 9).Draw(t, "arrays") {
		dtype := names.Draw(t, "dtype")
		rows, columns := rapid.IntRange(0, 90).Draw(t, "rows"), rapid.IntRange(1, 90).Draw(t, "columns")
		a := Array{Name: fmt.Sprint("array.", i), DType: dtype, Shape: []int{rows, columns}}
		a.Data = content(a.Name, rows*columns*sizes[dtype], int64(i))
		holders := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID[int]).Draw(t, "holders")
		a.Replicated = len(holders) > 1
		for _, rank := range holders {
			state[rank] = append(state[rank], a)
		}
	}
	return state
}

// compareParts reads and compares what one of m ranks would need if all arrays were split evenly between the ranks.
func compareParts(ctx context.Context, c *checkpoint.Checkpoint, whole map[string][]byte, rank, m int) error {
	var targets []checkpoint.Target
	for name, data := range whole {
		from, to := len(data)*rank/m, len(data)*(rank+1)/m
		targets = append(targets, checkpoint.Target{Name: name, Start: int64(from), Data: make([]byte, to-from)})
	}
	if err := c.Read(ctx, targets); err != nil {
		return err
	}
	for _, part := range targets {
		if want := whole[part.Name][part.Start : part.Start+int64(len(part.Data))]; !slices.Equal(part.Data, want) {
			return fmt.Errorf("%s from %d: not what was saved", part.Name, part.Start)
		}
	}
	if got := len(c.Tensors()); got != len(whole) {
		return fmt.Errorf("%d tensors, want %d", got, len(whole))
	}
	return nil
}
