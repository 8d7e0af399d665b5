package distributed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// post carries messages between the ranks of a group, and ends when the group does.
type post struct {
	*goroutineGroup
	mu    sync.Mutex
	boxes map[[2]int]chan []byte
	fault func(from, to int) error // if not nil, called before each message; an error ends the post for all ranks
	lost  chan struct{}
	lose  sync.Once
}

func newPost(m *goroutineGroup) *post {
	return &post{goroutineGroup: m, boxes: map[[2]int]chan []byte{}, lost: make(chan struct{})}
}

func (p *post) box(from, to int) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [2]int{from, to}
	if p.boxes[key] == nil {
		p.boxes[key] = make(chan []byte)
	}
	return p.boxes[key]
}

// postman is one rank's side of a post.
type postman struct {
	*post
	rank int
}

var errLost = errors.New("the post is lost")

func (p postman) Send(ctx context.Context, to int, payload []byte) error {
	if p.fault != nil {
		if err := p.fault(p.rank, to); err != nil {
			p.lose.Do(func() { close(p.lost) })
		}
	}
	select {
	case p.box(p.rank, to) <- bytes.Clone(payload):
		return nil
	case <-p.lost:
		return errLost
	case <-p.dead:
		return errDead
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p postman) Recv(ctx context.Context, from int, buf []byte) (int, error) {
	select {
	case payload := <-p.box(from, p.rank):
		return copy(buf, payload), nil
	case <-p.lost:
		return 0, errLost
	case <-p.dead:
		return 0, errDead
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// replicated returns the trial with two ranks on each node that keep replicas, and the post between them.
func (tr trial) replicated() (trial, *post) {
	tr.group = newGoroutineGroup(tr.world)
	p := newPost(tr.group)
	tr.each = func(rank int, o *Options) {
		o.Local, o.Peers, o.Node = localPath, postman{p, rank}, fmt.Sprint("n", rank/2)
	}
	return tr, p
}

func TestPartners(t *testing.T) {
	for _, row := range []struct {
		nodes string
		want  []int
	}{
		{"a", nil},
		{"a a a", nil},
		{"a b", []int{1, 0}},
		{"a a b b", []int{2, 3, 0, 1}},
		{"a a a b", []int{3, 3, 3, 0}},
		{"a b b b c c", []int{1, 4, 5, 4, 0, 0}},
		{"a b a b", []int{1, 0, 3, 2}},
	} {
		if got := partners(strings.Fields(row.nodes)); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.nodes, got, row.want)
		}
	}
}

// undrainedTwice is undrained on two nodes, with a replica of each shard.
func undrainedTwice(t *testing.T) *nodes {
	ns := newNodes(t, 2)
	tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: ns.fs(0)}.replicated()
	errs := tr.run(t.Context(), func(ctx context.Context, r *one) error {
		if err := r.saveAll(ctx, 1); err != nil {
			return err
		}
		ns.full.Store(true)
		return r.saveAll(ctx, 2)
	})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	ns.full.Store(false)
	return ns
}

// saveAll saves steps, and waits until the last one is in the shared folder.
func (r *one) saveAll(ctx context.Context, steps ...int64) error {
	for _, step := range steps {
		if err := r.save(ctx, step); err != nil {
			return err
		}
	}
	_, err := r.Wait(ctx)
	return err
}

// The shared folder was full, so step 2 is only on the nodes' disks, and one node is lost with its disk. The next attempt, which does not
// keep replicas, resumes from step 2 nevertheless. A damaged replica is not taken for a good one.
func TestReplicasOutliveANode(t *testing.T) {
	t.Parallel()
	for lost := range 2 {
		for name, harm := range map[string]struct {
			do   func(ns *nodes, left *vfstest.Mem)
			want int64
		}{
			"whole": {func(*nodes, *vfstest.Mem) {}, 2},
			"bit flip in a replica": {func(ns *nodes, left *vfstest.Mem) {
				for _, path := range tree(left, localPath) {
					if strings.Contains(path, "/replicas/") && strings.HasSuffix(path, ".ddpt") {
						flip(t, left, path)
					}
				}
			}, 1},
		} {
			t.Run(fmt.Sprint("node ", lost, " lost, ", name), func(t *testing.T) {
				t.Parallel()
				ns := undrainedTwice(t)
				left := ns.disks[1-lost]
				harm.do(ns, left)
				fresh, _ := newDisk(t)
				ns.disks[lost] = fresh
				mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(),
					func(ctx context.Context, r *one) error {
						if step, err := r.resume(ctx); step != harm.want || err != nil {
							return fmt.Errorf("resumed from %d, want %d: %w", step, harm.want, err)
						}
						return r.saveAll(ctx, 5)
					}))
				ns.wantEmpty(t)
			})
		}
	}
}

func (ns *nodes) wantEmpty(t *testing.T) {
	t.Helper()
	for i, disk := range ns.disks {
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("node %d keeps %v", i, files)
		}
	}
}

// No replica stays once everything is in the shared folder. Nodes may have different numbers of ranks, and ranks may have nothing to write.
func TestReplicasGoOnceAllIsShared(t *testing.T) {
	t.Parallel()
	for name, arrays := range map[string]func(int) []Array{"all write": arraysOf, "one writes": ownOf(1)} {
		for _, world := range []int{1, 2, 3, 4, 5, 6} {
			t.Run(fmt.Sprint(name, ", ", world, " ranks"), func(t *testing.T) {
				t.Parallel()
				ns := newNodes(t, (world+1)/2)
				var journal testkit.Journal
				tr, _ := trial{world: world, attempt: 1, o: Options{Async: true, Log: journal.Logger()}, fs: ns.fs(0),
					arrays: arrays}.replicated()
				mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return r.saveAll(ctx, 1, 2, 3, 4) }))
				if step, err := latest(ns.shared, 1); step != 4 || err != nil {
					t.Errorf("latest is %d: %v", step, err)
				}
				ns.wantEmpty(t)
				if said := strings.Contains(journal.String(), "all ranks are on the same node"); said != (world <= 2) {
					t.Errorf("log: %s", journal.String())
				}
			})
		}
	}
}

// If the disk of a node does not accept replicas, each of its ranks logs that at most once, and nothing else changes.
func TestFailedReplicaIsReportedOnce(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	var journal testkit.Journal
	fs := func(rank int) vfs.FS {
		return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
			if rank >= 2 && op.Kind == "write" && strings.Contains(op.Path, "/replicas/") {
				return vfstest.Fault{Err: syscall.ENOSPC}
			}
			return vfstest.Fault{}
		})
	}
	ns.full.Store(true) // so that replicas are wanted
	tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true, Log: journal.Logger()}, fs: fs}.replicated()
	var there atomic.Int32
	roomy := newGate()
	mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error {
		for step := int64(1); step <= 2; step++ {
			if err := r.saveAll(ctx, step); !errors.Is(err, checkpoint.ErrNoSpace) {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		if there.Add(1) == 4 {
			ns.full.Store(false)
			roomy.open()
		}
		roomy.passes()
		return r.saveAll(ctx, 3)
	}))
	if n := strings.Count(journal.String(), "does not accept the replica"); n < 1 || n > 2 { // one for each rank of the node
		t.Errorf("%d lines report it:\n%s", n, journal.String())
	}
	if step, err := latest(ns.shared, 1); step != 3 || err != nil {
		t.Errorf("latest is %d: %v", step, err)
	}
	ns.wantEmpty(t)
}

// replicatedCrash is crashRun with replicas, and with two ranks on each of two nodes. The victim's file systems die after its k-th
// operation.
func replicatedCrash(t *testing.T, victim, k int) (ns *nodes, acknowledged int64, operations int) {
	ns = newNodes(t, 2)
	in := vfstest.NewInjector(ns.fs(0)(victim), vfstest.CrashAfter(k))
	fs := func(rank int) vfs.FS {
		if rank == victim {
			return in
		}
		return ns.fs(0)(rank)
	}
	tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: fs, keep: checkpoint.Policy{Last: 2}}.replicated()
	return ns, tr.saveThree(t, victim, k), len(in.Log())
}

// TestCrashAmongReplicasLosesNothing lets the disks of one rank of each node die after each of its operations, and then cuts the power
// everywhere. In turn, both nodes are there after that, or one of them is lost. What was acknowledged must be there, and the next attempt
// must resume from a good checkpoint, whatever is torn.
func TestCrashAmongReplicasLosesNothing(t *testing.T) { // also without the race detector
	t.Parallel()
	for _, victim := range []int{0, 3} {
		t.Run(fmt.Sprint("rank ", victim), func(t *testing.T) {
			t.Parallel()
			_, whole, operations := replicatedCrash(t, victim, 1<<30)
			if whole != 3 {
				t.Fatalf("without a crash step %d is acknowledged", whole)
			}
			t.Logf("%d operations", operations)
			sparse := thin.Step(7)
			for k := victim % sparse; k <= operations; k += sparse {
				ns, acknowledged, _ := replicatedCrash(t, victim, k)
				lost := k%3 - 1
				after, percent := ns.crash(t, lost, k)
				before, err := survives(after.shared, acknowledged)
				if err == nil {
					err = after.goesOn(before)
				}
				if err != nil {
					t.Fatalf("rank %d dies after operation %d, %d %% kept, node %d lost, step %d acknowledged: %v", victim, k, percent,
						lost, acknowledged, err)
				}
			}
		})
	}
}

// crash returns the nodes after a power cut that keeps some of what was not synced. The disk of node lost is empty, unless lost is -1.
func (ns *nodes) crash(t *testing.T, lost, k int) (after *nodes, percent int) {
	percent = []int{0, 10, 50}[k/3%3]
	clone := func(m *vfstest.Mem, i int) *vfstest.Mem {
		return m.CrashClone(percent, rand.New(rand.NewPCG(uint64(k), uint64(i))))
	}
	after = &nodes{shared: clone(ns.shared, len(ns.disks))}
	for i, disk := range ns.disks {
		disk = clone(disk, i)
		if i == lost {
			disk, _ = newDisk(t)
		}
		after.disks = append(after.disks, disk)
	}
	return after, percent
}

// goesOn runs the next attempt, and wants it to leave nothing on the nodes' disks.
func (ns *nodes) goesOn(before int64) error {
	tr, _ := trial{world: 4, attempt: 2, o: Options{Async: true}, fs: ns.fs(0)}.replicated()
	err := errors.Join(tr.run(context.Background(), func(ctx context.Context, r *one) error {
		if from, err := r.resume(ctx); err != nil || from < before {
			return fmt.Errorf("resumed from %d, the latest was %d: %w", from, before, err)
		}
		return r.saveAll(ctx, 10)
	})...)
	if err != nil {
		return err
	}
	if step, err := latest(ns.shared, 2); step != 10 || err != nil {
		return fmt.Errorf("after the next attempt the latest is %d: %w", step, err)
	}
	for i, disk := range ns.disks {
		if files := tree(disk, localPath); len(files) > 0 {
			return fmt.Errorf("node %d keeps %v", i, files)
		}
	}
	return nil
}

// All nodes are there, but shards on some disks are damaged. As long as one of the two copies of each shard is good, the next attempt
// finishes the save. It warns if the damaged copy is not a replica.
func TestReplicaMendsDamagedShards(t *testing.T) {
	t.Parallel()
	const own, replica = "trial", "replicas"
	for name, row := range map[string]struct {
		harmed [][2]any // a node, and which of its shards
		want   int64
	}{
		"own of one node":          {[][2]any{{0, own}}, 2},
		"own of all nodes":         {[][2]any{{0, own}, {1, own}}, 2},
		"replicas of all nodes":    {[][2]any{{0, replica}, {1, replica}}, 2},
		"all of one node":          {[][2]any{{0, own}, {0, replica}}, 2},
		"a shard and its replica":  {[][2]any{{0, own}, {1, replica}}, 1},
		"everything on both nodes": {[][2]any{{0, own}, {0, replica}, {1, own}, {1, replica}}, 1},
	} {
		for _, shift := range []int{0, 1} { // the ranks are on the same nodes as before, or on the other ones
			t.Run(fmt.Sprint(name, ", shift ", shift), func(t *testing.T) {
				t.Parallel()
				ns := undrainedTwice(t)
				flipped := false
				for _, h := range row.harmed {
					disk := ns.disks[h[0].(int)]
					for _, path := range tree(disk, localPath) {
						if strings.HasSuffix(path, ".ddpt") && strings.Contains(path, "/replicas/") == (h[1] == replica) {
							flip(t, disk, path)
							flipped = flipped || h[1] == own
						}
					}
				}
				var journal testkit.Journal
				o := Options{Local: localPath, Log: journal.Logger()}
				mustAll(t, trial{world: 4, attempt: 2, o: o, fs: ns.fs(shift)}.run(t.Context(), func(ctx context.Context, r *one) error {
					if step, err := r.resume(ctx); step != row.want || err != nil {
						return fmt.Errorf("resumed from %d, want %d: %w", step, row.want, err)
					}
					return r.saveAll(ctx, 5)
				}))
				if said := strings.Contains(journal.String(), "own disks is damaged"); said != flipped {
					t.Errorf("log: %s", journal.String())
				}
				ns.wantEmpty(t)
			})
		}
	}
}
