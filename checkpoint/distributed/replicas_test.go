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
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// post carries messages between the ranks of a group; it ends with that.
type post struct {
	*goroutineGroup
	mu    sync.Mutex
	boxes map[[2]int]chan []byte
	fault func(from, to int) error // nil, or asked before each message; its error ends the post for all
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

// postman is a rank's side.
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

// replicated makes a trial one whose ranks, two on a node, keep replicas.
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

// undrainedTwice is undrained with a replica of each shard.
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

// saveAll saves steps, and waits until they are in the shared folder.
func (r *one) saveAll(ctx context.Context, steps ...int64) error {
	for _, step := range steps {
		if err := r.save(ctx, step); err != nil {
			return err
		}
	}
	_, err := r.Wait(ctx)
	return err
}

// TestReplicasOutliveANode: the shared folder was full, so step 2 was on the nodes' disks alone, and one node is lost with its disk: the next
// attempt, without replicas of its own, goes on from step 2 nevertheless. What a replica has lost is not taken for good.
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
				mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0)}.run(t.Context(), func(ctx context.Context, r *one) error {
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

// TestReplicasGoOnceAllIsShared: nothing of them stays once all is in the shared folder, and no Save waits for any; nodes
// have as many ranks as they like, and ranks may have nothing to write.
func TestReplicasGoOnceAllIsShared(t *testing.T) {
	t.Parallel()
	for name, arrays := range map[string]func(int) []Array{"all write": arraysOf, "one writes": ownOf(1)} {
		for _, world := range []int{1, 2, 3, 4, 5, 6} {
			t.Run(fmt.Sprint(name, ", ", world, " ranks"), func(t *testing.T) {
				t.Parallel()
				ns := newNodes(t, (world+1)/2)
				var journal testkit.Journal
				tr, _ := trial{world: world, attempt: 1, o: Options{Async: true, Log: journal.Logger()}, fs: ns.fs(0), arrays: arrays}.replicated()
				mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return r.saveAll(ctx, 1, 2, 3, 4) }))
				if step, err := latest(ns.shared, 1); step != 4 || err != nil {
					t.Errorf("latest is %d: %v", step, err)
				}
				ns.wantEmpty(t)
				if said := strings.Contains(journal.String(), "all ranks are on this one"); said != (world <= 2) {
					t.Errorf("log: %s", journal.String())
				}
			})
		}
	}
}

// TestFailedReplicaIsSaidOnce: one node's disk takes no replicas. That is said once, and nothing else changes.
func TestFailedReplicaIsSaidOnce(t *testing.T) {
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
	if n := strings.Count(journal.String(), "does not take the replica"); n < 1 || n > 2 { // one for each rank of the node
		t.Errorf("%d lines tell of it:\n%s", n, journal.String())
	}
	if step, err := latest(ns.shared, 1); step != 3 || err != nil {
		t.Errorf("latest is %d: %v", step, err)
	}
	ns.wantEmpty(t)
}

// TestLostPeersCostNoSave: the k-th message breaks the connections between the ranks, for each k. Every save is saved all the same.
func TestLostPeersCostNoSave(t *testing.T) {
	t.Parallel()
	for k := int32(1); k <= 16; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			ns := newNodes(t, 2)
			tr, p := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: ns.fs(0)}.replicated()
			var n atomic.Int32
			p.fault = func(int, int) error {
				if n.Add(1) == k {
					return errLost
				}
				return nil
			}
			mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return r.saveAll(ctx, 1, 2, 3) }))
			if step, err := latest(ns.shared, 1); step != 3 || err != nil {
				t.Errorf("latest is %d: %v", step, err)
			}
			ns.wantEmpty(t)
		})
	}
}

// TestDeathAmongReplicasHangsNobody: a rank dies before the k-th message; the others get errors, and no goroutine stays.
func TestDeathAmongReplicasHangsNobody(t *testing.T) {
	t.Parallel()
	for k := int32(1); k <= 8; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			ns := newNodes(t, 2)
			ns.hold = newGate()
			defer ns.hold.open()
			tr, p := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: ns.fs(0)}.replicated()
			var n atomic.Int32
			p.fault = func(int, int) error {
				if n.Add(1) == k {
					p.kill()
					ns.hold.open()
				}
				return nil
			}
			for rank, err := range tr.run(t.Context(), func(ctx context.Context, r *one) error { return r.saveAll(ctx, 1, 2, 3) }) {
				if err == nil {
					t.Errorf("rank %d has heard of no death", rank)
				}
			}
		})
	}
}

// replicatedCrash is crashRun with replicas: two ranks on each of two nodes, of which the victim's own file systems die after its k-th operation.
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

// TestCrashAmongReplicasLosesNothing lets the disks of a rank of each node die after each of its operations, then cuts the
// power everywhere, and looks, by turns with either node gone for good or both there: what was acknowledged is there, and
// the next attempt goes on from something good, whatever is torn.
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
					t.Fatalf("rank %d dies after operation %d, %d %% kept, node %d lost, step %d acknowledged: %v", victim, k, percent, lost, acknowledged, err)
				}
			}
		})
	}
}

// crash is the same nodes after a power cut that keeps some of what was not synced, and the loss of one node.
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

// goesOn runs the next attempt, which leaves nothing of the one before.
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

// TestReplicaMendsDamagedShards: all nodes are there, and shards on some disks are damaged. As long as one of the two
// copies of each is good the save is finished, with a warning.
func TestReplicaMendsDamagedShards(t *testing.T) {
	t.Parallel()
	const own, replica = "trial", "replicas"
	for name, row := range map[string]struct {
		harmed [][2]any // node, and which of its files
		want   int64
	}{
		"own of one node":          {[][2]any{{0, own}}, 2},
		"own of all nodes":         {[][2]any{{0, own}, {1, own}}, 2},
		"replicas of all nodes":    {[][2]any{{0, replica}, {1, replica}}, 2},
		"all of one node":          {[][2]any{{0, own}, {0, replica}}, 2},
		"a shard and its replica":  {[][2]any{{0, own}, {1, replica}}, 1},
		"everything on both nodes": {[][2]any{{0, own}, {0, replica}, {1, own}, {1, replica}}, 1},
	} {
		for _, shift := range []int{0, 1} { // ranks are where they were, or have changed places
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

// TestSlowReplicaHoldsNothingUp: the shared folder is full, and one rank's disk takes no replica for a long time. Two more saves come to the nodes' own disks
// meanwhile; at the end nothing of what came late stays.
func TestSlowReplicaHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns, slow := newNodes(t, 2), newGate()
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
				if rank == 3 && op.Kind == "write" && strings.Contains(op.Path, "/replicas/") {
					return vfstest.Fault{Wait: slow.opened}
				}
				return vfstest.Fault{}
			})
		}
		tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: fs}.replicated()
		ns.full.Store(true)
		var through atomic.Int32
		mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error {
			if err := r.save(ctx, 1); err != nil {
				return err
			}
			time.Sleep(time.Minute) // the bubble's: step 1 is finalized, and all that is left to do is to copy it
			for step := int64(2); step <= 4; step++ {
				if err := r.saveAtLast(ctx, step); err != nil {
					return err
				}
			}
			if through.Add(1) == 4 {
				ns.full.Store(false)
				slow.open()
			}
			if _, err := r.Wait(ctx); err != nil && !errors.Is(err, checkpoint.ErrNoSpace) {
				return err
			}
			return r.saveAll(ctx, 5)
		}))
		if step, err := latest(ns.shared, 1); step != 5 || err != nil {
			t.Errorf("latest is %d: %v", step, err)
		}
		ns.wantEmpty(t)
	})
}

// saveAtLast saves a step after the errors of earlier ones, for which there was no room.
func (r *one) saveAtLast(ctx context.Context, step int64) error {
	for {
		if err := r.save(ctx, step); !errors.Is(err, checkpoint.ErrNoSpace) {
			return err
		}
	}
}

// TestCloseGivesUpTheReplica: the save is in the shared folder before the replica is there. Close gives the replica up,
// and waits until the disk lets go of it.
func TestCloseGivesUpTheReplica(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"create", "write", "sync", "rename", "syncdir", "mkdir"} {
		synctest.Test(t, func(t *testing.T) {
			ns, copying, slow := newNodes(t, 2), newGate(), newGate()
			fs := func(rank int) vfs.FS {
				return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
					switch {
					case rank == 2 && op.Kind == kind && strings.Contains(op.Path, "/replicas/"):
						copying.open()
						return vfstest.Fault{Wait: slow.opened}
					case rank == 0 && op.Kind == "create" && strings.Contains(op.Path, "/MANIFEST"):
						return vfstest.Fault{Wait: copying.opened} // else the copy may be given up before it begins
					}
					return vfstest.Fault{}
				})
			}
			var closed atomic.Bool
			go func() {
				time.Sleep(time.Minute) // the bubble's: all that can happen has happened
				if step, err := latest(ns.shared, 1); step != 1 || err != nil || closed.Load() {
					t.Errorf("%s: latest is %d: %v; closed while the disk held the replica: %t", kind, step, err, closed.Load())
				}
				slow.open()
			}()
			tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: fs}.replicated()
			mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return r.save(ctx, 1) }))
			closed.Store(true)
			synctest.Wait()
			ns.wantEmpty(t)
		})
	}
}

// TestEndWaitsForNoPartner: the ranks cannot meet any more while a shard is still being staged, and the connections for
// replicas are good. It waits for no partner, who may never come.
func TestEndWaitsForNoPartner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns, staging := newNodes(t, 2), newGate()
		fs := func(rank int) vfs.FS {
			return vfstest.NewInjector(ns.fs(0)(rank), func(_ int, op vfstest.Op) vfstest.Fault {
				if op.Kind == "create" && strings.Contains(op.Path, "/step-") {
					return vfstest.Fault{Wait: staging.opened}
				}
				return vfstest.Fault{}
			})
		}
		tr, _ := trial{world: 4, attempt: 1, o: Options{Async: true}, fs: fs}.replicated()
		p := newPost(newGoroutineGroup(4)) // outlives the other group
		tr.each = func(rank int, o *Options) {
			o.Local, o.Peers, o.Node = localPath, postman{p, rank}, fmt.Sprint("n", rank/2)
		}
		errs := tr.run(t.Context(), func(ctx context.Context, r *one) error {
			if r.rank > 0 {
				return nil
			}
			if err := r.save(ctx, 1); err != nil {
				return err
			}
			synctest.Wait()
			tr.group.kill()
			synctest.Wait()
			staging.open()
			return nil
		})
		for rank, err := range errs {
			if (rank == 0) != errors.Is(err, errDead) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// script is a Peers whose other rank says what is written down, then nothing any more.
type script []string

func (*script) Send(context.Context, int, []byte) error { return nil }

func (s *script) Recv(_ context.Context, _ int, buf []byte) (int, error) {
	if len(*s) == 0 {
		return 0, errLost
	}
	n := copy(buf, (*s)[0])
	*s = (*s)[1:]
	return n, nil
}

// TestHostileStreamIsNotKept: whatever another rank sends, nothing of it is kept unless it is a shard with its record; and
// the stream ends where it says so.
func TestHostileStreamIsNotKept(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		sent script
		left int // messages of the next stream, which must not be touched
		lost bool
	}{
		"nothing":               {sent: script{"x", "next"}, left: 1},
		"an end at once":        {sent: script{"e", "next"}, left: 1},
		"given up in the shard": {sent: script{"sabc", "x", "next"}, left: 1},
		"given up in between":   {sent: script{"sabc", "r{", "x", "next"}, left: 1},
		"no record":             {sent: script{"sabc", "e", "next"}, left: 1},
		"no shard":              {sent: script{"r{}\n", "e", "next"}, left: 1},
		"a record of nothing":   {sent: script{"sabc", "r{}\n", "e", "next"}, left: 1},
		"backwards":             {sent: script{"r{}\n", "sabc", "e", "next"}, left: 1},
		"a kind of its own":     {sent: script{"sabc", "zzz", "r{}\n", "e", "next"}, left: 1},
		"an empty message":      {sent: script{"sabc", "", "e"}, left: 1, lost: true},
		"cut in the shard":      {sent: script{"sabc"}, lost: true},
		"cut before the end":    {sent: script{"sabc", "r{}\n"}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, _ := newDisk(t)
			above := &tier{fs: disk, path: localPath + "/run", location: checkpoint.Location{Run: "trial", Path: sharedPath, Attempt: 1}, session: 7}
			others := &tier{fs: disk, path: above.path + "/replicas", location: above.location, session: 7, above: above}
			sent := row.sent
			p := &replicas{peers: &sent, tier: others}
			l, disked, lost := p.receive(t.Context(), sender{rank: 1, shard: shardNumber{i: 1, of: 2}}, &job{id: 1, ctx: t.Context(), meta: Meta{Step: 3}})
			if l != nil || disked != nil && !row.lost || (lost != nil) != row.lost || len(sent) != row.left {
				t.Errorf("kept %v, the disk says %v, the stream %v; %d messages are left, want %d", l, disked, lost, len(sent), row.left)
			}
			for _, path := range tree(disk, localPath) {
				if strings.Contains(path, "/step-") {
					t.Errorf("%s stays", path)
				}
			}
		})
	}
}
