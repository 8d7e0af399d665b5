package shm

import (
	"fmt"

	"ddpbatch/mpi/internal/element"
)

// run does a job: of a benchmark, or of a test that checks every result.
func (m *member) run(o order) error {
	if o.Job == "verify" {
		return m.verify(1, o.Rounds)
	}
	job, ok := jobs[o.Job]
	if !ok {
		return fmt.Errorf("no job %q", o.Job)
	}
	buf := make([]byte, o.Bytes)
	if o.Shared {
		buf = m.region.Bytes()[:o.Bytes]
	}
	at := make([]int, m.size+1)
	for i := range at {
		at[i] = o.Bytes * i / m.size / 4 * 4
	}
	at[m.size] = o.Bytes
	m.out = make([]byte, o.Bytes)
	for range o.Rounds {
		if err := job(m, buf, at); err != nil {
			return err
		}
	}
	return nil
}

// addFloats sums float32, as training does.
var addFloats = func() *Reduction {
	kernel, err := element.KernelOf(element.Float32, element.Sum)
	if err != nil {
		panic(err)
	}
	kernel2, _ := element.Kernel2Of(element.Float32, element.Sum)
	return &Reduction{Kernel: kernel, Kernel2: kernel2, Size: 4}
}()

var jobs = map[string]func(m *member, buf []byte, at []int) error{
	"all_reduce": func(m *member, buf []byte, at []int) error {
		return m.node.AllReduce(m.w, Stamp{1}, buf, addFloats)
	},
	"reduce": func(m *member, buf []byte, at []int) error {
		return m.node.Reduce(m.w, Stamp{2}, buf, 0, addFloats)
	},
	"broadcast": func(m *member, buf []byte, at []int) error {
		return m.node.Broadcast(m.w, Stamp{3}, buf, 0)
	},
	"all_gather": func(m *member, buf []byte, at []int) error {
		return m.node.AllGather(m.w, Stamp{4}, buf, at)
	},
	"reduce_scatter": func(m *member, buf []byte, at []int) error {
		return m.node.ReduceScatter(m.w, Stamp{5}, m.out[:at[m.rank+1]-at[m.rank]], buf, at, addFloats)
	},
	"ping_pong": func(m *member, buf []byte, at []int) error {
		m.connect()
		for turn := range 2 {
			if turn == m.rank {
				if err := m.send(buf); err != nil {
					return err
				}
			} else if err := m.receive(buf); err != nil {
				return err
			}
		}
		return nil
	},
	"barrier": func(m *member, buf []byte, at []int) error {
		return m.node.Barrier(m.w, Stamp{6})
	},
}

const (
	ringCapacity = 256 << 10
	ringHead     = 40 // bytes before each message
)

// connect lays a ring in the registered memory of each of two ranks, to the other.
func (m *member) connect() {
	if m.sent == nil {
		region := m.node.regions[0]
		m.sent = NewRing(region[m.rank][regionSize/2:][:RingOverhead+ringCapacity])
		m.got = NewRing(region[1-m.rank][regionSize/2:][:RingOverhead+ringCapacity])
	}
}

func (m *member) send(body []byte) error {
	var head [ringHead]byte
	h := head[:]
	for {
		n, err := m.sent.Write(h, body)
		if err != nil {
			return err
		}
		cut := min(n, len(h))
		if h, body = h[cut:], body[n-cut:]; len(h)+len(body) == 0 {
			return nil
		}
		if err := m.w.Await(m.sent.Writable); err != nil {
			return err
		}
	}
}

func (m *member) receive(body []byte) error {
	var head [ringHead]byte
	for _, part := range [2][]byte{head[:], body} {
		for len(part) > 0 {
			if err := m.w.Await(m.got.Readable); err != nil {
				return err
			}
			n, err := m.got.Read(part)
			if err != nil {
				return err
			}
			part = part[n:]
		}
	}
	return nil
}
