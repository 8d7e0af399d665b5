package mpi

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/element"
)

// conformRounds is for those who want more cases, and all sizes of worlds: go test ./mpi -run 'Conformance|Determinism' -args -rounds 100
var conformRounds = flag.Int("rounds", 1, "random cases of each algorithm, transport and number of ranks, in the conformance test")

// cases are the collectives with one element type. Each plays one round and checks what has come of it.
type cases interface {
	name() string
	allReduce(r *round) error
	reduce(r *round) error
	reduceScatter(r *round) error
	reduceScatterV(r *round) error
	scan(r *round) error
	exscan(r *round) error
	broadcast(r *round) error
	allGather(r *round) error
	allGatherV(r *round) error
	gather(r *round) error
	gatherV(r *round) error
	scatter(r *round) error
	scatterV(r *round) error
	allToAll(r *round) error
	allToAllV(r *round) error
}

// everyKind is the 15 element types.
var everyKind = []cases{
	kindFloat32, kindFloat64, kindFloat16, kindBFloat16, kindBool, kindComplex64, kindComplex128,
	whole[int8]("int8"), whole[int16]("int16"), whole[int32]("int32"), whole[int64]("int64"),
	whole[uint8]("uint8"), whole[uint16]("uint16"), whole[uint32]("uint32"), whole[uint64]("uint64"),
}

// conformance is one collective.
type conformance struct {
	name   string
	shares bool // it can use the memory that ranks share
	kind   collective
	table  int // which of the kind's algorithms it has
	run    func(k cases, r *round) error
}

// conformity is every collective.
var conformity = []conformance{
	{"all_reduce", true, allReduceCall, 0, cases.allReduce},
	{"reduce", true, reduceCall, 0, cases.reduce},
	{"reduce_scatter", true, reduceScatterCall, 0, cases.reduceScatter},
	{"reduce_scatter_v", true, reduceScatterCall, 0, cases.reduceScatterV},
	{"scan", false, scanCall, 0, cases.scan},
	{"exscan", false, exscanCall, 0, cases.exscan},
	{"broadcast", true, broadcastCall, 0, cases.broadcast},
	{"all_gather", true, allGatherCall, 0, cases.allGather},
	{"all_gather_v", true, allGatherCall, 0, cases.allGatherV},
	{"gather", false, gatherCall, 0, cases.gather},
	{"gather_v", false, gatherCall, 1, cases.gatherV},
	{"scatter", false, scatterCall, 0, cases.scatter},
	{"scatter_v", false, scatterCall, 1, cases.scatterV},
	{"all_to_all", true, allToAllCall, 0, cases.allToAll},
	{"all_to_all_v", false, allToAllCall, 1, cases.allToAllV},
	{"barrier", true, barrierCall, 0, func(_ cases, r *round) error {
		return r.do(func() error { return r.c.Barrier(r.ctx) }, func() *Request { return r.c.IBarrier(r.ctx) })
	}},
}

// names is all that may be named for the collective on c, and whether that keeps the canonical order.
func (tt conformance) names(c *Comm) map[string]bool {
	names := tt.algorithms(c.Size())
	if tt.shares && c.core.node != nil {
		names[sharedName] = true
	}
	if h := c.core.hierarchy; h != nil && tt.name == "all_reduce" {
		names[hierarchicalName] = h.canonical()
	}
	return names
}

// namesOn are the algorithms, sorted, that a collective has for size ranks on one of transports, without the hierarchy; none for none.
func namesOn(over string, size int, collective string) []string {
	var names []string
	for _, tt := range conformity {
		if tt.name != collective {
			continue
		}
		names = sortedKeys(tt.algorithms(size))
		if tt.shares && over == "shm" && size > 1 {
			names = append(names, sharedName)
		}
	}
	return names
}

// algorithms are those that fit, and whether they keep the canonical order.
func (tt conformance) algorithms(size int) map[string]bool {
	names := make(map[string]bool)
	for _, e := range collectives[tt.kind].algorithms[tt.table] {
		if e.Fits == nil || e.Fits(size) {
			names[e.Name] = e.Canonical
		}
	}
	return names
}

// conform plays rounds of every algorithm of every collective, with and without a Request, as one rank; what else a round is made
// of, dice say. The Comm must not be deterministic. The ranks of one world give the same seed.
func conform(ctx context.Context, c *Comm, seed uint64, rounds int) error {
	dice := rand.New(rand.NewPCG(seed, 0))
	own := rand.New(rand.NewPCG(seed, uint64(c.Rank()+1)))
	pool, err := Alloc[uint8](ctx, c, 256<<10)
	if err != nil {
		return err
	}
	for range rounds {
		for _, tt := range conformity {
			names := tt.names(c)
			names[""] = false
			for _, name := range sortedKeys(names) {
				k := everyKind[dice.IntN(len(everyKind))]
				r := &round{ctx: ctx, c: c.Using(name), dice: dice, own: own, free: pool, canonical: names[name]}
				r.draw()
				if err := tt.run(k, r); err != nil {
					return fmt.Errorf("%s of %s by %q, %+v: %w", tt.name, k.name(), name, r.size, err)
				}
			}
		}
	}
	return nil
}

func sortedKeys(m map[string]bool) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// worlds are the numbers of ranks of Gloo's tests (gloo/test) without the largest.
var worlds = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16}

func TestConformanceOfEveryCollective(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, over := range transports {
		for _, size := range sizesOn(over, worlds) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				w := newWorldOn(t, over, size, func(cfg *InitConfig) { cfg.Config.Deterministic = false })
				rounds := *conformRounds
				if over == "local" && !testing.Short() && !raceEnabled {
					rounds *= 4
				}
				must(t, testkit.Each(size, func(rank int) error { return conform(t.Context(), w[rank], seed, rounds) }))
			})
		}
	}
}

// reduction is an operation, and what it makes of the inputs of a round. These are small enough for every order to give
// the same.
type reduction[T Number] struct {
	op     Op
	input  func(rank, i int) T
	result func(i, ranks int) T // of the first ranks
}

// reduction draws one that the element type has.
func (k kind[T]) reduction(r *round, scan bool) reduction[T] {
	input := func(rank, i int) T { return k.of((rank*5+i*3+r.salt)%7 + 1) }
	folded := func(input func(rank, i int) T, f func(a, b T) T) func(i, ranks int) T {
		return func(i, ranks int) T {
			column := make([]T, ranks)
			for rank := range column {
				column[rank] = input(rank, i)
			}
			return tree(column, f)
		}
	}
	var all []reduction[T]
	for op := Sum; op <= BXor; op++ {
		f := k.fold(op)
		if f == nil {
			continue
		}
		of := input
		if op == Product {
			of = func(rank, i int) T { return k.of(1 + (rank+i+r.salt)%6/5) }
		}
		all = append(all, reduction[T]{op, of, folded(of, f)})
	}
	add := k.fold(Sum)
	if k.scale != nil {
		factor := func(rank int) int { return 1 + rank%2 }
		scaled := func(rank, i int) T { return k.scale(input(rank, i), factor(rank)) }
		all = append(all, reduction[T]{PreMulSum(float64(factor(r.c.Rank()))), input, folded(scaled, add)})
	}
	if k.divide != nil && !scan {
		total := folded(input, add)
		all = append(all, reduction[T]{Avg, input, func(i, ranks int) T { return k.divide(total(i, ranks), ranks) }})
	}
	if r.canonical { // MPICH's redscat2
		left := NewOp("left", false, func(dst, left, _ []T) { copy(dst, left) })
		right := NewOp("right", false, func(dst, _, right []T) { copy(dst, right) })
		all = append(all,
			reduction[T]{left, input, func(i, _ int) T { return input(0, i) }},
			reduction[T]{right, input, func(i, ranks int) T { return input(ranks-1, i) }},
		)
	}
	if r.operation > 0 {
		return all[(r.operation-1)%len(all)]
	}
	return all[r.dice.IntN(len(all))]
}

// mostOperations is how many a type has at most: seven by name, PREMUL_SUM, AVG, and two of the user's.
const mostOperations = 11

func (k kind[T]) name() string { return k.label }

// fill puts the rank's inputs into a new buffer.
func (red reduction[T]) fill(r *round, n int) []T {
	buf := room[T](r, n)
	for i := range buf {
		buf[i] = red.input(r.c.Rank(), i)
	}
	return buf
}

// check is an error if buf is not what the first ranks' elements from lo on combine to.
func (k kind[T]) check(r *round, red reduction[T], buf []T, lo, ranks int) error {
	want := make([]T, len(buf))
	for i := range want {
		want[i] = red.result(lo+i, ranks)
	}
	if err := k.same(buf, want); err != nil {
		return fmt.Errorf("%v: %w", red.op, err)
	}
	return r.intact()
}

// unchanged is an error if buf is not what fill has made.
func (k kind[T]) unchanged(red reduction[T], rank int, buf []T) error {
	want := make([]T, len(buf))
	for i := range want {
		want[i] = red.input(rank, i)
	}
	if err := k.same(buf, want); err != nil {
		return fmt.Errorf("%v has changed what is not the result: %w", red.op, err)
	}
	return nil
}

func (k kind[T]) allReduce(r *round) error {
	red := k.reduction(r, false)
	buf := red.fill(r, r.n)
	var err error
	if at := r.dice.IntN(r.n + 1); !r.async && r.salt%4 == 0 {
		err = AllReduceMany(r.ctx, r.c, [][]T{buf[:at], buf[at:]}, red.op)
	} else {
		err = r.do(
			func() error { return AllReduce(r.ctx, r.c, buf, red.op) },
			func() *Request { return IAllReduce(r.ctx, r.c, buf, red.op) })
	}
	if err != nil {
		return err
	}
	return k.check(r, red, buf, 0, r.c.Size())
}

func (k kind[T]) reduce(r *round) error {
	red := k.reduction(r, false)
	buf := red.fill(r, r.n)
	err := r.do(
		func() error { return Reduce(r.ctx, r.c, buf, r.root, red.op) },
		func() *Request { return IReduce(r.ctx, r.c, buf, r.root, red.op) })
	switch {
	case err != nil:
		return err
	case r.c.Rank() != r.root:
		return k.unchanged(red, r.c.Rank(), buf)
	}
	return k.check(r, red, buf, 0, r.c.Size())
}

func (k kind[T]) reduceScatter(r *round) error {
	red := k.reduction(r, false)
	in, out := red.fill(r, r.n*r.c.Size()), room[T](r, r.n)
	if err := r.do(
		func() error { return ReduceScatter(r.ctx, r.c, out, in, red.op) },
		func() *Request { return IReduceScatter(r.ctx, r.c, out, in, red.op) }); err != nil {
		return err
	}
	if err := k.unchanged(red, r.c.Rank(), in); err != nil {
		return err
	}
	return k.check(r, red, out, r.n*r.c.Rank(), r.c.Size())
}

func (k kind[T]) reduceScatterV(r *round) error {
	red := k.reduction(r, false)
	counts, total := r.counts()
	in, out := red.fill(r, total), room[T](r, counts[r.c.Rank()])
	if err := ReduceScatterV(r.ctx, r.c, out, in, counts, red.op); err != nil {
		return err
	}
	if err := k.unchanged(red, r.c.Rank(), in); err != nil {
		return err
	}
	return k.check(r, red, out, before(counts, r.c.Rank()), r.c.Size())
}

func (k kind[T]) scan(r *round) error {
	red := k.reduction(r, true)
	buf := red.fill(r, r.n)
	if err := r.do(
		func() error { return Scan(r.ctx, r.c, buf, red.op) },
		func() *Request { return IScan(r.ctx, r.c, buf, red.op) }); err != nil {
		return err
	}
	return k.check(r, red, buf, 0, r.c.Rank()+1)
}

func (k kind[T]) exscan(r *round) error {
	red := k.reduction(r, true)
	buf := red.fill(r, r.n)
	given := slices.Clone(buf)
	err := r.do(
		func() error { return Exscan(r.ctx, r.c, buf, red.op) },
		func() *Request { return IExscan(r.ctx, r.c, buf, red.op) })
	switch {
	case err != nil:
		return err
	case r.c.Rank() == 0:
		return k.same(buf, given)
	}
	return k.check(r, red, buf, 0, r.c.Rank())
}

// mark is the element i that rank from has for rank to.
func (k kind[T]) mark(r *round, from, to, i int) T {
	return k.of((from*37 + to*11 + i*7 + r.salt) % 251)
}

// put fills part with what rank from has for rank to.
func (k kind[T]) put(r *round, part []T, from, to int) {
	for i := range part {
		part[i] = k.mark(r, from, to, i)
	}
}

// got is an error if part is not what put would make of it.
func (k kind[T]) got(r *round, part []T, from, to int) error {
	want := make([]T, len(part))
	k.put(r, want, from, to)
	return k.same(part, want)
}

// blockwise checks a buffer of blocks, of which block i is of rank from(i) for rank to(i).
func (k kind[T]) blockwise(r *round, out []T, counts []int, ends func(i int) (from, to int)) error {
	for i, n := range counts {
		from, to := ends(i)
		if err := k.got(r, out[before(counts, i):][:n], from, to); err != nil {
			return err
		}
	}
	return r.intact()
}

func (r *round) evenCounts() ([]int, int) {
	counts := make([]int, r.c.Size())
	for i := range counts {
		counts[i] = r.n
	}
	return counts, r.n * len(counts)
}

func (k kind[T]) broadcast(r *round) error {
	buf := room[T](r, r.n)
	if r.c.Rank() == r.root {
		k.put(r, buf, r.root, 0)
	}
	var err error
	if at := r.dice.IntN(r.n + 1); !r.async && r.salt%4 == 0 {
		err = BroadcastMany(r.ctx, r.c, [][]T{buf[:at], buf[at:]}, r.root)
	} else {
		err = r.do(
			func() error { return Broadcast(r.ctx, r.c, buf, r.root) },
			func() *Request { return IBroadcast(r.ctx, r.c, buf, r.root) })
	}
	if err != nil {
		return err
	}
	return k.blockwise(r, buf, []int{r.n}, func(int) (int, int) { return r.root, 0 })
}

// own is the rank's part of a buffer of blocks, or another buffer.
func own[T Number](r *round, buf []T, counts []int) []T {
	if r.salt%2 == 0 {
		return buf[before(counts, r.c.Rank()):][:counts[r.c.Rank()]]
	}
	return room[T](r, counts[r.c.Rank()])
}

func (k kind[T]) allGather(r *round) error {
	counts, total := r.evenCounts()
	out := room[T](r, total)
	in := own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := r.do(
		func() error { return AllGather(r.ctx, r.c, out, in) },
		func() *Request { return IAllGather(r.ctx, r.c, out, in) }); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) allGatherV(r *round) error {
	counts, total := r.counts()
	out := room[T](r, total)
	in := own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := AllGatherV(r.ctx, r.c, out, in, counts); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) gather(r *round) error {
	counts, total := r.evenCounts()
	return k.gatherBlocks(r, counts, total, func(out, in []T) error {
		return r.do(
			func() error { return Gather(r.ctx, r.c, out, in, r.root) },
			func() *Request { return IGather(r.ctx, r.c, out, in, r.root) })
	})
}

func (k kind[T]) gatherV(r *round) error {
	counts, total := r.counts()
	return k.gatherBlocks(r, counts, total, func(out, in []T) error {
		if r.c.Rank() != r.root {
			return GatherV(r.ctx, r.c, nil, in, nil, r.root)
		}
		return GatherV(r.ctx, r.c, out, in, counts, r.root)
	})
}

func (k kind[T]) gatherBlocks(r *round, counts []int, total int, gather func(out, in []T) error) error {
	in := room[T](r, counts[r.c.Rank()])
	if r.c.Rank() != r.root {
		k.put(r, in, r.c.Rank(), 0)
		return gather(nil, in)
	}
	out := room[T](r, total)
	in = own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := gather(out, in); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) scatter(r *round) error {
	counts, total := r.evenCounts()
	return k.scatterBlocks(r, counts, total, func(out, in []T) error {
		return r.do(
			func() error { return Scatter(r.ctx, r.c, out, in, r.root) },
			func() *Request { return IScatter(r.ctx, r.c, out, in, r.root) })
	})
}

func (k kind[T]) scatterV(r *round) error {
	counts, total := r.counts()
	return k.scatterBlocks(r, counts, total, func(out, in []T) error {
		if r.c.Rank() != r.root {
			return ScatterV(r.ctx, r.c, out, nil, nil, r.root)
		}
		return ScatterV(r.ctx, r.c, out, in, counts, r.root)
	})
}

func (k kind[T]) scatterBlocks(r *round, counts []int, total int, scatter func(out, in []T) error) error {
	mine := counts[r.c.Rank()]
	out, in := room[T](r, mine), []T(nil)
	if r.c.Rank() == r.root {
		in = room[T](r, total)
		for to := range counts {
			k.put(r, in[before(counts, to):][:counts[to]], r.root, to)
		}
		out = own(r, in, counts)
	}
	if err := scatter(out, in); err != nil {
		return err
	}
	return k.blockwise(r, out, []int{mine}, func(int) (int, int) { return r.root, r.c.Rank() })
}

func (k kind[T]) allToAll(r *round) error {
	counts, total := r.evenCounts()
	in, out := room[T](r, total), room[T](r, total)
	for to := range counts {
		k.put(r, in[before(counts, to):][:r.n], r.c.Rank(), to)
	}
	if err := r.do(
		func() error { return AllToAll(r.ctx, r.c, out, in) },
		func() *Request { return IAllToAll(r.ctx, r.c, out, in) }); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, r.c.Rank() })
}

func (k kind[T]) allToAllV(r *round) error {
	rank, size := r.c.Rank(), r.c.Size()
	to, from := make([]int, size), make([]int, size)
	for a := range size {
		for b := range size {
			n := r.dice.IntN(r.n+1) * r.dice.IntN(3) / 2
			if a == rank {
				to[b] = n
			}
			if b == rank {
				from[a] = n
			}
		}
	}
	in, out := room[T](r, sum(to)), room[T](r, sum(from))
	for b, n := range to {
		k.put(r, in[before(to, b):][:n], rank, b)
	}
	if err := AllToAllV(r.ctx, r.c, out, from, in, to); err != nil {
		return err
	}
	return k.blockwise(r, out, from, func(i int) (int, int) { return i, rank })
}

// round is one case of a collective, as one rank plays it.
type round struct {
	ctx       context.Context
	c         *Comm
	dice, own *rand.Rand // the same on all ranks; another on each
	free      []byte     // memory of Alloc
	canonical bool       // the algorithm keeps the canonical order
	operation int        // which of those that the type has, from 1; 0: one that dice say
	size

	guards []func() error
}

// size is what the dice have said of a round.
type size struct {
	async   bool
	n, root int // elements, or those of a block; the rank at the root
	salt    int // what makes the values of one round others than those of the last
	memory  memory
}

// memory says where buffers lie.
type memory int

const (
	plain   memory = iota // in Go's
	alloced               // in that of Alloc, at any place
	mixed                 // in the one here, in the other there
	memories
)

func (r *round) draw() {
	counts := []int{0, 1, 1, 2, 10, 10, 64, 100, 1000, 10000}
	if r.c.Size() >= 8 {
		counts = counts[:len(counts)-1]
	}
	r.size = size{
		async: r.dice.IntN(2) == 1, n: counts[r.dice.IntN(len(counts))], root: r.dice.IntN(r.c.Size()), salt: r.dice.IntN(100),
		memory: memory(r.dice.IntN(int(memories))),
	}
}

// do makes the call, or has a Request made of it.
func (r *round) do(call func() error, request func() *Request) error {
	if !r.async {
		return call()
	}
	return request().Wait(r.ctx)
}

// room gives a buffer of n elements with something in it.
func room[T Number](r *round, n int) []T {
	var zero T
	width := int(unsafe.Sizeof(zero))
	length := (n + 2) * width
	var buf []byte
	shift := r.own.IntN(8) * width
	fits := shift+length <= len(r.free)
	if fits && (r.memory == alloced || r.memory == mixed && r.own.IntN(2) == 0) {
		buf = r.free[shift:][:length]
		r.free = r.free[(shift+length+15)&^15:]
	} else {
		buf = bytesOf(make([]T, n+2))
	}
	for i := range buf {
		buf[i] = 1
	}
	first, last := buf[:width], buf[len(buf)-width:]
	r.guards = append(r.guards, func() error {
		if !bytes.Equal(first, bytes.Repeat([]byte{1}, width)) || !bytes.Equal(last, bytes.Repeat([]byte{1}, width)) {
			return fmt.Errorf("the memory around a buffer of %d elements was written: % x, % x", n, first, last)
		}
		return nil
	})
	return element.View[T](buf[width : len(buf)-width])
}

// intact is an error if a byte around a buffer was written.
func (r *round) intact() error {
	var errs []error
	for _, guard := range r.guards {
		errs = append(errs, guard())
	}
	return errors.Join(errs...)
}

// counts draws the lengths of blocks, some of them empty, and their sum.
func (r *round) counts() (counts []int, total int) {
	counts = make([]int, r.c.Size())
	for i := range counts {
		counts[i] = r.dice.IntN(r.n+1) * r.dice.IntN(3) / 2
		total += counts[i]
	}
	return counts, total
}

// before is where block i begins.
func before(counts []int, i int) int { return sum(counts[:i]) }
