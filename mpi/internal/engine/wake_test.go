package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// strain is how long each of the tests here tries to lose a wake-up.
const strain = 100 * time.Millisecond

// A lost wake-up shows as a time-out. Ranks therefore play ping-pong in several groups at once, with pauses about as long as it takes to
// fall asleep and to wake up. Some poll for long, some briefly, and some sleep at once.
func TestNoWakeUpIsLost(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		for _, spin := range []time.Duration{0, 20 * time.Microsecond, 300 * time.Microsecond} {
			seed := rand.Uint64()
			t.Logf("spin %v, seed %d", spin, seed)
			w := newWorld(t, k, 2, func(_ int, o *Options) { o.Timeout = testkit.Patience })
			for _, e := range w.engines {
				e.mu.Lock()
				e.policy.Spin = spin
				e.mu.Unlock()
			}
			const games = 3
			deadline := time.Now().Add(strain)
			errs := testkit.Each(2*games, func(i int) error {
				rank, game := i%2, i/2
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				g := w.join(rank, uint64(100+game), all(2))
				buf := make([]byte, 1+game*100_000) // the longer ones do not fit in the links at once
				for turn, last := uint64(0), false; !last; turn++ {
					if int(turn%2) == rank {
						idle(rng)
						buf[0] = 0
						if rank == 0 && time.Now().After(deadline) {
							buf[0], last = 1, true
						}
						if err := send(t.Context(), g, 1-rank, turn, buf); err != nil {
							return fmt.Errorf("turn %d: %w", turn, err)
						}
						continue
					}
					idle(rng)
					if err := receive(t.Context(), g, 1-rank, turn, buf); err != nil {
						return fmt.Errorf("turn %d: %w", turn, err)
					}
					last = buf[0] == 1
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// No notification of a condition is lost, either. Here ranks count up in turns.
func TestNoNudgeIsLost(t *testing.T) {
	overShared(t, func(t *testing.T, k kind) {
		for _, spin := range []time.Duration{0, 300 * time.Microsecond} {
			seed := rand.Uint64()
			t.Logf("spin %v, seed %d", spin, seed)
			w := newWorld(t, k, 2, func(_ int, o *Options) { o.Timeout = testkit.Patience })
			for _, e := range w.engines {
				e.mu.Lock()
				e.policy.Spin = spin
				e.mu.Unlock()
			}
			const games = 2
			var counts [games]atomic.Int64
			deadline := time.Now().Add(strain)
			errs := testkit.Each(2*games, func(i int) error {
				rank, game := i%2, i/2
				count := &counts[game]
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				g := w.groups[rank]
				for mine := int64(rank); time.Now().Before(deadline); mine += 2 {
					if err := g.Await(t.Context(), func() bool { return count.Load() >= mine }); err != nil {
						return fmt.Errorf("turn %d: %w", mine, err)
					}
					idle(rng)
					count.CompareAndSwap(mine, mine+1)
					g.Notify()
				}
				count.Store(1 << 40) // lets the other rank end
				g.Notify()
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// idle does nothing for 0 to 100 microseconds, by sleeping, by spinning, or by returning at once.
func idle(rng *rand.Rand) {
	d := time.Duration(rng.IntN(100)) * time.Microsecond
	switch rng.IntN(3) {
	case 0:
		pause(d)
	case 1:
		for start := time.Now(); time.Since(start) < d; {
		}
	}
}

// While a goroutine polls, another sleeps. The first must wake the sleeper if it finds something for it, and must not suppress the events
// that wake the sleeper.
func TestPollingDoesNotKeepOthersAsleep(t *testing.T) {
	overAll(t, func(t *testing.T, k kind) {
		w := newWorld(t, k, 2, nil, 1)
		e := w.engines[0]
		e.mu.Lock()
		e.policy.Spin = 0
		e.mu.Unlock()
		for i := range uint64(80) {
			done := make(chan error, 1)
			go func() { done <- receive(t.Context(), w.groups[0], 1, 2, make([]byte, 2)) }()
			eventuallyAsleep(t, e, 1)
			var op Op
			w.groups[0].RecvMessage(&op, 1, tag(1), make([]byte, 1))
			frames := append(frameOf(kindMessage, Call{Group: worldID, Seq: 1}, "1"),
				frameOf(kindMessage, Call{Group: worldID, Seq: 2}, "22")...)
			if i%2 == 0 {
				w.puppets[1].write(w.puppets[1].lane(0, kindMessage), frames)
			} else { // the second frame comes after the polling
				w.puppets[1].write(w.puppets[1].lane(0, kindMessage), frames[:headerSize+1])
			}
			for !op.Done() {
				w.groups[0].Poll(&op)
				if i%4 == 1 {
					e.tryLook()
				}
			}
			if i%2 == 1 {
				w.puppets[1].write(w.puppets[1].lane(0, kindMessage), frames[headerSize+1:])
			}
			if err := within(t, func() error { return <-done }); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Data that another goroutine has read ahead does not wake the attendant, and neither does a link that cannot be written. The sleeper must
// be woken anyhow.
func TestSleeperIsWokenByReadAheadOnAFullLink(t *testing.T) {
	w := newWorld(t, overTCP, 2, nil, 1)
	e, p := w.engines[0], w.puppets[1]
	var full Op
	w.groups[0].SendMessage(&full, 1, tag(9), make([]byte, 16<<20))
	testkit.Eventually(t, "the link is full", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !e.look()
	})
	both := append(frameOf(kindMessage, Call{Group: worldID, Seq: 1}, "1"), frameOf(kindMessage, Call{Group: worldID, Seq: 2}, "22")...)
	for range 50 {
		done := make(chan error, 1)
		go func() { done <- receive(t.Context(), w.groups[0], 1, 2, make([]byte, 2)) }()
		eventuallyAsleep(t, e, 1)
		var op Op
		w.groups[0].RecvMessage(&op, 1, tag(1), make([]byte, 1))
		e.mu.Lock()
		p.write(p.lane(0, kindMessage), both)
		for !op.Done() {
			e.poll(&op)
		}
		e.mu.Unlock()
		if err := within(t, func() error { return <-done }); err != nil {
			t.Fatal(err)
		}
	}
	p.die() // otherwise closing would wait for the puppet to read
}

func frameOf(k frameKind, call Call, payload string) []byte {
	var head [headerSize]byte
	h := header{kind: k, call: call, length: uint64(len(payload))}
	h.encode(&head)
	return append(head[:], payload...)
}
