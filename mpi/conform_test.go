package mpi

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/algorithm"
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
	name       string
	shares     bool                                      // it can use the memory that ranks share
	algorithms func(t *tables, size int) map[string]bool // that fit, and whether they keep the canonical order
	run        func(k cases, r *round) error
}

// conformity is every collective.
var conformity = []conformance{
	{"all_reduce", true, func(t *tables, n int) map[string]bool { return fitting(t.allReduces, n) }, cases.allReduce},
	{"reduce", true, func(t *tables, n int) map[string]bool { return fitting(t.reduces, n) }, cases.reduce},
	{"reduce_scatter", true, func(t *tables, n int) map[string]bool { return fitting(t.reduceScatters, n) }, cases.reduceScatter},
	{"reduce_scatter_v", true, func(t *tables, n int) map[string]bool { return fitting(t.reduceScatters, n) }, cases.reduceScatterV},
	{"scan", false, func(t *tables, n int) map[string]bool { return fitting(t.scans, n) }, cases.scan},
	{"exscan", false, func(t *tables, n int) map[string]bool { return fitting(t.exscans, n) }, cases.exscan},
	{"broadcast", true, func(t *tables, n int) map[string]bool { return fitting(t.broadcasts, n) }, cases.broadcast},
	{"all_gather", true, func(t *tables, n int) map[string]bool { return fitting(t.allGathers, n) }, cases.allGather},
	{"all_gather_v", true, func(t *tables, n int) map[string]bool { return fitting(t.allGathers, n) }, cases.allGatherV},
	{"gather", false, func(t *tables, n int) map[string]bool { return fitting(t.gathers[0], n) }, cases.gather},
	{"gather_v", false, func(t *tables, n int) map[string]bool { return fitting(t.gathers[1], n) }, cases.gatherV},
	{"scatter", false, func(t *tables, n int) map[string]bool { return fitting(t.scatters[0], n) }, cases.scatter},
	{"scatter_v", false, func(t *tables, n int) map[string]bool { return fitting(t.scatters[1], n) }, cases.scatterV},
	{"all_to_all", true, func(t *tables, n int) map[string]bool { return fitting(t.allToAlls[0], n) }, cases.allToAll},
	{"all_to_all_v", false, func(t *tables, n int) map[string]bool { return fitting(t.allToAlls[1], n) }, cases.allToAllV},
	{"barrier", true, func(t *tables, n int) map[string]bool { return fitting(t.barriers, n) }, func(_ cases, r *round) error {
		return r.do(func() error { return r.c.Barrier(r.ctx) }, func() *Request { return r.c.IBarrier(r.ctx) })
	}},
}

// names is all that may be named for the collective on c, and whether that keeps the canonical order.
func (tt conformance) names(c *Comm) map[string]bool {
	names := tt.algorithms(c.core.world.tables, c.Size())
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
		names = sortedKeys(tt.algorithms(newTables(), size))
		if tt.shares && over == "shm" && size > 1 {
			names = append(names, sharedName)
		}
	}
	return names
}

func fitting[F any](entries []algorithm.Entry[F], size int) map[string]bool {
	names := make(map[string]bool)
	for _, e := range entries {
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

// worlds are Gloo's numbers of ranks (reference/collectives.md 4.6) without the largest.
var worlds = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16}

func TestConformance(t *testing.T) {
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
