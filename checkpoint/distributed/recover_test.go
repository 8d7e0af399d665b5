package distributed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// nodes is a shared file system and one disk for each node. Ranks are on nodes in blocks of two.
type nodes struct {
	shared *vfstest.Mem
	disks  []*vfstest.Mem
	full   atomic.Bool // while it is set, no shard can be created in the shared folder
	hold   *gate       // if not nil, shards wait here before they are created in the shared folder
}

// node is the file system that the ranks of one node see.
type node struct {
	vfs.FS
	local *vfstest.Mem
}

func (n node) of(path string) vfs.FS {
	if strings.HasPrefix(path, localPath) {
		return n.local
	}
	return n.FS
}

func (n node) Create(p string) (vfs.File, error)       { return n.of(p).Create(p) }
func (n node) Open(p string) (vfs.File, error)         { return n.of(p).Open(p) }
func (n node) Rename(a, b string) error                { return n.of(a).Rename(a, b) }
func (n node) Remove(p string) error                   { return n.of(p).Remove(p) }
func (n node) RemoveDir(p string) error                { return n.of(p).RemoveDir(p) }
func (n node) Mkdir(p string) error                    { return n.of(p).Mkdir(p) }
func (n node) SyncDir(p string) error                  { return n.of(p).SyncDir(p) }
func (n node) ReadDir(p string) ([]fs.DirEntry, error) { return n.of(p).ReadDir(p) }
func (n node) Stat(p string) (fs.FileInfo, error)      { return n.of(p).Stat(p) }

func newNodes(t *testing.T, n int) *nodes {
	shared, _ := newDisk(t)
	ns := &nodes{shared: shared}
	for range n {
		disk, _ := newDisk(t)
		ns.disks = append(ns.disks, disk)
	}
	return ns
}

// fs puts rank r of an attempt on node (r / 2 + shift) % n.
func (ns *nodes) fs(shift int) func(rank int) vfs.FS {
	return func(rank int) vfs.FS {
		shared := vfstest.NewInjector(ns.shared, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "create" && strings.Contains(op.Path, "/shard-") {
				if ns.full.Load() {
					return vfstest.Fault{Err: syscall.ENOSPC}
				}
				if ns.hold != nil {
					ns.hold.passes()
				}
			}
			return vfstest.Fault{}
		})
		local := ns.disks[(rank/2+shift)%len(ns.disks)]
		return node{shared, local}
	}
}

// The shared folder is full, so step 2 stays on the nodes' disks. The next attempt, on the same nodes in another order and with another
// world, commits step 2 and resumes from it. The program's log, which begins at warnings, says so once.
func TestUncommittedIsFlushedByTheNextAttempt(t *testing.T) {
	t.Parallel()
	for _, world := range []int{6, 7, 8} { // there are ranks on all three nodes
		ns := undrained(t)
		var journal testkit.Journal
		o := Options{Async: true, Local: localPath, Log: journal.Logger()}
		mustAll(t, trial{world: world, attempt: 2, o: o, fs: ns.fs(1)}.run(t.Context(), func(ctx context.Context, r *one) error {
			if step, err := r.resume(ctx); step != 2 || err != nil {
				return fmt.Errorf("world %d resumed from %d: %w", world, step, err)
			}
			return nil
		}))
		for i, disk := range ns.disks {
			if files := tree(disk, localPath); len(files) > 0 {
				t.Errorf("node %d keeps %v", i, files)
			}
		}
		n := strings.Count(journal.String(), `level=WARN msg="checkpoint flushed from the nodes' own disks`)
		if n != 1 {
			t.Errorf("logged %d times:\n%s", n, journal.String())
		}
	}
}

// undrained returns the disks that an attempt of four ranks on two of three nodes has left: step 1 is in the shared folder, and step 2 is
// only on the nodes' disks.
func undrained(t *testing.T) *nodes {
	ns := newNodes(t, 3)
	errs := trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if _, err := r.resume(ctx); err != nil {
				return err
			}
			if err := r.save(ctx, 1); err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			ns.full.Store(true)
			if err := r.save(ctx, 2); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	ns.full.Store(false)
	return ns
}

// If one of the nodes is gone, step 2 is not whole, and if a bit is flipped, step 2 is not good. In both cases the next attempt resumes
// from step 1.
func TestUncommittedSaveThatIsBadIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ns *nodes){
		"node lost": func(ns *nodes) { ns.disks = []*vfstest.Mem{ns.disks[0], ns.disks[2]} },
		"bit flip": func(ns *nodes) {
			for _, path := range tree(ns.disks[1], localPath) {
				if strings.HasSuffix(path, ".ddpt") {
					flip(t, ns.disks[1], path)
				}
			}
		},
		"record damaged": func(ns *nodes) {
			for _, path := range tree(ns.disks[0], localPath) {
				if strings.HasSuffix(path, ".json") {
					flip(t, ns.disks[0], path)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := undrained(t)
			harm(ns)
			mustAll(t, trial{world: 6, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
				func(ctx context.Context, r *one) error {
					if step, err := r.resume(ctx); step != 1 || err != nil {
						return fmt.Errorf("resumed from %d: %w", step, err)
					}
					if err := r.save(ctx, 5); err != nil {
						return err
					}
					_, err := r.Wait(ctx)
					return err
				}))
			for i, disk := range ns.disks {
				if files := strings.Join(tree(disk, localPath), " "); strings.Contains(files, "step-") {
					t.Errorf("node %d keeps %v", i, files)
				}
			}
		})
	}
}

// An attempt without a local tier resumes from step 1, and so gives up the save that attempt 1 left uncommitted. A later attempt does not
// use that save either.
func TestUncommittedSaveThatWasGivenUpStaysSo(t *testing.T) {
	t.Parallel()
	ns := undrained(t)
	mustAll(t, trial{world: 2, attempt: 2, fs: ns.fs(0)}.run(t.Context(), func(ctx context.Context, r *one) error {
		if step, err := r.resume(ctx); step != 1 || err != nil {
			return fmt.Errorf("attempt 2 resumed from %d: %w", step, err)
		}
		return nil
	}))
	mustAll(t, trial{world: 6, attempt: 3, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if step, err := r.resume(ctx); step != 1 || err != nil {
				return fmt.Errorf("attempt 3 resumed from %d: %w", step, err)
			}
			return nil
		}))
}

// While step 1 is stuck on its way to the shared folder, steps 2, 3 and 4 are saved on the nodes' disks. Of those, only step 4 is flushed.
// Ranks without bytes do not delay the others.
func TestOnlyTheNewestIsFlushed(t *testing.T) {
	t.Parallel()
	for name, arrays := range map[string]func(int) []Array{"all write": arraysOf, "one writes": ownOf(1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNodes(t, 2)
			ns.hold = newGate()
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			defer context.AfterFunc(ctx, ns.hold.open)() // if a save does wait, the test fails and does not hang
			var there atomic.Int32
			mustAll(t, trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath}, fs: ns.fs(0), arrays: arrays}.run(ctx,
				func(ctx context.Context, r *one) error {
					for step := int64(1); step <= 4; step++ {
						if err := r.save(ctx, step); err != nil {
							return err
						}
					}
					if _, err := r.nextJob(ctx); err != nil { // step 4 is on all disks then; before that, the newest to flush is 3
						return err
					}
					if there.Add(1) == 4 {
						ns.hold.open()
					}
					info, err := r.Wait(ctx)
					if err == nil && (info.Step != 4 || r.Stats().Saves != 2) {
						err = fmt.Errorf("%d saves, the newest is %d", r.Stats().Saves, info.Step)
					}
					return err
				}))
			if step, err := latest(ns.shared, 1); step != 4 || err != nil {
				t.Fatalf("latest is %d: %v", step, err)
			}
		})
	}
}

// If the disk of a node is full, its ranks write to the shared folder directly, and log that.
func TestFullLocalDiskLeavesTheSharedFolder(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	var journal testkit.Journal
	fs := func(rank int) vfs.FS {
		if rank < 2 {
			return ns.fs(0)(rank)
		}
		return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "write" && strings.HasPrefix(op.Path, localPath) {
				return vfstest.Fault{Err: syscall.ENOSPC}
			}
			return vfstest.Fault{}
		})
	}
	mustAll(t, trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath, Log: journal.Logger()}, fs: fs}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			for step := int64(1); step <= 3; step++ {
				if err := r.save(ctx, step); err != nil {
					return err
				}
			}
			_, err := r.Wait(ctx)
			return err
		}))
	if step, err := latest(ns.shared, 1); step != 3 || err != nil {
		t.Fatalf("latest is %d: %v", step, err)
	}
	if !strings.Contains(journal.String(), "writing it to the shared folder directly") {
		t.Errorf("log: %s", journal.String())
	}
}

// flip changes a byte in the middle of a file.
func flip(t *testing.T, m *vfstest.Mem, path string) {
	data := vfstest.Read(t, m, path)
	data[len(data)/2] ^= 1
	vfstest.Put(t, m, path, data)
}

// The shared folder is full for a while, and the Wait after every Save says so. No more than the newest two saves stay on a node, and none
// stays once there is room again.
func TestOnlyTheNewestStaysOnTheNode(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	ns.full.Store(true)
	var arrived atomic.Int32
	roomy := newGate()
	mustAll(t, trial{world: 4, attempt: 1, o: Options{Async: true, Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			for step := int64(1); step <= 5; step++ {
				if err := r.save(ctx, step); err != nil {
					return err
				}
				if _, err := r.Wait(ctx); !errors.Is(err, checkpoint.ErrNoSpace) {
					return fmt.Errorf("step %d: %w", step, err)
				}
			}
			folders := 0
			for _, path := range tree(ns.disks[r.rank/2], localPath) {
				if _, ok := parseSaveName(path[strings.LastIndex(path, "/")+1:]); ok {
					folders++
				}
			}
			if folders < 1 || folders > 2 {
				return fmt.Errorf("%d saves on the node", folders)
			}
			if arrived.Add(1) == 4 {
				ns.full.Store(false)
				roomy.open()
			}
			roomy.passes()
			if err := r.save(ctx, 6); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
	for i, disk := range ns.disks {
		if files := strings.Join(tree(disk, localPath), " "); strings.Contains(files, "step-") {
			t.Errorf("node %d keeps %v", i, files)
		}
	}
}

// The newest checkpoint in the shared folder is damaged, and a newer save on the nodes' disks is incomplete or damaged, too. Recovery and
// the search after it both find that, but the log mentions each problem once.
func TestRecoveryWarnsOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(ns *nodes)
		want []string
	}{
		"not whole": {
			func(ns *nodes) { ns.disks = []*vfstest.Mem{ns.disks[0], ns.disks[2]} },
			[]string{"newer than all in the shared folder, but incomplete"},
		},
		"damaged": {
			func(ns *nodes) {
				for _, path := range tree(ns.disks[1], localPath) {
					if strings.HasSuffix(path, ".ddpt") {
						flip(t, ns.disks[1], path)
					}
				}
			},
			[]string{"nodes' own disks is damaged"},
		},
	} {
		for _, file := range []string{"MANIFEST.json", ".ddpt"} {
			t.Run(name+" "+file, func(t *testing.T) {
				t.Parallel()
				ns := undrained(t) // step 1 is in the shared folder, step 2 on the nodes
				harmNewest(t, ns, file)
				test.harm(ns)
				var journal testkit.Journal
				mustAll(t, trial{world: 6, attempt: 2, o: Options{Local: localPath, Log: journal.Logger()}, fs: ns.fs(0)}.run(t.Context(),
					func(ctx context.Context, r *one) error {
						c, err := r.Resume(ctx, func(*checkpoint.Checkpoint) error { return nil })
						if err == nil {
							err = c.Close()
						}
						return err
					}))
				warned := map[string]int{}
				for _, line := range journal.Lines() {
					if strings.Contains(line, "level=WARN") {
						warned[times.ReplaceAllString(line, "")]++
					}
				}
				for line, n := range warned {
					if n > 1 {
						t.Errorf("logged %d times: %s", n, line)
					}
				}
				for _, want := range append(test.want, "checkpoint is corrupt") {
					if !strings.Contains(journal.String(), want) {
						t.Errorf("the log lacks %q:\n%s", want, journal.String())
					}
				}
			})
		}
	}
}

var times = regexp.MustCompile(`time=\S+ `)

// harmNewest adds a checkpoint of step 0 to the shared folder of ns, as the one to fall back to. It then damages the manifest of step 1 or
// removes one of its shards.
func harmNewest(t *testing.T, ns *nodes, ending string) {
	t.Helper()
	mustAll(t, trial{world: 1, attempt: 1, fs: func(int) vfs.FS { return ns.shared }}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if err := r.save(ctx, 0); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
	for _, path := range tree(ns.shared, filepath.Join(sharedPath, "step-000000000001")) {
		switch {
		case !strings.HasSuffix(path, ending):
		case ending == "MANIFEST.json":
			flip(t, ns.shared, path)
		default:
			must(t, ns.shared.Remove(path))
			return
		}
	}
}
