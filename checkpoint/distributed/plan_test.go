package distributed

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/thin"
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

func TestPlanRefuses(t *testing.T) {
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
		{"other shape", [][]listing{{bytesOf("w", 8, true)}, {bytesOf("w", 9, true)}}, `array "w" is uint8 [8] on rank 0 and uint8 [9] on rank 1`},
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

// TestPlanOfPlainDataParallelism: every rank writes its part of the whole, rank 0 not a tenth more.
func TestPlanOfPlainDataParallelism(t *testing.T) {
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

// TestPlanFillsUp: who holds something alone writes less of what all hold.
func TestPlanFillsUp(t *testing.T) {
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
	// Rank 2 has 300 KiB of its own; the others reach 250 each: 150 and 250 of the common 400 KiB.
	want := plan{
		{"all", "uint8", []int{400 * kib}, []cut{{0, 0, 148 * kib}, {1, 148 * kib, 252 * kib}}},
		{"first", "uint8", []int{100 * kib}, []cut{{0, 0, 100 * kib}}},
		{"last", "uint8", []int{300 * kib}, []cut{{2, 0, 300 * kib}}},
	}
	if !reflect.DeepEqual(p, want) { // 150 KiB is half-way between 148 and 152: down
		t.Errorf("plan %v, want %v", p, want)
	}
}

// TestPlanCovers: whatever the lists, the cuts of every array cover it once, at grains, by holders, in order; the plan is the same every
// time; and no rank could give a grain or more to another holder and even things out.
func TestPlanCovers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 8).Draw(t, "world")
		lists := make([][]listing, world)
		holders := map[string][]int{}
		sizes := map[string]int64{}
		for i := range rapid.IntRange(0, 12).Draw(t, "arrays") {
			name, size := fmt.Sprint("a", i), rapid.SampledFrom([]int{0, 1, 100, 4095, 4096, 4097, 10_000, 100_000, 1_000_000}).Draw(t, "size")
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
				if c.Start != at || c.Length <= 0 || c.Start%grain != 0 || !slices.Contains(holders[a.Name], c.Rank) {
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

// checkTensors: what is told to the checkpoint package covers every shard, too; and who has bytes has a shard.
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

// TestSharesAreLevel compares with the definition: those who get something end at one level, and nobody who gets nothing is below it.
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

// TestPlanThatNoManifestHolds: New says so, not the first save.
func TestPlanThatNoManifestHolds(t *testing.T) { // without the race detector
	t.Parallel()
	if thin.Step(2) > 1 {
		t.Skip("64 MiB of JSON take half a minute under the race detector: without it, and without -short, it runs")
	}
	_, fs := newDisk(t)
	names := strings.Repeat("x", 240)
	var arrays []Array
	for i := range 240_000 { // times 300 bytes of JSON: more than 64 MiB
		arrays = append(arrays, Array{Name: fmt.Sprint(names, i), DType: "uint8", Shape: []int{1}, Data: []byte{1}})
	}
	dir, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: fs(0)})
	must(t, err)
	if _, err := New(t.Context(), newMeeting(1).member(0), dir, arrays, Options{FS: fs(0)}); err == nil || !strings.Contains(err.Error(), "no manifest can hold the 240000 arrays") {
		t.Errorf("New: %v", err)
	}
}

// TestOptionsThatDiffer: all ranks hear in what.
func TestOptionsThatDiffer(t *testing.T) {
	t.Parallel()
	_, fs := newDisk(t)
	m := newMeeting(2)
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
