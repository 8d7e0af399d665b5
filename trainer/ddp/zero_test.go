package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// adamLike is an optimizer with two states for each parameter. One of them is a scalar.
type adamLike struct {
	params []*nn.Param
	states []State
}

func newAdamLike(params []*nn.Param) (*adamLike, error) {
	a := &adamLike{params: params}
	for _, p := range params {
		a.states = append(a.states,
			State{Name: "momentum." + p.Name, Shape: p.Shape, Value: make([]float32, len(p.Value))},
			State{Name: "step." + p.Name, Shape: []int{}, Value: make([]float32, 1)})
	}
	return a, nil
}

func (a *adamLike) Step() {
	for i, p := range a.params {
		momentum, step := a.states[2*i].Value, a.states[2*i+1].Value
		step[0]++
		for j, g := range p.Grad {
			momentum[j] = float32(0.9*momentum[j]) + g
			p.Value[j] -= float32(0.1 / step[0] * momentum[j])
		}
	}
}

// train takes the steps from first up to last with the gradients of fill. step is the optimizer's Step.
func train(params []*nn.Param, first, last int, step func() error) error {
	for i := first; i < last; i++ {
		fill(params, 0, i)
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// values returns a copy of all values.
func values(params []*nn.Param) []float32 {
	var all []float32
	for _, p := range params {
		all = append(all, p.Value...)
	}
	return all
}

func newTrained(shapes ...[]int) []*nn.Param {
	params, _ := newReplica(1, shapes...)
	r := rand.New(rand.NewPCG(3, 4))
	for _, p := range params {
		for i := range p.Value {
			p.Value[i] = r.Float32()
		}
	}
	return params
}

// unsharded returns the values and states after some steps of one optimizer of all parameters.
func unsharded(t *testing.T, steps int) (want []float32, states []State) {
	t.Helper()
	params := newTrained(shapes...)
	o, err := newAdamLike(params)
	if err != nil {
		t.Fatal(err)
	}
	if err := train(params, 0, steps, func() error { o.Step(); return nil }); err != nil {
		t.Fatal(err)
	}
	return values(params), o.states
}

func TestZeroIsTheWholeOptimizer(t *testing.T) {
	want, _ := unsharded(t, 5)
	run := func(ctx context.Context, comm *mpi.Comm) error {
		params := newTrained(shapes...)
		z, err := NewZero(ctx, comm, params, newAdamLike)
		if err != nil {
			return err
		}
		if got := values(params); !slices.Equal(got, values(newTrained(shapes...))) {
			return fmt.Errorf("values have changed in NewZero: %v", got)
		}
		if err := train(params, 0, 5, func() error { return z.Step(ctx) }); err != nil {
			return err
		}
		if got := values(params); !slices.Equal(got, want) {
			return fmt.Errorf("parameters are not those of the whole optimizer")
		}
		return nil
	}
	everywhere(t, run)
	onWorld(t, 7, run) // more ranks than parameters
}

// The states of all ranks' optimizers together are those of the whole optimizer, whatever the world size. A world of another size can
// resume from them.
func TestZeroStateMovesBetweenWorlds(t *testing.T) {
	_, wantStates := unsharded(t, 3)
	want, _ := unsharded(t, 6)
	byName := func(a, b State) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(wantStates, byName)
	for _, worlds := range [][2]int{{1, 3}, {2, 4}, {3, 1}, {4, 2}, {7, 2}} {
		perRank := make([][]State, worlds[0])
		var at []float32
		onWorld(t, worlds[0], func(ctx context.Context, comm *mpi.Comm) error {
			params := newTrained(shapes...)
			z, err := NewZero(ctx, comm, params, newAdamLike)
			if err != nil {
				return err
			}
			err = train(params, 0, 3, func() error { return z.Step(ctx) })
			perRank[comm.Rank()] = z.Optimizer().states
			if comm.Rank() == 0 {
				at = values(params)
			}
			return err
		})
		saved := slices.Concat(perRank...)
		slices.SortFunc(saved, byName)
		if fmt.Sprint(saved) != fmt.Sprint(wantStates) {
			t.Fatalf("%d ranks have\n%v, want\n%v", worlds[0], saved, wantStates)
		}
		onWorld(t, worlds[1], func(ctx context.Context, comm *mpi.Comm) error {
			params := newTrained(shapes...)
			rest := at
			for _, p := range params {
				rest = rest[copy(p.Value, rest):]
			}
			z, err := NewZero(ctx, comm, params, newAdamLike)
			if err != nil {
				return err
			}
			for _, s := range z.Optimizer().states {
				from, _ := slices.BinarySearchFunc(saved, s, byName) // saved has every name
				copy(s.Value, saved[from].Value)
			}
			if err := train(params, 3, 6, func() error { return z.Step(ctx) }); err != nil {
				return err
			}
			if got := values(params); !slices.Equal(got, want) {
				return fmt.Errorf("parameters are not those of a run that never stopped")
			}
			return nil
		})
	}
}

func TestZeroReportsTheFactorysError(t *testing.T) {
	bad := errors.New("bad learning rate")
	_, err := NewZero(t.Context(), mpi.Self(), newTrained(shapes...), func([]*nn.Param) (*adamLike, error) { return nil, bad })
	if !errors.Is(err, bad) {
		t.Errorf("error %v, want the factory's", err)
	}
}

// After Close the parameters and the rank's optimizer can be used without the Comm.
func TestZeroLivesOnAfterClose(t *testing.T) {
	want, _ := unsharded(t, 2)
	for _, over := range transports {
		params := make([][]*nn.Param, 2)
		must(t, ranksOn(t, over, 2, func(ctx context.Context, comm *mpi.Comm) error {
			mine := newTrained(shapes...)
			params[comm.Rank()] = mine
			z, err := NewZero(ctx, comm, mine, newAdamLike)
			if err != nil {
				return err
			}
			defer z.Close()
			return train(mine, 0, 2, func() error { return z.Step(ctx) })
		}))
		for rank, mine := range params {
			if got := values(mine); !slices.Equal(got, want) { // would crash if values were still in the unmapped shared memory
				t.Errorf("over %s, rank %d: values have changed in Close", over, rank)
			}
			mine[0].Value[0]++
		}
	}
}

func TestZeroDoesNotStepAfterClose(t *testing.T) {
	z, err := NewZero(t.Context(), mpi.Self(), nil, newAdamLike)
	if err != nil {
		t.Fatal(err)
	}
	z.Close()
	z.Close()
	defer func() {
		if recover() == nil {
			t.Error("Step after Close does not panic")
		}
	}()
	z.Step(t.Context())
}

func TestDealCountsSharedParametersOnce(t *testing.T) {
	params := newTrained([]int{4}, []int{2})
	dealt := deal([]*nn.Param{params[0], params[1], params[0]}, 2)
	if len(dealt[0]) != 1 || dealt[0][0] != params[0] || len(dealt[1]) != 1 || dealt[1][0] != params[1] {
		t.Errorf("dealt %v", dealt)
	}
}

// PyTorch's ZeroRedundancyOptimizer assigns random parameters to the same ranks.
func TestDealIsPyTorchs(t *testing.T) { // without the race detector
	const script = `
import sys, tempfile, torch, torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
for line in sys.argv[2:]:
    world, *sizes = map(int, line.split(","))
    params = [torch.nn.Parameter(torch.zeros(n)) for n in sizes]
    z = ZeroRedundancyOptimizer(params, torch.optim.SGD, lr=1.0)
    z.world_size = world
    z._clear_cache()
    owner = {id(p): rank for rank, groups in enumerate(z._partition_parameters()) for g in groups for p in g["params"]}
    print(*[owner[id(p)] for p in params])
`
	r := rand.New(rand.NewPCG(5, 6))
	args, want := []string{t.TempDir() + "/meet"}, []string{}
	for range 40 {
		world := 1 + r.IntN(6)
		var params []*nn.Param
		line := strconv.Itoa(world)
		for range 1 + r.IntN(12) {
			n := 1 + int(math.Pow(2, float64(r.IntN(6)))) // so few sizes that many are equal
			line += "," + strconv.Itoa(n)
			params = append(params, &nn.Param{Value: make([]float32, n)})
		}
		args = append(args, line)
		var owners []string
		dealt := deal(params, world)
		for _, p := range params {
			owners = append(owners, strconv.Itoa(slices.IndexFunc(dealt, func(part []*nn.Param) bool { return slices.Contains(part, p) })))
		}
		want = append(want, strings.Join(owners, " "))
	}
	got := strings.Split(strings.TrimSpace(torch.Run(t, script, args...)), "\n")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("world and sizes %s: owners are %s, PyTorch has\n%v", args[i+1], want[i], got)
		}
	}
}

func TestZeroStepDoesNotAllocate(t *testing.T) { // without the race detector
	params := newTrained(shapes...)
	z, err := NewZero(t.Context(), mpi.Self(), params, newAdamLike)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { z.Step(t.Context()) }); n != 0 {
		t.Errorf("%v allocations a step, want none", n)
	}
}
