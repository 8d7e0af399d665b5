package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// Random calls, with every way for the data to go, give the oracle's results in groups with all shapes of the tree.
func TestNodeAgreesWithAnOracle(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 8} {
		t.Run(fmt.Sprintf("%d_ranks", size), func(t *testing.T) {
			members := group(t, size)
			if err := errors.Join(together(members, func(m *member) error { return m.verify(uint64(size), 60) })...); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ranks order data with flags. The race detector distinguishes data by its address, so it can check this only for ranks that share one
// mapping.
func TestNodeOrdersDataInOneMapping(t *testing.T) {
	for _, size := range []int{2, 3} {
		var areas, regions []*Segment
		for range size {
			areas, regions = append(areas, create(t, AreaSize)), append(regions, create(t, regionSize))
		}
		members := make([]*member, size)
		failed := new(atomic.Bool)
		for rank := range members {
			node, err := NewNode(rank, areas, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := node.Register(regions); err != nil {
				t.Fatal(err)
			}
			readable := areas[0].ReadsOwner()
			members[rank] = &member{rank: rank, size: size, node: node, w: newWaiter(failed), region: regions[rank], readable: readable}
		}
		connectPorts(members)
		if err := errors.Join(together(members, func(m *member) error { return m.verify(77, 60) })...); err != nil {
			t.Error(err)
		}
	}
}

// With many ranks, some of the pieces of a buffer begin beyond its end. Those are empty.
func TestNodeOfManyHasEmptyPieces(t *testing.T) {
	for _, size := range []int{28, 48} {
		members := group(t, size)
		for _, length := range []int{inlineSize, inlineSize - 4, splitFrom + 4} {
			bufs := make([][]byte, size)
			errs := together(members, func(m *member) error {
				buf := make([]uint32, length/4)
				for i := range buf {
					buf[i] = uint32(i * (m.rank + 1))
				}
				bufs[m.rank] = bytesOf(buf)
				return m.node.AllReduce(m.w, Fingerprint{1}, bufs[m.rank], mixed)
			})
			inputs := make([][]uint32, size)
			for rank := range inputs {
				for i := range length / 4 {
					inputs[rank] = append(inputs[rank], uint32(i*(rank+1)))
				}
			}
			want := bytesOf(canonical(inputs))
			for rank, err := range errs {
				if err != nil || !bytes.Equal(bufs[rank], want) {
					t.Fatalf("%d ranks, %d bytes: rank %d got something else, %v", size, length, rank, err)
				}
			}
		}
	}
}

func TestProcessesShareANode(t *testing.T) {
	for _, size := range []int{2, 3} {
		startProcesses(t, size).run(t, order{Workload: "verify", Rounds: 100})
	}
}

// Ranks in different calls all get an error before data is touched, even if another rank is late.
func TestRanksInDifferentCallsAllLearnSo(t *testing.T) {
	members := group(t, 4)
	var out [4][]byte
	errs := together(members[:3], func(m *member) error { // rank 3 never comes
		out[m.rank] = []byte(strings.Repeat("x", 40000))
		fingerprint := Fingerprint{9}
		if m.rank == 2 {
			fingerprint = Fingerprint{8}
			return m.node.Broadcast(m.w, fingerprint, out[m.rank], 0)
		}
		return m.node.AllReduce(m.w, fingerprint, out[m.rank], mixed)
	})
	for rank, err := range errs {
		var diff *FingerprintError
		want := FingerprintError{Rank: 2, Fingerprint: Fingerprint{8}}
		if rank == 2 {
			want = FingerprintError{Rank: 0, Fingerprint: Fingerprint{9}}
		}
		if !errors.As(err, &diff) && !errors.Is(err, errGroupFailed) || diff != nil && diff.Fingerprint != want.Fingerprint {
			t.Errorf("rank %d: %v, want %v", rank, err, want)
		}
		if strings.Trim(string(out[rank]), "x") != "" {
			t.Errorf("rank %d: the data was touched", rank)
		}
		if again := members[rank].node.Barrier(members[rank].w, Fingerprint{}); again != err {
			t.Errorf("rank %d: %v, and then %v", rank, err, again)
		}
	}
}

func TestNodeRefusesAShortArea(t *testing.T) {
	if _, err := NewNode(0, []*Segment{create(t, AreaSize-1)}, true); err == nil {
		t.Error("a short area")
	}
}

func TestNodeCallsDoNotAllocate(t *testing.T) { // without the race detector
	members := group(t, 2)
	const runs, kinds = 20, 14
	bufs, outs := [2][2][]byte{}, [2][]byte{}
	for rank, m := range members {
		bufs[rank] = [2][]byte{make([]byte, 1<<20), m.region.Bytes()[:1<<20]}
		outs[rank] = make([]byte, 1<<19)
	}
	at, short, uneven := []int{0, 1 << 19, 1 << 20}, []int{0, 1024, 2048}, []int{0, 1000, 1000 + readFrom}
	received := [2][]int{{0, 1000, 2000}, {0, readFrom, 2 * readFrom}} // bounds for calls in which every rank sends by uneven
	step := func(m *member) error {
		var errs [2 * kinds]error
		for i, buf := range bufs[m.rank] {
			errs[kinds*i] = m.node.AllReduce(m.w, Fingerprint{}, buf, mixed)
			errs[kinds*i+1] = m.node.AllReduce(m.w, Fingerprint{}, buf[:512], mixed)
			errs[kinds*i+2] = m.node.Reduce(m.w, Fingerprint{}, buf, 1, mixed)
			errs[kinds*i+3] = m.node.Broadcast(m.w, Fingerprint{}, buf, 1)
			errs[kinds*i+4] = m.node.AllGather(m.w, Fingerprint{}, buf, at, block(buf, at, m.rank))
			errs[kinds*i+5] = m.node.ReduceScatter(m.w, Fingerprint{}, outs[m.rank], buf, at, mixed)
			errs[kinds*i+6] = m.node.AllToAll(m.w, Fingerprint{}, bufs[m.rank][1-i], buf, at)
			errs[kinds*i+7] = m.node.Barrier(m.w, Fingerprint{})
			errs[kinds*i+8] = m.node.Scatter(m.w, m.p, Fingerprint{}, outs[m.rank][:1024], buf[:2048], short, 0)
			errs[kinds*i+9] = m.node.Gather(m.w, m.p, Fingerprint{}, buf, at, outs[m.rank][:1<<19], 1)
			errs[kinds*i+10] = m.node.Scan(m.w, Fingerprint{}, buf, mixed)
			errs[kinds*i+11] = m.node.GatherV(m.w, m.p, Fingerprint{}, buf, uneven, outs[m.rank][:uneven[m.rank+1]-uneven[m.rank]], 0)
			errs[kinds*i+12] = m.node.ScatterV(m.w, m.p, Fingerprint{}, outs[m.rank][:uneven[m.rank+1]-uneven[m.rank]], buf, uneven, 1)
			errs[kinds*i+13] = m.node.AllToAllV(m.w, m.p, Fingerprint{}, bufs[m.rank][1-i], received[m.rank], buf, uneven)
		}
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	errs := together(members, func(m *member) error {
		var err error
		repeat := func() { err = errors.Join(err, step(m)) }
		if m.rank == 0 {
			if allocs := testing.AllocsPerRun(runs, repeat); allocs != 0 {
				t.Errorf("%v allocations", allocs)
			}
			return err
		}
		for range runs + 1 { // AllocsPerRun runs once more, to warm up
			repeat()
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Data in the slot of another rank is checked before it is used.
func TestHostileSlotsAreRefused(t *testing.T) {
	const far = uint64(1)<<refBits - 4
	long := make([]byte, 100_000)
	reduce := func(m *member) error {
		return m.node.AllReduce(m.w, Fingerprint{1}, m.region.Bytes()[:len(long)], mixed)
	}
	for what, tt := range map[string]struct {
		flag, ref uint64
		call      func(m *member) error
		read      bool // the kernel refuses it
	}{
		"flag_ahead":        {2, 0, reduce, false},
		"no_such_region":    {1, 2 << refBits, reduce, false},
		"region_none":       {1, 4, reduce, false},
		"beyond":            {1, 1<<refBits | regionSize - 99_996, reduce, false},
		"far_beyond":        {1, 1<<refBits | far, reduce, false},
		"within_an_element": {1, 1<<refBits | 2, reduce, false},
		"short": {1, 1 << refBits, func(m *member) error {
			return m.node.AllReduce(m.w, Fingerprint{1}, long[:8], mixed)
		}, false},
		"broadcast": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.Broadcast(m.w, Fingerprint{1}, long, 1)
		}, false},
		"all_gather": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.AllGather(m.w, Fingerprint{1}, long, []int{0, 4, len(long)}, long[:4])
		}, false},
		"own_memory_of_an_all_gather": {1, ownMemory<<refBits | 4096, func(m *member) error {
			half := len(long) / 2
			return m.node.AllGather(m.w, Fingerprint{1}, long, evenBounds(half, 2), long[:half])
		}, true},
		"own_memory_of_a_reduction": {1, ownMemory<<refBits | addressOf(long), reduce, false},
		"own_memory_of_a_broadcast": {1, ownMemory<<refBits | 4096, func(m *member) error {
			return m.node.Broadcast(m.w, Fingerprint{1}, long, 1)
		}, true},
		"all_to_all": {1, ownMemory<<refBits | 4096, func(m *member) error {
			return m.node.AllToAll(m.w, Fingerprint{1}, bytes.Clone(long), long, evenBounds(len(long)/2, 2))
		}, true},
		"reduce_scatter": {1, 1<<refBits | regionSize, func(m *member) error {
			return m.node.ReduceScatter(m.w, Fingerprint{1}, long[:4], long, []int{0, 4, len(long)}, mixed)
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			m := group(t, 2)[0]
			s := m.node.ranks[1].slots[1]
			s.fingerprint, s.ref = Fingerprint{1}, tt.ref
			s.flag.Store(tt.flag)
			want := ErrCorrupt
			if tt.read && m.readable {
				want = unix.EFAULT
			}
			testkit.Within(t, testkit.Patience, func() {
				if err := tt.call(m); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		})
	}
}

// Clocks that run ahead let a rank read data that is not there yet. It gets wrong numbers, which a hostile rank can send anyhow, but no
// other harm is done.
func TestHostileClocksDoNoMoreThanSpoilNumbers(t *testing.T) {
	m := group(t, 2)[0]
	peer := &m.node.ranks[1]
	for kind := range peer.counters {
		peer.counters[kind].Store(^uint64(0))
	}
	for call := uint64(1); call < 4; call++ {
		s := peer.slots[call%places]
		s.fingerprint = Fingerprint{1}
		s.flag.Store(call)
		if err := m.node.AllReduce(m.w, Fingerprint{1}, make([]byte, 5*chunkSize+4), mixed); err != nil {
			t.Error(err)
		}
	}
}

// FuzzHostileReference has a rank refer to arbitrary memory.
func FuzzHostileReference(f *testing.F) {
	m := group(f, 2)[0]
	f.Add(uint64(1)<<refBits, directFrom, 4)
	f.Add(uint64(1)<<refBits|regionSize, directFrom, 1)
	f.Add(^uint64(0), regionSize, 8)
	f.Add(uint64(ownMemory)<<refBits|4096, 1<<20, 1)
	f.Fuzz(func(t *testing.T, ref uint64, length, size int) {
		if length < 0 || length > 2*regionSize || size < 1 || size > line {
			return
		}
		peer := &m.node.ranks[1]
		peer.ref = ref
		if err := m.node.resolve(1, length, size, anywhere); err == nil && peer.view == nil { // the kernel refuses unmapped memory
			if err := m.node.fetch(m.w, make([]byte, length), 1, 0); err != nil && !errors.Is(err, unix.EFAULT) {
				t.Error(err)
			}
		}
		err := m.node.resolve(1, length, size, registered)
		view := peer.view
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		if len(view) != length {
			t.Fatalf("%d bytes, not %d", len(view), length)
		}
		_, _ = view[0], view[length-1] // mapped
	})
}

// mapped counts the segments in the address space of this process.
func mapped(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:"+name)
}

// A rank that is killed in the middle of a call leaves the others with an error, and leaves no files or mappings behind.
func TestKilledRankLeavesNothingBehind(t *testing.T) {
	if r, w, err := os.Pipe(); err == nil { // the runtime opens files of its own for the first pipe
		r.Close()
		w.Close()
	}
	files, maps := openFiles(t), mapped(t)
	p := startProcesses(t, 2)
	if got := mapped(t); got < maps+4 {
		t.Fatalf("%d segments are mapped, and %d were before", got, maps)
	}
	if err := p.in[0].Encode(order{Workload: "all_reduce", Bytes: 1 << 20, Rounds: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for range 20 {
		if err := p.node.AllReduce(p.w, Fingerprint{1}, buf, addFloats); err != nil {
			t.Fatal(err)
		}
	}
	var handles []Handle
	for _, s := range p.opened {
		handles = append(handles, s.Handle())
	}
	if err := p.cmds[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.cmds[0].Wait() // this also closes its pipes
		p.w.failed.Store(true)
	}()
	testkit.Within(t, testkit.Patience, func() {
		for {
			if err := p.node.AllReduce(p.w, Fingerprint{1}, buf, addFloats); err != nil {
				if !errors.Is(err, errGroupFailed) {
					t.Error(err)
				}
				return
			}
		}
	})
	<-ended
	for _, h := range handles {
		if s, err := Open(h); !errors.Is(err, ErrElsewhere) {
			t.Errorf("a dead process's segment: %v, %v", s, err)
		}
	}
	p.close()
	if got := mapped(t); got != maps {
		t.Errorf("%d segments are mapped, and %d were before", got, maps)
	}
	if got := openFiles(t); got > files {
		t.Errorf("%d open files, and %d were before", got, files)
	}
}

func benchmarkWorkload(b *testing.B, workload string, ranks int, shared bool, sizes ...int) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			p := startProcesses(b, ranks)
			p.run(b, order{Workload: workload, Bytes: size, Rounds: 2, Shared: shared})
			b.SetBytes(int64(size))
			b.ResetTimer()
			p.run(b, order{Workload: workload, Bytes: size, Rounds: b.N, Shared: shared})
		})
	}
}

func BenchmarkAllReduce2(b *testing.B) {
	benchmarkWorkload(b, "all_reduce", 2, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20, 64<<20)
}

func BenchmarkAllReduce2Registered(b *testing.B) {
	benchmarkWorkload(b, "all_reduce", 2, true, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20)
}

func BenchmarkAllReduce4(b *testing.B) {
	benchmarkWorkload(b, "all_reduce", 4, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20)
}

func BenchmarkReduce2(b *testing.B) {
	benchmarkWorkload(b, "reduce", 2, false, 64, 64<<10, 1<<20, 16<<20)
}
func BenchmarkBroadcast2(b *testing.B) {
	benchmarkWorkload(b, "broadcast", 2, false, 4, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkAllGather2(b *testing.B) {
	benchmarkWorkload(b, "all_gather", 2, false, 16, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkReduceScatter2(b *testing.B) {
	benchmarkWorkload(b, "reduce_scatter", 2, false, 16, 1<<10, 16<<10, 64<<10, 256<<10, 1<<20, 16<<20)
}
func BenchmarkBarrier2(b *testing.B) { benchmarkWorkload(b, "barrier", 2, false, 0) }
