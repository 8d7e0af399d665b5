package mpi

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/model"
	"ddpbatch/mpi/transport"
)

// timed has rank 0 time its link to rank 1. It returns rank 0's prober with the times of the messages, the costs that follow from them, and
// how long the timing took.
func timed(t *testing.T, comms []*Comm) (asking *prober, costs model.Costs, took time.Duration) {
	t.Helper()
	begun := time.Now()
	must(t, testkit.Each(2, func(rank int) error {
		p := &prober{k: comms[rank].core, memory: make([]byte, 2*halfBytes)}
		if rank == 0 {
			asking = p
		}
		return p.timeLink(t.Context(), 1, &costs)
	}))
	return asking, costs, time.Since(begun)
}

// On a link that has only a delay, an exchange takes as long as one byte takes to arrive, whichever rank begins a little later. A message
// with its answer takes twice as long.
func TestExchangeTakesTheTimeOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100 * time.Microsecond
		network := transport.NewNetwork(2)
		comms := newLocal(t, network, nil)
		network.Delay(delay)
		_, costs, _ := timed(t, comms)
		for i := range longest { // without the longest: each of its pieces takes a delay
			for what, c := range map[string]struct{ got, want float64 }{
				"an exchange": {costs.Exchange[i], delay.Seconds()},
				"a message":   {costs.Message[i], 2 * delay.Seconds()},
			} {
				if math.Abs(c.got-c.want) > 0.01*c.want {
					t.Errorf("%s of %d bytes takes %v s, want %v", what, model.Lengths[i], c.got, c.want)
				}
			}
		}
	})
}

// On a link with a long delay, each length is timed in at most two rounds, and the longest length is not timed.
func TestLongDelayIsTimedInFewRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 25 * time.Millisecond
		network := transport.NewNetwork(2)
		comms := newLocal(t, network, nil)
		network.Delay(delay)
		p, costs, took := timed(t, comms)
		for i := range model.Lengths {
			exchanges, messages := len(p.exchanges[i]), len(p.messages[i])
			switch {
			case i == longest && exchanges+messages > 0:
				t.Errorf("%d exchanges and %d messages of the longest, want none", exchanges, messages)
			case exchanges > 2 || messages > 2:
				t.Errorf("%d exchanges and %d messages of %d bytes, want no more than two of each", exchanges, messages, model.Lengths[i])
			}
		}
		if !costs.Usable() {
			t.Errorf("the costs are %+v", costs)
		}
		// Each length but the longest has two exchanges and two messages, and so does the warm-up. The first exchange takes up to two
		// delays, because the partner must first learn of it. One more delay passes until the partner learns that the timing is over.
		if most := delay * (6*(1+time.Duration(longest)) + 1); took > most {
			t.Errorf("it took %v, want no more than %v", took, most)
		}
	})
}

// slowFabric is a rank's end of a network on which each byte takes time.
type slowFabric struct {
	transport.Fabric
	network *transport.Network
	setting *sync.Mutex   // guards the network's delay
	half    time.Duration // the time that 512 KiB take
}

type slowLink struct {
	transport.Link
	fabric slowFabric
}

func (f slowFabric) Data(rank int) transport.Link { return slowLink{f.Fabric.Data(rank), f} }

func (l slowLink) Write(head, body []byte) (int, error) {
	f := l.fabric
	f.setting.Lock()
	defer f.setting.Unlock()
	f.network.Delay(f.half * time.Duration(len(head)+len(body)) / (512 << 10))
	defer f.network.Delay(0)
	return l.Link.Write(head, body)
}

// newSlow joins two ranks by links on which 512 KiB take the time half.
func newSlow(t *testing.T, half time.Duration) []*Comm {
	t.Helper()
	network, setting := transport.NewNetwork(2), new(sync.Mutex)
	return formed(t, func() ([]*Comm, error) {
		comms := make([]*Comm, 2)
		errs := testkit.Each(2, func(rank int) error {
			fabric, err := network.Fabric(rank)
			if err == nil {
				comms[rank], err = join(t.Context(), slowFabric{fabric, network, setting, half}, testConfig(nil, rank, 2))
			}
			return err
		})
		return comms, errors.Join(errs...)
	})
}

// A slow link is timed for about as long as a few messages of 512 KiB take. The longest messages are left out, and are taken to cost as
// much per byte as the others.
func TestSlowLinkIsTimedInLittleTime(t *testing.T) {
	for _, tt := range []struct {
		half    time.Duration
		longest bool // whether the longest length is timed
	}{{time.Millisecond, true}, {4 * time.Millisecond, false}, {40 * time.Millisecond, false}} { // 4 Gbit/s, 1 Gbit/s, 100 Mbit/s
		t.Run(tt.half.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, costs, took := timed(t, newSlow(t, tt.half))
				if most := 2*linkTime + 9*tt.half; took > most {
					t.Errorf("it took %v, want no more than %v", took, most)
				}
				if got := len(p.exchanges[longest]) > 0; got != tt.longest {
					t.Errorf("the longest is timed: %v, want %v", got, tt.longest)
				}
				for _, n := range []int{512 << 10, 16 << 20} {
					m, want := costs.At(n), tt.half.Seconds()*float64(n)/(512<<10)
					for way, perByte := range map[string]float64{"one way": m.Beta, "each way": m.Both} {
						if got := perByte * float64(n); math.Abs(got-want) > 0.05*want {
							t.Errorf("%d bytes %s take %v s, want %v", n, way, got, want)
						}
					}
				}
			})
		})
	}
}

// The end of the context ends the timing on both ranks, even if nothing arrives any more.
func TestTimingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewNetwork(2)
		comms := newLocal(t, network, nil)
		network.Delay(time.Millisecond)
		const limit = 20 * time.Millisecond
		time.AfterFunc(limit/2, func() { network.Cut(0, 1) })
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		begun := time.Now()
		for rank, err := range testkit.Each(2, func(rank int) error {
			p := &prober{k: comms[rank].core, memory: make([]byte, 2*halfBytes)}
			return p.timeLink(ctx, 1, new(model.Costs))
		}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d got %v", rank, err)
			}
		}
		if took := time.Since(begun); took != limit {
			t.Errorf("it took %v, want %v", took, limit)
		}
	})
}
