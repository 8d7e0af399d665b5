package distributed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"

	"pgregory.net/rapid"
)

func bytesOf(name string, n int, replicated bool) listing {
	return listing{Name: name, DType: "uint8", Shape: []int{n}, Bytes: int64(n), Replicated: replicated}
}

func repeat(world int, list []listing) [][]listing {
	lists := make([][]listing, world)
	for i := range lists {
		lists[i] = list
	}
	return lists
}

func TestPlanRefusesBadLists(t *testing.T) {
	t.Parallel()
	wrong := bytesOf("w", 8, true)
	wrong.Bytes = 9
	double := listing{Name: "w", DType: "float32", Shape: []int{2}, Bytes: 8, Replicated: true}
	huge := listing{Name: "w", DType: "float32", Shape: []int{1 << 40, 1 << 40}, Bytes: 8}
	for _, test := range []struct {
		name  string
		lists [][]listing
		want  string
	}{
		{"other shape", [][]listing{{bytesOf("w", 8, true)}, {bytesOf("w", 9, true)}},
			`array "w" is uint8 [8] on rank 0 and uint8 [9] on rank 1`},
		{"other dtype", [][]listing{{bytesOf("w", 8, true)}, {double}}, `array "w" is uint8 [8] on rank 0 and float32 [2] on rank 1`},
		{"two owners", [][]listing{{bytesOf("w", 8, false)}, nil, {bytesOf("w", 8, false)}}, `ranks 0 and 2 both list array "w"`},
		{"owned and replicated", [][]listing{{bytesOf("w", 8, false)}, {bytesOf("w", 8, true)}}, `both list array "w"`},
		{"twice", [][]listing{{bytesOf("w", 8, true), bytesOf("w", 8, true)}}, `lists array "w" twice`},
		{"size", [][]listing{{wrong}}, "needs 8 bytes, it has 9"},
		{"overflow", [][]listing{{huge}}, "list of rank 0"},
		{"name", [][]listing{{bytesOf("a\nb", 8, true)}}, "control character"},
		{"no name", [][]listing{{bytesOf("", 8, true)}}, "list of rank 0"},
	} {
		if _, err := makePlan(test.lists); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}

// No rank writes more than 1.1 times its even share of the replicated arrays.
func TestPlanSharesReplicatedArraysEvenly(t *testing.T) {
	t.Parallel()
	var list []listing
	for i, n := range []int{4 << 20, 4 << 10, 1 << 20, 1000, 12, 0, 3<<20 + 7} {
		list = append(list, bytesOf(fmt.Sprint("array ", i), n, true))
	}
	for world := 1; world <= 8; world++ {
		p, err := makePlan(repeat(world, list))
		if err != nil {
			t.Fatal(err)
		}
		for rank := range world {
			if got, even := p.loads(world)[rank], p.bytes()/int64(world); 10*got > 11*even {
				t.Errorf("rank %d of %d writes %d bytes, more than 1.1 x %d", rank, world, got, even)
			}
		}
	}
}

// A rank that has arrays of its own writes less of the arrays that all ranks hold.
func TestPlanEvensOutWhatRanksWrite(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	p, err := makePlan([][]listing{
		{bytesOf("all", 400*kib, true), bytesOf("first", 100*kib, false)},
		{bytesOf("all", 400*kib, true)},
		{bytesOf("all", 400*kib, true), bytesOf("last", 300*kib, false)},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Rank 2 has 300 KiB of its own. The other ranks write 250 KiB each: rank 0 writes 150 and rank 1 writes 250 of the common 400 KiB.
	want := plan{
		{"all", "uint8", []int{400 * kib}, []cut{{0, 0, 148 * kib}, {1, 148 * kib, 252 * kib}}},
		{"first", "uint8", []int{100 * kib}, []cut{{0, 0, 100 * kib}}},
		{"last", "uint8", []int{300 * kib}, []cut{{2, 0, 300 * kib}}},
	}
	if !reflect.DeepEqual(p, want) { // 150 KiB is halfway between 148 and 152 KiB, and is rounded down
		t.Errorf("plan %v, want %v", p, want)
	}
}

// For any lists, the cuts of every array cover it once and in order, begin at multiples of cutMultiple, and are given to ranks that hold
// the array. The plan is the same every time.
func TestPlanCoversEveryArrayOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 8).Draw(t, "world")
		lists := make([][]listing, world)
		holders := map[string][]int{}
		sizes := map[string]int64{}
		for i := range rapid.IntRange(0, 12).Draw(t, "arrays") {
			name, size := fmt.Sprint("a", i),
				rapid.SampledFrom([]int{0, 1, 100, 4095, 4096, 4097, 10_000, 100_000, 1_000_000}).Draw(t, "size")
			who := rapid.SliceOfNDistinct(rapid.IntRange(0, world-1), 1, world, rapid.ID[int]).Draw(t, "holders")
			slices.Sort(who)
			holders[name], sizes[name] = who, int64(size)
			replicated := len(who) > 1 || rapid.Bool().Draw(t, "replicated")
			for _, rank := range who {
				lists[rank] = append(lists[rank], bytesOf(name, size, replicated))
			}
		}
		p, err := makePlan(lists)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := makePlan(lists); !reflect.DeepEqual(p, again) {
			t.Fatal("another plan the second time")
		}
		load := make([]int64, world)
		for _, a := range p {
			var at int64
			for _, c := range a.Cuts {
				if c.Start != at || c.Length <= 0 || c.Start%cutMultiple != 0 || !slices.Contains(holders[a.Name], c.Rank) {
					t.Fatalf("%s: cuts %v, held by %v", a.Name, a.Cuts, holders[a.Name])
				}
				at += c.Length
				load[c.Rank] += c.Length
			}
			if at != sizes[a.Name] {
				t.Fatalf("%s: cuts %v of %d bytes", a.Name, a.Cuts, sizes[a.Name])
			}
		}
		if len(p) != len(sizes) {
			t.Fatalf("%d arrays planned of %d", len(p), len(sizes))
		}
		checkTensors(t, p, load, rapid.Bool().Draw(t, "tier"))
	})
}

// checkTensors checks that the tensors that the checkpoint package gets cover every shard, too, and that every rank with bytes has a shard.
func checkTensors(t *rapid.T, p plan, load []int64, tier bool) {
	writers := p.writers(tier)
	ends, want := make([]int64, len(writers)), make([]int64, len(writers))
	for rank, bytes := range load {
		if s := shardOf(rank, writers); !s.none() {
			want[s.i] = bytes
		} else if bytes > 0 {
			t.Fatalf("rank %d writes %d bytes, and has no shard", rank, bytes)
		}
	}
	for _, a := range p.tensors(writers) {
		for _, e := range a.Extents {
			if e.Offset != ends[e.Shard] {
				t.Fatalf("%s begins at %d of shard %d, want %d", a.Name, e.Offset, e.Shard, ends[e.Shard])
			}
			ends[e.Shard] += e.Length
		}
	}
	if !slices.Equal(ends, want) {
		t.Fatalf("shards of %v bytes, want %v", ends, want)
	}
}

// TestSharesAreLevel compares shares with its definition: all ranks that get something end at the same level, and no rank ends below it.
func TestSharesAreLevel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		load := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 8).Draw(t, "load")
		total := rapid.Int64Range(0, 300).Draw(t, "total")
		holders := make([]int, len(load))
		for i := range holders {
			holders[i] = i
		}
		share := shares(total, holders, load)
		var sum, top int64
		for i, s := range share {
			if s < 0 {
				t.Fatalf("shares %v", share)
			}
			if sum += s; s > 0 {
				top = max(top, load[i]+s)
			}
		}
		if sum != total {
			t.Fatalf("shares %v are not %d together", share, total)
		}
		for i, s := range share {
			if load[i]+s < top-1 {
				t.Fatalf("loads %v, shares %v: rank %d stays at %d, below %d", load, share, i, load[i]+s, top)
			}
		}
	})
}

func TestPiecesRefuseForeignPlan(t *testing.T) {
	t.Parallel()
	arrays := []Array{{Name: "w", DType: "uint8", Shape: []int{8}, Data: make([]byte, 8)}}
	for _, c := range []cut{{0, 0, 9}, {0, -1, 2}, {0, 8, 1}, {0, 1 << 62, 1 << 62}, {0, 2, -1}} {
		p := plan{{Name: "w", DType: "uint8", Shape: []int{8}, Cuts: []cut{c}}}
		if _, err := p.pieces(0, arrays); err == nil {
			t.Errorf("cut %v of 8 bytes is taken", c)
		}
	}
}

// If the plan does not fit into a manifest, New fails, not the first save.
func TestNewRefusesPlanThatNoManifestHolds(t *testing.T) { // without the race detector
	t.Parallel()
	if thin.Step(2) > 1 {
		t.Skip("64 MiB of JSON take half a minute under the race detector: without it, and without -short, it runs")
	}
	_, fs := newDisk(t)
	names := strings.Repeat("x", 240)
	var arrays []Array
	for i := range 240_000 { // 300 bytes of JSON each, more than 64 MiB together
		arrays = append(arrays, Array{Name: fmt.Sprint(names, i), DType: "uint8", Shape: []int{1}, Data: []byte{1}})
	}
	dir, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: fs(0)})
	must(t, err)
	if _, err := New(t.Context(), newGoroutineGroup(1).member(0), dir, arrays, Options{FS: fs(0)}); err == nil ||
		!strings.Contains(err.Error(), "no manifest can hold the 240000 arrays") {
		t.Errorf("New: %v", err)
	}
}

func TestAllRanksSayHowOptionsDiffer(t *testing.T) {
	t.Parallel()
	_, fs := newDisk(t)
	m := newGoroutineGroup(2)
	for _, o := range []Options{{Async: true}, {Delta: 1}, {Errors: []error{errDead}}, {Check: func(string, []byte) error { return nil }}} {
		for rank, err := range testkit.Each(2, func(rank int) error {
			tr := trial{world: 2, attempt: 1, fs: fs}
			if rank == 1 {
				tr.o = o
			}
			return tr.rank(t.Context(), m.member(rank), func(context.Context, *one) error { return nil })
		}) {
			if err == nil || !strings.Contains(err.Error(), "rank 1 has other options than rank 0: ") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

// smallState returns a state that is smaller than cutMultiple, so one rank in the middle writes all of it.
func smallState(int) []Array {
	return []Array{
		{Name: "weight", DType: "float32", Shape: []int{250}, Data: make([]byte, 1000), Replicated: true},
		{Name: "empty", DType: "float32", Shape: []int{0}, Replicated: true},
	}
}

// ownOf returns a state that only some ranks hold.
func ownOf(ranks ...int) func(rank int) []Array {
	return func(rank int) []Array {
		for _, r := range ranks {
			if r == rank {
				return []Array{{Name: fmt.Sprintf("own.%d", rank), DType: "uint8", Shape: []int{100 + rank}, Data: make([]byte, 100+rank)}}
			}
		}
		return nil
	}
}

func TestWriters(t *testing.T) {
	t.Parallel()
	of := func(ranks ...int) plan {
		p := plan{{Name: "empty"}}
		for _, rank := range ranks {
			p = append(p, planned{Cuts: []cut{{Rank: rank, Length: 1}, {Rank: 9, Start: 1, Length: 1}}})
		}
		return p
	}
	for _, test := range []struct {
		p    plan
		tier bool
		want []int
	}{
		{of(4, 2, 4), false, []int{2, 4, 9}},
		{of(4, 2, 4), true, []int{0, 2, 4, 9}},
		{of(0, 3), true, []int{0, 3, 9}},
		{of(), false, []int{0}},
		{of(), true, []int{0}},
	} {
		if got := test.p.writers(test.tier); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v, tier %v: %v write, want %v", test.p, test.tier, got, test.want)
		}
	}
}

// If 64 ranks have a small state, or few of them hold any, only the ranks that have bytes to write make files. The checkpoint still records
// 64 ranks, and another number of ranks can resume from it.
func TestOnlyRanksWithBytesWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrays func(int) []Array
		o      Options
		quick  bool
		shards int // of every checkpoint
	}{
		"small":               {arrays: smallState, shards: 1},
		"small async delta":   {arrays: smallState, o: Options{Async: true, Delta: 1}, shards: 1},
		"small quick":         {arrays: smallState, quick: true, shards: 1},
		"few":                 {arrays: ownOf(3, 17, 63), o: Options{Async: true}, shards: 3},
		"few with a tier":     {arrays: ownOf(3, 17, 63), o: Options{Async: true, Local: localPath}, shards: 4},
		"nobody":              {arrays: ownOf(), shards: 1},
		"nobody, and a tier":  {arrays: ownOf(), o: Options{Local: localPath}, shards: 1},
		"small with a tier":   {arrays: smallState, o: Options{Local: localPath}, shards: 2},
		"small, tier, quick":  {arrays: smallState, o: Options{Local: localPath}, quick: true, shards: 2},
		"all of them, a tier": {arrays: arraysOf, o: Options{Local: localPath}, shards: 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			var begun, made atomic.Int32
			count := func(rank int) vfs.FS {
				return vfstest.NewInjector(fs(rank), func(_ int, op vfstest.Op) vfstest.Fault {
					if op.Kind == "create" && begun.Load() == 64 && strings.Contains(op.Path, sharedPath+"/step-") &&
						strings.Contains(op.Path, "/shard-") {
						made.Add(1)
					}
					return vfstest.Fault{}
				})
			}
			mustAll(t, trial{world: 64, attempt: 1, o: test.o, fs: count, arrays: test.arrays}.run(t.Context(),
				func(ctx context.Context, r *one) error {
					if _, err := r.resume(ctx); err != nil {
						return err
					}
					begun.Add(1)
					for step := int64(1); step <= 3; step++ {
						r.at(step)
						m := Meta{Step: step, Quick: test.quick, Values: valuesOf(step)}
						if err := r.Save(ctx, m); err != nil {
							return err
						}
						info, err := r.Wait(ctx)
						if err != nil || info.Step != step || info.World != 64 {
							return fmt.Errorf("step %d: %+v: %w", step, info, err)
						}
					}
					return nil
				}))
			if made.Load() != int32(3*test.shards) {
				t.Errorf("%d shards written in three saves, want %d each", made.Load(), test.shards)
			}
			for step := 1; step <= 3; step++ {
				folder := filepath.Join(sharedPath, fmt.Sprintf("step-%012d", step))
				if files := tree(disk, folder); len(files) != test.shards+1 {
					t.Errorf("step %d: %v, want %d shards and a manifest", step, files, test.shards)
				}
			}
			if step, err := latest(disk, 1); step != 3 || err != nil {
				t.Errorf("latest is %d: %v", step, err)
			}
			mustAll(t, trial{world: 3, attempt: 2, o: test.o, fs: fs}.run(t.Context(), resumesFrom(3)))
		})
	}
}

// Of 7 ranks on four nodes, two have bytes, and rank 0 does not. Step 2 stays on the nodes' disks. The next attempt commits it as a
// checkpoint of 7 ranks.
func TestUncommittedSaveOfFewWritersIsCommitted(t *testing.T) {
	t.Parallel()
	ns := newNodes(t, 4)
	saves := trial{world: 7, attempt: 1, o: Options{Async: true, Local: localPath}, fs: ns.fs(0), arrays: ownOf(3, 6)}
	errs := saves.run(t.Context(), func(ctx context.Context, r *one) error {
		if _, err := r.resume(ctx); err != nil {
			return err
		}
		for step := int64(1); step <= 2; step++ {
			if err := r.save(ctx, step); err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			ns.full.Store(true)
		}
		return nil
	})
	wantAll(t, errs, checkpoint.ErrNoSpace, "rank ")
	ns.full.Store(false)
	mustAll(t, trial{world: 8, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(1)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			c, err := r.Resume(ctx, check)
			if err != nil {
				return err
			}
			if c.Step() != 2 || c.Info().World != 7 {
				err = fmt.Errorf("resumed from step %d, which %d ranks have saved", c.Step(), c.Info().World)
			}
			return errors.Join(err, c.Close())
		}))
	for i, disk := range ns.disks {
		if files := tree(disk, localPath); len(files) > 0 {
			t.Errorf("node %d keeps %v", i, files)
		}
	}
}

// TestLostGroupEndsRankWithoutBytes makes the group fail at each collective of a save in turn. All ranks must end with an error, including
// those that write nothing.
func TestLostGroupEndsRankWithoutBytes(t *testing.T) {
	t.Parallel()
	for k := 1; k < 40; k++ {
		_, fs := newDisk(t)
		m := newGoroutineGroup(3)
		var died atomic.Bool
		m.fault = func(rank, call int) error {
			if rank == 0 && call == k {
				died.Store(true)
				return errDead
			}
			return nil
		}
		o := Options{Async: true, tick: time.Hour} // only news makes collectives, however slow the machine is
		errs := trial{world: 3, attempt: 1, fs: fs, group: m, arrays: ownOf(1), o: o}.run(t.Context(),
			func(ctx context.Context, r *one) error {
				if err := r.save(ctx, 1); err != nil {
					return err
				}
				_, err := r.Wait(ctx)
				return err
			})
		if !died.Load() {
			mustAll(t, errs)
			if k < 5 {
				t.Errorf("a save took only %d collectives", k)
			}
			return
		}
		wantAll(t, errs, errDead, "")
	}
	t.Error("a save of one rank's bytes takes more than 40 collectives")
}

// The group may fail before a rank without a shard, and so without a draft, has reported that it is done.
func TestGroupMayBeLostBeforeADraft(t *testing.T) {
	t.Parallel()
	s := &Saver{channel: newChannel(newGoroutineGroup(2).member(1), nil), changed: make(chan struct{})}
	s.rounds = newRounds(s)
	s.rounds.writing = &writing{cancel: func() {}}
	s.rounds.stop(errDead)
	if !errors.Is(s.broken, errDead) {
		t.Errorf("the saver ended with %v", s.broken)
	}
}

// What an earlier attempt has left on a node is removed even if the ranks that are now on the node write nothing.
func TestRanksWithoutBytesSweepLeftovers(t *testing.T) {
	t.Parallel()
	ns := undrained(t) // it leaves files on nodes 0 and 1
	ns.disks = []*vfstest.Mem{ns.disks[2], ns.disks[1]}
	mustAll(t, trial{world: 4, attempt: 2, o: Options{Local: localPath}, fs: ns.fs(0), arrays: ownOf(1)}.run(t.Context(),
		func(ctx context.Context, r *one) error {
			if _, err := r.Resume(ctx, func(*checkpoint.Checkpoint) error { return nil }); err != nil {
				return err
			}
			if err := r.save(ctx, 5); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
	if files := tree(ns.disks[1], localPath); len(files) > 0 {
		t.Errorf("node 1 keeps %v", files)
	}
}
