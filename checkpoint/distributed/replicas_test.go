package distributed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// post carries messages between the ranks of a meeting; it ends with that.
type post struct {
	*meeting
	mu    sync.Mutex
	boxes map[[2]int]chan []byte
	fault func(from, to int) error // nil, or asked before each message; its error ends the post for all
	lost  chan struct{}
	lose  sync.Once
}

func newPost(m *meeting) *post {
	return &post{meeting: m, boxes: map[[2]int]chan []byte{}, lost: make(chan struct{})}
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
	tr.meeting = newMeeting(tr.world)
	p := newPost(tr.meeting)
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
			do   func(ns *nodes, left *vfs.Mem)
			want int64
		}{
			"whole": {func(*nodes, *vfs.Mem) {}, 2},
			"bit flip in a replica": {func(ns *nodes, left *vfs.Mem) {
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

// TestReplicasGo: nothing of them stays once all is in the shared folder, and no Save waits for any; nodes have as many ranks as they like, and ranks
// may have nothing to write.
func TestReplicasGo(t *testing.T) {
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
				if told := strings.Contains(journal.String(), "all ranks are on this one"); told != (world <= 2) {
					t.Errorf("log: %s", journal.String())
				}
			})
		}
	}
}

// TestReplicaCannotBeKept: one node's disk takes no replicas. That is said once, and nothing else changes.
func TestReplicaCannotBeKept(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 2)
	var journal testkit.Journal
	fs := func(rank int) vfs.FS {
		return vfs.NewInjector(ns.fs(0)(rank), func(_ int, op vfs.Op) vfs.Fault {
			if rank >= 2 && op.Kind == "write" && strings.Contains(op.Path, "/replicas/") {
				return vfs.Fault{Err: syscall.ENOSPC}
			}
			return vfs.Fault{}
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

// TestPeersAreLost: the k-th message breaks the connections between the ranks, for each k. Every save is saved all the same.
func TestPeersAreLost(t *testing.T) {
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

// TestRankDiesAmongReplicas: a rank dies before the k-th message; the others get errors, and no goroutine stays.
func TestRankDiesAmongReplicas(t *testing.T) {
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
