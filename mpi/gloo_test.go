package mpi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// glooLengths are the numbers of elements in Gloo's tests (gloo/test), and some around powers of two.
var glooLengths = []int{0, 1, 10, 64, 100, 1000, 10000, 3, 31, 33, 127, 1023, 1025}

// In worlds of more than large ranks, or if the buffers of all ranks have more than costly elements, each length is played with only one
// algorithm of each collective, another one in each run.
const (
	large  = 8
	costly = 60_000
)

// gloo plays every algorithm of every collective with every length, back to back on one Comm, as one rank. Dice choose the element type,
// the place of buffers and the rest of a round. All ranks of a world must pass the same seed.
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

// glooWorldsOn returns the sizes of worlds to play on a transport. The network within this process plays all of them, and each of the
// others two of the small ones. The race detector slows the tests down: with it, the network within this process plays half of the small
// ones, and each of the others one.
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

// One of the large worlds takes every length on one of the transports between processes. Each run draws both.
func TestLargeWorldsTakeGloosLengths(t *testing.T) { // without the race detector
	if raceEnabled || testing.Short() {
		t.Skip("many ranks with many messages: not with -short, nor with the race detector, which slows them down")
	}
	others := otherTransports()
	over := others[rand.IntN(len(others))]
	many := glooWorlds[slices.Index(glooWorlds, large)+1:]
	testGloo(t, over, many[rand.IntN(len(many))])
}

// Every algorithm of every reduction and scan takes every element type with every operation of that type. The dice of the other tests leave
// some of these out in one run.
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
