package ddp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/nn"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(processVariable); text != "" {
		var task measurement
		err := json.Unmarshal([]byte(text), &task)
		if err == nil {
			err = task.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience limits the time of a world of ranks. It is enough under the race detector on a busy machine.
const patience = 5 * time.Minute

// ranks runs f as every rank of a world of size, over the transport that mpi chooses on this machine, and returns the ranks' errors.
func ranks(t testing.TB, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	return ranksOn(t, "auto", size, f)
}

// ranksOn is like ranks, over a transport of mpi.Config or, for "local", over a network within this process.
func ranksOn(t testing.TB, over string, size int, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	if over == "local" {
		return ranksOf(t, transport.NewNetwork(size), f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shared := store.NewMemory()
	defer shared.Close()
	cfg := mpi.DefaultConfig()
	cfg.Transport = over
	return testkit.Each(size, func(rank int) error {
		comm, err := mpi.Init(ctx, mpi.InitConfig{
			Rank: rank, Size: size, Store: shared, Listen: "127.0.0.1",
			Run: "test", Attempt: 1, Secret: [32]byte{1}, Config: cfg,
		})
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, comm), comm.Close())
	})
}

// ranksOf is like ranks, over a network within this process.
func ranksOf(t testing.TB, network *transport.Network, f func(ctx context.Context, comm *mpi.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	comms, err := mpi.InitLocal(ctx, network, mpi.InitConfig{Config: mpi.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Each(network.Size(), func(rank int) error {
		return errors.Join(f(ctx, comms[rank]), comms[rank].Close())
	})
}

var transports = []string{"local", "tcp", "shm"}

// everywhere runs f as every rank of worlds of 1 to 4 ranks on all transports.
func everywhere(t *testing.T, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for _, over := range transports {
		for size := 1; size <= 4; size++ {
			t.Run(fmt.Sprintf("%s/%d", over, size), func(t *testing.T) { must(t, ranksOn(t, over, size, f)) })
		}
	}
}

// must fails the test if some rank failed.
func must(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// fakeModel returns parameters of the given lengths, named "p0", "p1", ..., for tests that write their own Backward.
func fakeModel(lengths ...int) []*nn.Param {
	params := make([]*nn.Param, len(lengths))
	for i, n := range lengths {
		params[i] = &nn.Param{Name: fmt.Sprint("p", i), Shape: []int{n}, Value: make([]float32, n), Grad: make([]float32, n)}
	}
	return params
}

// backward adds localGradient to the gradients of params, one parameter after another, as a Backward does.
func backward(pass *nn.Pass, params []*nn.Param, rank, step int) {
	for _, p := range params {
		for i, g := range localGradient(p, rank, step) {
			p.Grad[i] += g
		}
		pass.Done(p)
	}
}

// localGradient returns a rank's own gradient. Its numbers differ so much in size that the order of a sum matters.
func localGradient(p *nn.Param, rank, step int) []float32 {
	seed := uint64(step)
	for _, c := range p.Name {
		seed = seed*31 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, uint64(rank)))
	g := make([]float32, len(p.Value))
	for i := range g {
		g[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20))))
	}
	return g
}

// meanGradient returns the mean over ranks. By PyTorch's rule each term is multiplied by the rounded 1/world. By mpi's rule neighbors are
// added, then neighboring sums, and so on.
func meanGradient(p *nn.Param, world, step int) []float32 {
	terms := make([][]float32, world)
	for rank := range terms {
		terms[rank] = localGradient(p, rank, step)
		for i := range terms[rank] {
			terms[rank][i] *= 1 / float32(world)
		}
	}
	for len(terms) > 1 {
		var sums [][]float32
		for i := 0; i+1 < len(terms); i += 2 {
			for j, x := range terms[i+1] {
				terms[i][j] += x
			}
			sums = append(sums, terms[i])
		}
		if len(terms)%2 == 1 {
			sums = append(sums, terms[len(terms)-1])
		}
		terms = sums
	}
	return terms[0]
}

// expect compares gradients bit by bit.
func expect(p *nn.Param, want []float32) error {
	for i, g := range p.Grad {
		if math.Float32bits(g) != math.Float32bits(want[i]) {
			return fmt.Errorf("gradient %d of %s is %v, want %v", i, p.Name, g, want[i])
		}
	}
	return nil
}

// fakeHook is a Hook that a test writes itself.
type fakeHook struct {
	bind   func(buckets []*Bucket) error
	reduce func(ctx context.Context, comm *mpi.Comm, b *Bucket) error
}

func (h fakeHook) Bind(_ context.Context, _ *mpi.Comm, buckets []*Bucket) error {
	if h.bind == nil {
		return nil
	}
	return h.bind(buckets)
}

func (h fakeHook) Reduce(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
	return h.reduce(ctx, comm, b)
}
func (h fakeHook) State() []State { return nil }

// shapes are the shapes of parameters in tests: vectors, matrices and a convolution, some longer and some shorter than a block of int8.
var shapes = [][]int{{20, 30}, {20}, {8, 4, 3, 3}, {8}, {1}, {1, 5}}

// newReplica returns parameters of the given shapes, and buckets of perBucket parameters each.
func newReplica(perBucket int, shapes ...[]int) ([]*nn.Param, []*Bucket) {
	var params []*nn.Param
	for i, shape := range shapes {
		size := 1
		for _, n := range shape {
			size *= n
		}
		params = append(params,
			&nn.Param{Name: fmt.Sprint("p", i), Shape: shape, Value: make([]float32, size), Grad: make([]float32, size)})
	}
	return params, newBuckets(params, perBucket)
}

// newBuckets moves the gradients of params to new buckets.
func newBuckets(params []*nn.Param, perBucket int) []*Bucket {
	var buckets []*Bucket
	for part := range slices.Chunk(params, perBucket) {
		b := &Bucket{Index: len(buckets), Params: part}
		for _, p := range part {
			b.Data = append(b.Data, p.Grad...)
		}
		rest := b.Data
		for _, p := range part {
			n := len(p.Grad)
			p.Grad, rest = rest[:n:n], rest[n:]
		}
		buckets = append(buckets, b)
	}
	return buckets
}

// fill writes a rank's random gradients of a step to params. Their magnitude differs between neighboring parameters.
func fill(params []*nn.Param, rank, step int) {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(step)))
	for i, p := range params {
		size := math.Pow(10, float64(i%4)-2)
		for j := range p.Grad {
			p.Grad[j] = float32(size * r.NormFloat64())
		}
	}
}

// reduceAll reduces all buckets, as one step does.
func reduceAll(ctx context.Context, comm *mpi.Comm, h Hook, buckets []*Bucket) error {
	for _, b := range buckets {
		if err := h.Reduce(ctx, comm, b); err != nil {
			return err
		}
	}
	return nil
}

// gradients returns a copy of all gradients.
func gradients(params []*nn.Param) []float32 {
	var all []float32
	for _, p := range params {
		all = append(all, p.Grad...)
	}
	return all
}

// sameBits returns an error unless x has the same bits on all ranks, in NaN too.
func sameBits(ctx context.Context, comm *mpi.Comm, what string, x []float32) error {
	return NewDrift(comm, []*nn.Param{{Name: what, Value: x}}).Check(ctx, 0)
}

// onRanks runs f in worlds of 1 to 4 ranks.
func onRanks(t *testing.T, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for world := 1; world <= 4; world++ {
		onWorld(t, world, f)
	}
}

func onWorld(t *testing.T, world int, f func(ctx context.Context, comm *mpi.Comm) error) {
	t.Helper()
	for rank, err := range ranks(t, world, f) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", rank, world, err)
		}
	}
}
