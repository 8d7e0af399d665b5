package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestLostPeersCostNoSave breaks the connections between the ranks at the k-th message, for several k. Every save must succeed all the
// same.
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

// If a rank dies before the k-th message, all ranks get errors, and none hangs.
func TestDeathAmongReplicasHangsNoRank(t *testing.T) {
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

// The shared folder is full, and the disk of one rank does not finish writing a replica for a long time. Meanwhile more saves reach the
// nodes' own disks. At the end, no late replica is left.
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
			time.Sleep(time.Minute) // of the bubble; step 1 is finalized then, and only its copy remains to be done
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

// saveAtLast saves a step. It first receives the errors of earlier steps for which there was no room, and tries again.
func (r *one) saveAtLast(ctx context.Context, step int64) error {
	for {
		if err := r.save(ctx, step); !errors.Is(err, checkpoint.ErrNoSpace) {
			return err
		}
	}
}

// If a save is in the shared folder before its replica is complete, Close gives up the replica, and waits until the disk has finished the
// operation on it.
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
						return vfstest.Fault{Wait: copying.opened} // otherwise the copy may be given up before it begins
					}
					return vfstest.Fault{}
				})
			}
			var closed atomic.Bool
			go func() {
				time.Sleep(time.Minute) // of the bubble; everything else has happened then
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

// The group fails while a shard is still being staged, but the connections for replicas still work. The rank ends without waiting for its
// partner, which may never come.
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
		p := newPost(newGoroutineGroup(4)) // it outlives the other group
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

// script is a Peers whose other rank sends these messages and is lost after the last one.
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

// Whatever another rank sends, receive keeps it only if it is a shard with its record. receive stops at the message that ends the stream.
func TestHostileStreamIsNotKept(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		sent script
		left int // messages of the next stream, which receive must not read
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
			above := &tier{fs: disk, path: localPath + "/run", location: checkpoint.Location{Run: "trial", Path: sharedPath, Attempt: 1},
				session: 7}
			others := &tier{fs: disk, path: above.path + "/replicas", location: above.location, session: 7, above: above}
			sent := row.sent
			p := &replicas{peers: &sent, tier: others}
			from := sender{rank: 1, shard: shardNumber{i: 1, of: 2}}
			l, disked, lost := p.receive(t.Context(), from, &job{id: 1, ctx: t.Context(), meta: Meta{Step: 3}})
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
