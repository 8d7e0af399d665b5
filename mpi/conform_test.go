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

// conformRounds adds cases, and any value above 1 adds all sizes of worlds: go test ./mpi -run 'Conformance|Determinism' -args -rounds 100
var conformRounds = flag.Int("rounds", 1, "random cases of each algorithm, transport and number of ranks, in the conformance test")

// cases are the collectives with one element type. Each plays one round and checks its result.
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

// everyKind lists the 15 element types.
var everyKind = []cases{
	kindFloat32, kindFloat64, kindFloat16, kindBFloat16, kindBool, kindComplex64, kindComplex128,
	whole[int8]("int8"), whole[int16]("int16"), whole[int32]("int32"), whole[int64]("int64"),
	whole[uint8]("uint8"), whole[uint16]("uint16"), whole[uint32]("uint32"), whole[uint64]("uint64"),
}

// conformance describes one collective.
type conformance struct {
	name   string
	shares bool // it can use the memory that ranks share
	kind   collective
	table  int // which of the kind's tables of algorithms it uses
	run    func(k cases, r *round) error
}

// conformity lists every collective.
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
	{"gather_v", true, gatherCall, 1, cases.gatherV},
	{"scatter", false, scatterCall, 0, cases.scatter},
	{"scatter_v", true, scatterCall, 1, cases.scatterV},
	{"all_to_all", true, allToAllCall, 0, cases.allToAll},
	{"all_to_all_v", true, allToAllCall, 1, cases.allToAllV},
	{"barrier", true, barrierCall, 0, func(_ cases, r *round) error {
		return r.do(func() error { return r.c.Barrier(r.ctx) }, func() *Request { return r.c.IBarrier(r.ctx) })
	}},
}

// names returns the name of every algorithm that may be chosen for the collective on c, and whether it keeps the canonical order.
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

// namesOn returns the algorithms, sorted, that a collective has for size ranks on one of transports, without the hierarchical one. It
// returns nil if the name of the collective is empty.
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

// algorithms returns the algorithms that fit size ranks, and whether they keep the canonical order.
func (tt conformance) algorithms(size int) map[string]bool {
	names := make(map[string]bool)
	for _, e := range collectives[tt.kind].algorithms[tt.table] {
		if e.Fits == nil || e.Fits(size) {
			names[e.Name] = e.Canonical
		}
	}
	return names
}

// conform plays rounds of every algorithm of every collective as one rank. Dice choose everything else, such as whether a round uses a
// Request. The Comm must not be deterministic. All ranks of a world must pass the same seed.
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
	for _, over := range withUCX(transports) {
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

func (k kind[T]) name() string { return k.label }

// round is one case of a collective, as one rank plays it.
type round struct {
	ctx       context.Context
	c         *Comm
	dice, own *rand.Rand // dice is the same on all ranks, own differs
	free      []byte     // memory of Alloc
	canonical bool       // the algorithm keeps the canonical order
	operation int        // the number, from 1, of one of the type's operations; 0: dice choose
	size

	guards []func() error
}

// size holds what the dice have chosen for a round.
type size struct {
	async   bool
	n, root int // the elements of a buffer or of a block; the rank of the root
	salt    int // makes the values of a round differ from those of the last
	memory  memory
}

// memory says where buffers lie.
type memory int

const (
	plain   memory = iota // in Go's memory
	alloced               // in Alloc's memory, at any place
	mixed                 // some buffers in Go's memory, others in Alloc's
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

// do makes the call, or makes a Request and waits for it.
func (r *round) do(call func() error, request func() *Request) error {
	if !r.async {
		return call()
	}
	return request().Wait(r.ctx)
}

// room returns a buffer of n elements whose bytes are all 1, with a guard on each side that intact checks.
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

// intact returns an error if the memory around a buffer was written.
func (r *round) intact() error {
	var errs []error
	for _, guard := range r.guards {
		errs = append(errs, guard())
	}
	return errors.Join(errs...)
}

// counts draws the lengths of blocks, some of which are 0, and returns them with their sum.
func (r *round) counts() (counts []int, total int) {
	counts = make([]int, r.c.Size())
	for i := range counts {
		counts[i] = r.dice.IntN(r.n+1) * r.dice.IntN(3) / 2
		total += counts[i]
	}
	return counts, total
}

// before returns the index at which block i begins.
func before(counts []int, i int) int { return sum(counts[:i]) }
