package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// glooLengths are the numbers of elements that Gloo's tests (gloo/test) go through, and some around powers of two.
var glooLengths = []int{0, 1, 10, 64, 100, 1000, 10000, 3, 31, 33, 127, 1023, 1025}

// In large worlds, and with costly elements, of all ranks' buffers together, one algorithm of each collective is played for each length,
// another in each run.
const (
	large  = 8
	costly = 60_000
)

// gloo plays every algorithm of every collective with every length, back to back on one Comm, as one rank; the element type, the place of
// buffers and what else a round is made of, dice say. The ranks of one world give the same seed.
func gloo(ctx context.Context, c *Comm, seed uint64) error {
	dice, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(c.Rank()+1)))
	pool, err := Alloc[uint8](ctx, c, 256<<10)
	if err != nil {
		return err
	}
	for _, tt := range conformity {
		canonical := tt.names(c)
		names := append(sortedKeys(canonical), "")
		for _, n := range glooLengths {
			played := names
			if *conformRounds == 1 && (c.Size() > large || n*c.Size()*c.Size() > costly) {
				i := dice.IntN(len(names))
				played = names[i : i+1]
			}
			for _, name := range played {
				k := everyKind[dice.IntN(len(everyKind))]
				r := &round{ctx: ctx, c: c.Using(name), dice: dice, own: own, free: pool, canonical: canonical[name]}
				r.draw()
				r.n = n
				if err := tt.run(k, r); err != nil {
					return fmt.Errorf("%s of %s by %q, %+v: %w", tt.name, k.name(), name, r.size, err)
				}
			}
		}
	}
	return nil
}

func TestEveryAlgorithmTakesGloosLengths(t *testing.T) { // without the race detector
	for _, over := range transports {
		for _, size := range glooWorldsOn(over) {
			testGloo(t, over, size)
		}
	}
}

func testGloo(t *testing.T, over string, size int) {
	t.Run(over+"/"+rankName(size), func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		w := newWorldOn(t, over, size, func(cfg *InitConfig) { cfg.Config.Deterministic = false })
		must(t, testkit.Each(size, func(rank int) error { return gloo(t.Context(), w[rank], seed) }))
	})
}

// glooWorldsOn are all of them on the network within this process, and on the others two of the small ones; under the race detector,
// which slows them down, half of the small ones, and one.
func glooWorldsOn(over string) []int {
	small := glooWorlds[:slices.Index(glooWorlds, large)+1]
	switch {
	case *conformRounds > 1 || over == "local" && !raceEnabled:
		return glooWorlds
	case over == "local" || raceEnabled:
		return sampleOf(over, small)
	}
	return append(sampleOf(over, small), sampleOf(over, small)...)
}

// One of the large worlds on one of the transports between processes, others in each run.
func TestLargeWorldsTakeGloosLengths(t *testing.T) { // without the race detector
	if raceEnabled || testing.Short() {
		t.Skip("many ranks with many messages: not with -short, nor with the race detector, which slows them down")
	}
	others := otherTransports()
	over := others[rand.IntN(len(others))]
	many := glooWorlds[slices.Index(glooWorlds, large)+1:]
	testGloo(t, over, many[rand.IntN(len(many))])
}

// Everything is reduced, scanned and moved by every element type and every operation that it has, with every algorithm: what the dice
// of the other tests leave out in one run.
func TestEveryTypeGoesByEveryAlgorithm(t *testing.T) { // without the race detector
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	reductions := []string{"all_reduce", "reduce", "reduce_scatter", "scan", "exscan"}
	for _, over := range someTransports() {
		for _, size := range sampleOf(over, []int{2, 3, 5}) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				w := newWorldOn(t, over, size, func(cfg *InitConfig) { cfg.Config.Deterministic = false })
				must(t, testkit.Each(size, func(rank int) error {
					ctx, c := t.Context(), w[rank]
					dice, own := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(rank+1)))
					for _, tt := range conformity {
						if !slices.Contains(reductions, tt.name) {
							continue
						}
						canonical := tt.names(c)
						for _, k := range everyKind {
							for _, name := range sortedKeys(canonical) {
								for op := range mostOperations {
									r := &round{ctx: ctx, c: c.Using(name), dice: dice, own: own,
										canonical: canonical[name], operation: op + 1}
									r.draw()
									r.n = 5
									if err := tt.run(k, r); err != nil {
										return fmt.Errorf("%s of %s by %q, operation %d: %w", tt.name, k.name(), name, op, err)
									}
								}
							}
						}
					}
					return nil
				}))
			})
		}
	}
}
