package distributed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// crashed is the outcome of a run in which one rank crashed.
type crashed struct {
	disk         *vfstest.Mem
	acknowledged int64 // the newest step that rank 0 learned is durable, or -1
	operations   int   // how many operations the victim did
}

// crashRun saves three steps with four ranks. The file system of one of them, the victim, dies after its k-th operation.
func crashRun(t *testing.T, o Options, victim, k int) crashed {
	disk, _ := newDisk(t)
	in := vfstest.NewInjector(disk, vfstest.CrashAfter(k))
	fs := func(rank int) vfs.FS {
		if rank == victim {
			return in
		}
		return disk
	}
	tr := trial{world: 4, attempt: 1, o: o, fs: fs, keep: checkpoint.Policy{Last: 2}}
	return crashed{disk, tr.saveThree(t, victim, k), len(in.Log())}
}

// saveThree saves three steps, while the victim's file system dies after its k-th operation. Every rank may get an error from that.
// saveThree returns the newest step that rank 0 learned is durable, or -1 if there is none.
func (tr trial) saveThree(t *testing.T, victim, k int) int64 {
	t.Helper()
	var acknowledged atomic.Int64
	acknowledged.Store(-1)
	errs := tr.run(t.Context(), func(ctx context.Context, r *one) error {
		for step := int64(1); step <= 3; step++ {
			if err := r.save(ctx, step); err != nil {
				return err
			}
			if tr.o.Async && step == 2 {
				continue // this save overlaps the next one
			}
			info, err := r.Wait(ctx)
			if err != nil {
				return err
			}
			if r.rank == 0 {
				acknowledged.Store(info.Step)
			}
		}
		return nil
	})
	for rank, err := range errs {
		if err != nil && !errors.Is(err, vfstest.ErrCrashed) && !strings.Contains(err.Error(), vfstest.ErrCrashed.Error()) &&
			!errors.Is(err, errDead) {
			t.Fatalf("rank %d dies after operation %d: rank %d: %v", victim, k, rank, err)
		}
	}
	return acknowledged.Load()
}

// TestCrashOfOneRankLosesNothing lets the disk of each rank in turn die after each of its operations, and then cuts the power of the shared
// file system. What was acknowledged must be there, the newest checkpoint must be good, and an attempt with fewer ranks must resume from
// it.
func TestCrashOfOneRankLosesNothing(t *testing.T) { // also without the race detector
	t.Parallel()
	for name, o := range map[string]Options{"async": {Async: true}, "delta": {Async: true, Delta: 2}, "sync": {},
		"local": {Async: true, Local: localPath}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for victim := range 4 {
				whole := crashRun(t, o, victim, 1<<30)
				if whole.acknowledged != 3 {
					t.Fatalf("without a crash step %d is acknowledged", whole.acknowledged)
				}
				t.Logf("rank %d: %d operations", victim, whole.operations)
				sparse := thin.Step(11) // if not all crash points are tested, each rank has other ones
				for k := victim % sparse; k <= whole.operations; k += sparse {
					after := crashRun(t, o, victim, k)
					for _, percent := range []int{0, 10, 50} {
						for seed := range uint64(20 / thin.Step(20)) {
							survivors := after.disk.CrashClone(percent, rand.New(rand.NewPCG(uint64(k), seed<<8|uint64(victim))))
							before, err := survives(survivors, after.acknowledged)
							if err == nil && seed == 0 { // goesOn costs more
								err = goesOn(t, o, survivors, before)
							}
							if err != nil {
								t.Fatalf("rank %d dies after operation %d, %d %% kept, seed %d, step %d acknowledged: %v\n%s",
									victim, k, percent, seed, after.acknowledged, err, strings.Join(tree(survivors, "/"), "\n"))
							}
							if percent == 0 {
								break // every seed gives the same then
							}
						}
					}
				}
			}
		})
	}
}

// survives checks that the newest checkpoint after a crash is good, and no older than what was acknowledged.
func survives(disk *vfstest.Mem, acknowledged int64) (step int64, err error) {
	if step, err = latest(disk, 2); err == nil && step < acknowledged {
		err = fmt.Errorf("the latest is step %d", step)
	}
	return step, err
}

// goesOn runs the next attempt after a crash that left step before as the latest checkpoint.
func goesOn(t *testing.T, o Options, disk *vfstest.Mem, before int64) error {
	errs := trial{world: 3, attempt: 2, o: o, fs: func(int) vfs.FS { return disk }}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			from, err := r.resume(ctx)
			if err != nil {
				return err
			}
			if from < before || from > before && o.Local == "" {
				return fmt.Errorf("resumed from %d, the latest was %d", from, before)
			}
			if err := r.save(ctx, 10); err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if step, err := latest(disk, 2); step != 10 || err != nil {
		return fmt.Errorf("after the next attempt the latest is %d: %w", step, err)
	}
	for _, path := range tree(disk, localPath) {
		if strings.Contains(path, "step-") {
			return fmt.Errorf("%s stays", path)
		}
	}
	return nil
}

var update = flag.Bool("update", false, "rewrite testdata/oplog.txt")

// random matches the parts of names that differ from run to run. lengths matches the sizes of files that contain times.
var (
	random  = regexp.MustCompile(`(\.3-[0-9a-f]{8}-([0-9a-f]{8}|1)|\.ddpbatch-[0-9a-f]{8})\b`)
	lengths = regexp.MustCompile(`((?:MANIFEST|local/).*) [0-9]+ bytes`)
)

// TestOperationsComeInTheReviewedOrder compares the file operations of one save with testdata/oplog.txt, for each of four ranks, and for
// each of two ranks with a node-local tier. The file was reviewed by hand: shards come before the manifest, every file is synced before it
// gets its name and every folder after that, and only rank 0 touches anything but its own shard. Reads are left out, except the length
// check.
func TestOperationsComeInTheReviewedOrder(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for _, c := range []struct {
		world int
		o     Options
	}{{4, Options{}}, {2, Options{Local: localPath}}} {
		disk, _ := newDisk(t)
		var ranks []*vfstest.Injector
		for range c.world {
			ranks = append(ranks, vfstest.NewInjector(disk, nil))
		}
		started := make([]int, c.world)
		mustAll(t, trial{world: c.world, attempt: 3, o: c.o, fs: func(rank int) vfs.FS { return ranks[rank] }}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				started[r.rank] = len(ranks[r.rank].Log())
				if err := r.save(ctx, 100); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				return err
			}))
		for rank, in := range ranks {
			fmt.Fprintf(&log, "# rank %d, local tier %v\n", rank, c.o.Local != "")
			for _, op := range in.Log()[started[rank]:] {
				log.WriteString(line(op))
			}
			log.WriteString("\n")
		}
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

// line returns the line of an operation in the log. It is empty for an operation that only reads, or whose result depends on the other
// ranks of the node.
func line(op vfstest.Op) string {
	switch op.Kind {
	case "open", "read", "readdir", "rmdir":
		return ""
	case "stat":
		if !strings.HasSuffix(op.Path, ".tmp") {
			return ""
		}
	case "mkdir", "syncdir": // only the first rank of a node makes folders
		if strings.HasPrefix(op.Path, localPath) && (op.Kind == "mkdir" || !strings.Contains(op.Path, "/step-")) {
			return ""
		}
	}
	text := strings.NewReplacer(sharedPath, "checkpoints", localPath, "local").Replace(op.String())
	text = lengths.ReplaceAllString(random.ReplaceAllString(text, ".TAG"), "$1 N bytes")
	return text + "\n"
}
