package mpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// If one rank can recognize its arguments as wrong, its error says what is wrong. The others get an error that passes this on.
func TestWrongArgumentsFailOnEveryRank(t *testing.T) {
	three, four := make([]int32, 3), make([]int32, 4)
	tests := []struct {
		name string
		call func(ctx context.Context, c *Comm) error
		text string
	}{
		{"op_0", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, four, Standard(0)) }, "unknown reduce operation 0"},
		{"no_op", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, four, nil) }, "the operation is nil"},
		{"all_to_all_overlap", func(ctx context.Context, c *Comm) error { return AllToAll(ctx, c, four, four) }, "in and out overlap"},
		{"all_gather_overlap", func(ctx context.Context, c *Comm) error { return AllGather(ctx, c, four, four[1:3]) }, "in overlaps out"},
		{"reduce_scatter_overlap", func(ctx context.Context, c *Comm) error { return ReduceScatter(ctx, c, four[2:], four, Sum) },
			"in and out overlap"},
		{"many_pairs", func(ctx context.Context, c *Comm) error { return AllGatherMany(ctx, c, [][]int32{four}, nil) }, "1 outs and 0 ins"},
		{
			"many_lengths", func(ctx context.Context, c *Comm) error {
				return ReduceScatterMany(ctx, c, [][]int32{{1}, {2}}, [][]int32{{1, 2}, three}, Sum)
			}, "ins[1] must have 2 blocks of 1 elements, but has 3 elements",
		},
		{"op_99", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, four, Standard(99)) }, "unknown reduce operation 99"},
		{"root_-1", func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, four, -1) }, "the root, rank -1, does not exist"},
		{"root_2", func(ctx context.Context, c *Comm) error { return Reduce(ctx, c, four, 2, Sum) }, "ranks are 0 to 1"},
		{"gather_root", func(ctx context.Context, c *Comm) error { return Gather(ctx, c, four, four[:2], 2) }, "ranks are 0 to 1"},
		{"scatter_root", func(ctx context.Context, c *Comm) error { return Scatter(ctx, c, four[:2], four, -3) },
			"rank -3, does not exist"},
		{"band_of_floats", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []float32{1}, BAnd) },
			"float32 has no operation band, only sum"},
		{"max_of_complex", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []complex64{1}, Max) },
			"complex64 has no operation max"},
		{"avg_of_bools", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []bool{true}, Avg) }, "bool has no"},
		{"premul_of_bools", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, []bool{true}, PreMulSum(2)) }, "bool"},
		{"premul_by_half", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c, four, PreMulSum(0.5)) }, "whole number"},
		{"scan_avg", func(ctx context.Context, c *Comm) error { return Scan(ctx, c, four, Avg) }, "a scan cannot use Avg"},
		{
			"user_op_type", func(ctx context.Context, c *Comm) error {
				return AllReduce(ctx, c, four, NewOp("mine", true, func(dst, a, b []int64) {}))
			}, `operation "mine" is for int64, not int32`,
		},
		{"all_gather_length", func(ctx context.Context, c *Comm) error { return AllGather(ctx, c, three, four[:1]) },
			"out must have 2 blocks of 1 elements, but has 3 elements"},
		{"reduce_scatter_length", func(ctx context.Context, c *Comm) error { return ReduceScatter(ctx, c, four[:1], three, Sum) },
			"in must have 2 blocks of 1 elements, but has 3 elements"},
		{"all_to_all_length", func(ctx context.Context, c *Comm) error { return AllToAll(ctx, c, four[:2], four) },
			"in has 4 elements and out 2"},
		{"all_to_all_odd", func(ctx context.Context, c *Comm) error { return AllToAll(ctx, c, make([]int32, 3), three) }, "3 elements"},
		{"scatter_length", func(ctx context.Context, c *Comm) error { return Scatter(ctx, c, four[:1], three, 0) }, "but has 3 elements"},
		{"too_few_counts", func(ctx context.Context, c *Comm) error { return AllGatherV(ctx, c, four, three, []int{4}) },
			"must be 2 counts of out, one for each rank, got 1"},
		{"no_counts", func(ctx context.Context, c *Comm) error { return AllToAllV(ctx, c, four, nil, four, []int{2, 2}) },
			"must be 2 counts of out, one for each rank, got 0"},
		{"negative_count", func(ctx context.Context, c *Comm) error { return AllGatherV(ctx, c, four, three, []int{3, -1}) },
			"the count of out for rank 1 must not be negative, got -1"},
		{"counts_too_large", func(ctx context.Context, c *Comm) error {
			return AllGatherV(ctx, c, four, three, []int{math.MaxInt, math.MaxInt})
		}, "fewer than the sum of its counts"},
		{"counts_too_small", func(ctx context.Context, c *Comm) error { return AllGatherV(ctx, c, four, three, []int{1, 1}) },
			"2 more than the sum of its counts"},
		{"own_count", func(ctx context.Context, c *Comm) error { return AllGatherV(ctx, c, four, three, []int{2, 2}) },
			"in has 3 elements, but the count of rank 0 is 2"},
		{"to_itself", func(ctx context.Context, c *Comm) error {
			return AllToAllV(ctx, c, four, []int{1, 3}, four, []int{2, 2})
		}, "sends itself 2 elements but receives 1"},
		{"algorithm", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c.Using("magic"), four, Sum) },
			`algorithm "magic" is not one of this collective's; possible here: star, `},
		{"not_canonical", func(ctx context.Context, c *Comm) error { return AllReduce(ctx, c.Using("ring"), four, Sum) },
			"deterministic = false"},
		{"no_shared_memory", func(ctx context.Context, c *Comm) error {
			return Exscan(ctx, c.Using("shm"), four, Sum)
		}, `"shm" works only for ranks that all share memory`},
	}
	for _, over := range transports {
		for _, tt := range tests {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				w := newWorldOn(t, over, 2, nil)
				errs := testkit.Each(2, func(rank int) error {
					if rank == 0 {
						return tt.call(t.Context(), w[0])
					}
					return w[1].Barrier(t.Context()) // gets the error, and does not wait
				})
				if errs[0] == nil || !strings.Contains(errs[0].Error(), tt.text) {
					t.Errorf("rank 0 got %v, want %q", errs[0], tt.text)
				}
				if !errors.Is(errs[1], ErrAborted) && !errors.Is(errs[1], ErrMismatch) || errors.Is(errs[1], ErrAborted) &&
					!strings.Contains(errs[1].Error(), tt.text) {
					t.Errorf("rank 1 got %v, want %q", errs[1], tt.text)
				}
			})
		}
	}
	if err := AllReduce(t.Context(), Self(), four, Standard(99)); err == nil {
		t.Error("a world of one accepts operation 99")
	}
}

// Under Deterministic only canonical algorithms may be named. Otherwise all of them may be named, except that an operation that does not
// commute needs a canonical one.
func TestOnlyCanonicalAlgorithmsAreDeterministic(t *testing.T) {
	for _, tt := range conformity {
		for name, canonical := range tt.algorithms(4) {
			for _, deterministic := range []bool{true, false} {
				t.Run(tt.name+"/"+name, func(t *testing.T) {
					w := newWorldOn(t, "local", 4, func(cfg *InitConfig) { cfg.Config.Deterministic = deterministic })
					errs := testkit.Each(4, func(rank int) error { return reduceBy(t.Context(), w[rank].Using(name), tt.name, Sum) })
					refused := deterministic && !canonical
					for rank, err := range errs {
						if (err != nil) != refused || refused && !strings.Contains(err.Error(), "deterministic = false") {
							t.Errorf("deterministic %v, canonical %v: rank %d got %v", deterministic, canonical, rank, err)
						}
					}
					if canonical || deterministic {
						return
					}
					left := NewOp("left", false, func(dst, left, _ []int32) { copy(dst, left) })
					for rank, err := range testkit.Each(4,
						func(rank int) error { return reduceBy(t.Context(), w[rank].Using(name), tt.name, left) }) {
						if err == nil || !strings.Contains(err.Error(), "an operation that commutes") {
							t.Errorf("an operation that does not commute: rank %d got %v", rank, err)
						}
					}
				})
			}
		}
	}
}

// reduceBy calls the named collective, if it is a reduction.
func reduceBy(ctx context.Context, c *Comm, name string, op Op) error {
	buf := make([]int32, 8)
	switch name {
	case "all_reduce":
		return AllReduce(ctx, c, buf, op)
	case "reduce":
		return Reduce(ctx, c, buf, 0, op)
	case "reduce_scatter":
		return ReduceScatter(ctx, c, make([]int32, 2), buf, op)
	case "reduce_scatter_v":
		return ReduceScatterV(ctx, c, make([]int32, 2), buf, []int{2, 2, 2, 2}, op)
	case "scan":
		return Scan(ctx, c, buf, op)
	case "exscan":
		return Exscan(ctx, c, buf, op)
	}
	return nil
}

// In PyTorch 1.13.1 with Gloo, a minimum or maximum with a NaN depends on the order of operands. Here NaN propagates. Sums of uint8 wrap in
// both.
func TestNaNPropagatesInReductions(t *testing.T) {
	nan, negative, inf := math.NaN(), math.Copysign(0, -1), math.Inf(1)
	everywhere(t, []int{2}, func(ctx context.Context, c *Comm) error {
		in := [][]float64{{2, nan, 0, inf, negative}, {nan, 1, negative, -inf, negative}}[c.Rank()]
		narrow := make([]float32, len(in))
		for i, x := range in {
			narrow[i] = float32(x)
		}
		lowest, highest := append([]float64{}, in...), append([]float64{}, in...)
		narrowest := append([]float32{}, narrow...)
		if err := errors.Join(AllReduce(ctx, c, lowest, Min), AllReduce(ctx, c, highest, Max),
			AllReduce(ctx, c, narrowest, Max)); err != nil {
			return err
		}
		wrapped, negated := []uint8{200}, []int32{math.MaxInt32}
		if err := errors.Join(AllReduce(ctx, c, wrapped, Sum), AllReduce(ctx, c, negated, Sum)); err != nil {
			return err
		}
		return errors.Join(
			kindFloat64.same(lowest, []float64{nan, nan, negative, -inf, negative}),
			kindFloat64.same(highest, []float64{nan, nan, 0, inf, negative}),
			kindFloat32.same(narrowest, []float32{float32(nan), float32(nan), 0, float32(inf), float32(negative)}),
			equal(wrapped, []uint8{144}), equal(negated, []int32{-2}))
	})
}

// If the counts of two ranks do not fit, and each rank knows only its own, both get an error: at once, or in the next call if the sender
// did not have to wait.
func TestRaggedCountsThatDoNotFitAreErrors(t *testing.T) {
	// Rank 0 has a count of n for each rank. Rank 1 has a count of other for what it sends to rank 0 or expects from it.
	calls := map[string]func(ctx context.Context, c *Comm, n, other int) error{
		"gather": func(ctx context.Context, c *Comm, n, other int) error {
			return GatherV(ctx, c, make([]int32, 2*n), make([]int32, []int{n, other}[c.Rank()]), []int{n, n}, 0)
		},
		"scatter": func(ctx context.Context, c *Comm, n, other int) error {
			return ScatterV(ctx, c, make([]int32, []int{n, other}[c.Rank()]), make([]int32, 2*n), []int{n, n}, 0)
		},
		"all_to_all": func(ctx context.Context, c *Comm, n, other int) error {
			first := []int{n, other}[c.Rank()]
			return AllToAllV(ctx, c, make([]int32, 2*n), []int{n, n}, make([]int32, first+n), []int{first, n})
		},
	}
	for _, over := range transports {
		for name, call := range calls {
			for _, tt := range [][2]int{{2, 3}, {2, 50_000}, {50_000, 2}, {50_000, 50_001}, {0, 1}} {
				n, other := tt[0], tt[1]
				t.Run(fmt.Sprintf("%s/%s/%d_and_%d", over, name, n, other), func(t *testing.T) {
					w := newWorldOn(t, over, 2, nil)
					errs := testkit.Each(2, func(rank int) error {
						if err := call(t.Context(), w[rank], n, other); err != nil {
							return err
						}
						return w[rank].Barrier(t.Context())
					})
					due, sent := 4*n, 4*other
					if name == "scatter" {
						due, sent = sent, due
					}
					for rank, err := range errs {
						if !errors.Is(err, ErrMismatch) {
							t.Errorf("rank %d got %v", rank, err)
							continue
						}
						for _, want := range []string{fmt.Sprintf("expecting %d bytes from rank", due),
							fmt.Sprintf("sending %d bytes to rank", sent)} {
							if !strings.Contains(err.Error(), want) {
								t.Errorf("rank %d got %v, want %q", rank, err, want)
							}
						}
					}
				})
			}
		}
	}
}

func TestRaggedCallsGoOnByThemselves(t *testing.T) {
	everywhere(t, []int{1, 3}, func(ctx context.Context, c *Comm) error {
		size, rank := c.Size(), c.Rank()
		counts, total := make([]int, size), 0
		for i := range counts {
			counts[i] = i + 1
			total += i + 1
		}
		mine := make([]int32, counts[rank])
		for i := range mine {
			mine[i] = int32(10*rank + i)
		}
		want := make([]int32, 0, total)
		for r, n := range counts {
			for i := range n {
				want = append(want, int32(10*r+i))
			}
		}
		all, gathered, handed, sums := make([]int32, total), make([]int32, total), make([]int32, len(mine)), make([]int32, len(mine))
		swapped, back := make([]int32, size*len(mine)), make([]int, size)
		for i := range back {
			back[i] = len(mine)
		}
		err := WaitAll(ctx,
			IAllGatherV(ctx, c, all, mine, counts),
			IGatherV(ctx, c, gathered, mine, counts, 0),
			IScatterV(ctx, c, handed, want, counts, 0),
			IReduceScatterV(ctx, c, sums, want, counts, Max),
			IAllToAllV(ctx, c, swapped, back, want, counts),
			c.IMonitoredBarrier(ctx, testkit.Patience),
		)
		if err != nil {
			return err
		}
		if rank != 0 {
			copy(gathered, want) // only the root's buffer is filled
		}
		for name, pair := range map[string][2][]int32{"all_gather": {all, want}, "gather": {gathered, want}, "scatter": {handed, mine},
			"reduce_scatter": {sums, mine}} {
			if string(bytesOf(pair[0])) != string(bytesOf(pair[1])) {
				t.Errorf("rank %d, %s: got %v, want %v", rank, name, pair[0], pair[1])
			}
		}
		for i, v := range swapped {
			if v != mine[i%len(mine)] {
				t.Errorf("rank %d, all_to_all: got %v, want %v from everyone", rank, swapped, mine)
				break
			}
		}
		return nil
	})
}

// Buffers arrive whose lengths in bytes do not fit in 31 bits: Gloo's broadcast of 512 Mi - 1 elements, and MPICH's gather_big.
func TestHugeBuffersArrive(t *testing.T) {
	if *conformRounds == 1 {
		t.Skip("takes 12 GiB of memory: only with -args -rounds 2, or more, as scripts/test --long does")
	}
	const n, block = 512<<20 - 1, 1<<31 + 3
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			debug.FreeOSMemory()
			w := newWorldOn(t, over, 2, nil)
			must(t, testkit.Each(2, func(rank int) error {
				buf := make([]float32, n)
				buf[n-1] = float32(rank + 1)
				if err := Broadcast(t.Context(), w[rank], buf, 1); err != nil {
					return err
				}
				if err := AllReduce(t.Context(), w[rank], buf, Sum); err != nil {
					return err
				}
				if buf[n-1] != 4 || buf[0] != 0 {
					return fmt.Errorf("the last element is %v, the first %v", buf[n-1], buf[0])
				}
				return nil
			}))
			debug.FreeOSMemory()
			must(t, testkit.Each(2, func(rank int) error {
				if rank == 1 {
					block := make([]uint8, block)
					block[len(block)-1] = 7
					return errors.Join(GatherV(t.Context(), w[rank], nil, block, nil, 0), Send(t.Context(), w[rank], block, 0, 1))
				}
				out := make([]uint8, 2+block)
				if err := GatherV(t.Context(), w[rank], out, out[:2], []int{2, block}, 0); err != nil {
					return err
				}
				if out[1+block] != 7 || out[block] != 0 {
					return fmt.Errorf("the last element is %v, that before %v", out[1+block], out[block])
				}
				clear(out[block:])
				if s, err := Recv(t.Context(), w[rank], out, 1, 1); err != nil || s.Count != block || out[block-1] != 7 {
					return fmt.Errorf("the message: %+v, %w; the last element is %v", s, err, out[block-1])
				}
				return nil
			}))
		})
	}
}

// Too few counts are an error on every rank, also on a rank that has no count.
func TestTooFewCountsAreAnErrorOnEveryRank(t *testing.T) {
	for _, over := range transports {
		w := newWorldOn(t, over, 2, nil)
		for rank, err := range testkit.Each(2, func(rank int) error {
			return AllGatherV(t.Context(), w[rank], make([]int32, 2), make([]int32, 1), []int{})
		}) {
			if err == nil || !strings.Contains(err.Error(), "must be 2 counts of out, one for each rank, got 0") {
				t.Errorf("over %s, rank %d got %v", over, rank, err)
			}
		}
	}
}
