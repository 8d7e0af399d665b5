package ddp

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// processVariable is the environment variable that makes the test binary run as one rank of a benchmark. It holds a measurement as JSON.
const processVariable = "DDP_TEST_MEASURE"

// measurement says how each rank, in a process of its own, trains an MLP 784-512-256-10 on random rows.
type measurement struct {
	Transport string
	Config    Config
	Steps     int
	Procs     int // GOMAXPROCS
}

// medians holds rank 0's medians over all steps but the first tenth.
type medians struct{ Step, Communication, Exposed time.Duration }

func (m measurement) run() error {
	runtime.GOMAXPROCS(m.Procs)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lib, _, err := blas.Open(blas.Config{Library: blas.Auto, Threads: 1})
	if err != nil {
		return err
	}
	cfg := mpi.DefaultConfig()
	cfg.Transport = m.Transport
	comm, err := mpi.InitEnv(ctx, os.LookupEnv, cfg, nil)
	if err != nil {
		return err
	}
	defer comm.Close()
	src := rand.New(rand.NewPCG(1, 2))
	model := nn.NewSequential(nn.NewLinear(784, 512, src), nn.NewReLU(), nn.NewLinear(512, 256, src), nn.NewReLU(),
		nn.NewLinear(256, 10, src))
	d, err := New(ctx, comm, model.Params(), nil, m.Config)
	if err != nil {
		return err
	}
	optimizer, err := optim.New(model.Params(), optim.Config{Kind: "sgd", LR: 0.01, Momentum: 0.9})
	if err != nil {
		return err
	}
	x, labels := randomMatrix(src, 64, 784), make([]int, 64)
	var loss nn.CrossEntropy
	pass, sums := &nn.Pass{Training: true, BLAS: lib}, make([]float64, 2)
	var step, communication, exposed []time.Duration
	for i := range m.Steps {
		began := time.Now()
		d.ZeroGrad()
		value, dy := loss.Loss(model.Forward(pass, x), labels)
		sums[0], sums[1] = value, 1
		d.Begin(ctx, pass, sums)
		model.Backward(pass, dy, false)
		if err := d.Finish(); err != nil {
			return err
		}
		optimizer.Step()
		if i >= m.Steps/10 {
			step = append(step, time.Since(began))
			communication = append(communication, d.Stats().Communication)
			exposed = append(exposed, d.Stats().Exposed)
		}
	}
	if comm.Rank() > 0 {
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(medians{median(step), median(communication), median(exposed)})
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// measure runs a measurement in processes of their own.
func (m measurement) measure(b *testing.B, world int) medians {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	text, err := json.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	out := make([][]byte, world)
	must(b, testkit.Each(world, func(rank int) error {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), processVariable+"="+string(text), "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(world),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port), "DDPBATCH_SECRET="+fmt.Sprintf("%064x", 1))
		cmd.Stderr = os.Stderr
		var err error
		out[rank], err = cmd.Output()
		return err
	}))
	var got medians
	if err := json.Unmarshal(out[0], &got); err != nil {
		b.Fatalf("rank 0 printed %q: %v", out[0], err)
	}
	return got
}

// BenchmarkProcesses measures the steps of two ranks with one thread each, each in a process of its own. The figures include the time that
// ranks wait for each other, so they say little on a busy machine.
func BenchmarkProcesses(b *testing.B) {
	for _, transport := range []string{"shm", "tcp"} {
		for _, overlap := range []bool{false, true} {
			for _, first := range []int{256 << 10, 1 << 20} { // two buckets, and one
				b.Run(fmt.Sprintf("%s/overlap=%t/first=%dK", transport, overlap, first>>10), func(b *testing.B) {
					got := measurement{transport, Config{FirstBucketBytes: first, Overlap: overlap}, 200, 1}.measure(b, 2)
					b.ReportMetric(float64(got.Step.Microseconds()), "us/step")
					b.ReportMetric(float64(got.Communication.Microseconds()), "us-communication")
					b.ReportMetric(float64(got.Exposed.Microseconds()), "us-exposed")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
