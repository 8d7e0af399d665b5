package transport

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// startSleep runs Sleep, and closes the channel when it has returned.
func startSleep(f Fabric) chan struct{} {
	done := make(chan struct{})
	go func() {
		f.Sleep()
		close(done)
	}()
	return done
}

func expectWoken(t testing.TB, done chan struct{}) {
	t.Helper()
	testkit.Within(t, testkit.Patience, func() { <-done })
}

// clearReady consumes all announcements, so that the next Sleep blocks.
func clearReady(t testing.TB, f Fabric) {
	t.Helper()
	f.Ready(nil)
	f.Wake()
	f.Sleep()
	f.Ready(nil)
}

// Ready returns each link with news once, and both links of a rank that has ended.
func TestReadyReportsEachLinkOnce(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 4)
		f := fabrics[0]
		clearReady(t, f)
		if links := f.Ready(nil); len(links) != 0 {
			t.Errorf("news of %v before anybody said anything", links)
		}
		want := []LinkID{{Rank: 2}, {Rank: 3}, {Rank: 3, Data: true}}
		if isShared(f.Data(3)) { // only a read shows it
			want = want[:2]
		}
		write(t, fabrics[2].Control(0), "x")
		write(t, fabrics[3].Control(0), "x")
		write(t, fabrics[3].Data(0), "x")
		f.Sleep()
		var ready []LinkID
		testkit.Eventually(t, "all are returned", func() bool { ready = f.Ready(ready); return len(ready) >= len(want) })
		slices.SortFunc(ready, func(a, b LinkID) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(fmt.Sprint(a.Data), fmt.Sprint(b.Data)))
		})
		if !slices.Equal(ready, want) {
			t.Errorf("news of %v, want %v", ready, want)
		}
		if again := f.Ready(nil); len(again) != 0 {
			t.Errorf("news of %v twice", again)
		}
		readN(t, f.Control(2), 1)
		fabrics[2].Close()
		ready = nil
		testkit.Eventually(t, "the end is returned", func() bool {
			ready = f.Ready(ready)
			return slices.Contains(ready, LinkID{Rank: 2}) && (isShared(f.Data(2)) || slices.Contains(ready, LinkID{Rank: 2, Data: true}))
		})
	})
}

// If a full link has room again, Ready returns it, and only once even if it has many streams.
func TestReadyReportsRoomToWrite(t *testing.T) {
	for _, kind := range []string{"tcp", "streams"} {
		for _, name := range []string{"control", "data"} {
			t.Run(kind+"_"+name, func(t *testing.T) {
				fabrics := kinds[kind](t, 2)
				l, sent := links(fabrics[0], 1)[name], 0
				testkit.Eventually(t, "the link is full", func() bool {
					n, _ := l.Write(nil, make([]byte, 1<<20))
					sent += n
					return n == 0
				})
				clearReady(t, fabrics[0])
				done := startSleep(fabrics[0])
				readN(t, links(fabrics[1], 0)[name], sent-controlRecord) // the last record of a control link may still be here
				expectWoken(t, done)
				links, want := fabrics[0].Ready(nil), LinkID{Rank: 1, Data: name == "data"}
				if !slices.Equal(links, []LinkID{want}) {
					t.Errorf("news of %v, want %v", links, want)
				}
			})
		}
	}
}

// A neighbor that writes endlessly does not hold up the rank.
func TestEmptyingIsBounded(t *testing.T) {
	b, err := newWakePipe()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	size, err := unix.FcntlInt(uintptr(b.write), unix.F_SETPIPE_SZ, 4*pipeCapacity) // any process that has it open can do this
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(b.write, make([]byte, size)); n != size || err != nil {
		t.Fatal(n, err)
	}
	b.empty()
	left, err := unix.IoctlGetInt(b.read, unix.TIOCINQ)
	if err != nil || left != size-pipeCapacity {
		t.Errorf("%d of %d bytes are left, %v", left, size, err)
	}
}

func TestWakeEndsASleep(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		f := join(t, 2)[0]
		clearReady(t, f)
		done := startSleep(f)
		f.Wake()
		expectWoken(t, done)
		clearReady(t, f)
		for range 100_000 { // more than a pipe holds
			f.Wake()
		}
		expectWoken(t, startSleep(f)) // a Wake before the Sleep counts
	})
}

// Shared memory wakes only a rank that is armed: if data or room is available, or if another rank wakes it.
func TestMemoryWakesOnlyTheArmed(t *testing.T) {
	for name, wake := range map[string]func(other Fabric){
		"bytes": func(other Fabric) { other.Data(0).Write([]byte("x"), nil) },
		"wake":  func(other Fabric) { other.WakeRank(0) },
	} {
		t.Run(name, func(t *testing.T) {
			fabrics := kinds["shared"](t, 2)
			f := fabrics[0].(*Sockets)
			clearReady(t, f)
			f.Arm()
			done := startSleep(f)
			wake(fabrics[1])
			expectWoken(t, done)
			f.Arm()
			wake(fabrics[1]) // between Arm and Sleep
			expectWoken(t, startSleep(f))
			f.Arm()
			f.Disarm()
			wake(fabrics[1])
			done = startSleep(f)
			select {
			case <-done:
				t.Error("it was woken and is not armed")
			case <-time.After(20 * time.Millisecond):
			}
			f.Wake()
			expectWoken(t, done)
		})
	}
}

func TestArmedRankIsWokenByRoom(t *testing.T) {
	fabrics := kinds["shared"](t, 2)
	f, sent := fabrics[0], 0
	for {
		n, err := f.Data(1).Write(nil, make([]byte, 100_000))
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n == 0 {
			break
		}
	}
	if sent != ringBytes {
		t.Errorf("it took %d bytes, not %d", sent, ringBytes)
	}
	clearReady(t, f)
	f.Arm()
	done := startSleep(f)
	readN(t, fabrics[1].Data(0), 1)
	expectWoken(t, done)
}

// A goroutine that polls while another sleeps does not take the wake-up from the sleeper: the rank that sent it has disarmed the sleeper,
// and will not send another.
func TestWakeupIsTheSleepers(t *testing.T) {
	fabrics := kinds["shared"](t, 2)
	f := fabrics[0]
	clearReady(t, f)
	for range 200 {
		f.Arm()
		done := make(chan struct{})
		go func() { f.Sleep(); close(done) }()
		runtime.Gosched()
		fabrics[1].WakeRank(0)
		f.Ready(nil)
		expectWoken(t, done)
	}
}

// Two ranks pass bytes to each other and sleep in between, for times around that which a wake-up takes.
func TestNoWakeupIsLost(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 2)
		const exchanges = 2000
		testkit.Within(t, 4*testkit.Patience, func() { // a lost wake-up never comes
			testkit.Each(2, func(rank int) error {
				f, l := fabrics[rank], fabrics[rank].Data(1-rank)
				rng := rand.New(rand.NewPCG(1, uint64(rank)))
				var buf [1]byte
				for i := range exchanges {
					if i%2 == rank {
						for start, d := time.Now(), time.Duration(rng.IntN(30))*time.Microsecond; time.Since(start) < d; {
						}
						l.Write(buf[:], nil)
						continue
					}
					for {
						f.Arm()
						f.Ready(nil)
						if n, _ := l.Read(buf[:]); n == 1 {
							break
						}
						f.Sleep()
					}
					f.Disarm()
				}
				return nil
			})
		})
	})
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	fabrics := connectRanks(t, 3, nil)
	before := openFiles(t)
	if err := fabrics[0].Close(); err != nil {
		t.Fatal(err)
	}
	between := openFiles(t)
	b, err := newWakePipe() // may get the numbers that were just closed
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := fabrics[0].Close(); err != nil {
		t.Errorf("again: %v", err)
	}
	if between >= before {
		t.Errorf("%d descriptors, then %d", before, between)
	}
	for _, fd := range []int{b.read, b.write} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("another's descriptor was closed: %v", err)
		}
	}
}

// Close waits until everything that was written has arrived, but not if the peer has gone. Other work on the machine may delay some tries,
// but hardly all.
func TestCloseDoesNotWaitForLostPeers(t *testing.T) {
	var took []time.Duration
	for range 20 {
		took = append(took, closeWithoutPeer(t))
		if took[len(took)-1] < linger/2 {
			return
		}
	}
	t.Errorf("closing took %v, never less than %v", took, linger/2)
}

// closeWithoutPeer returns how long it takes to close a full link to a rank that has gone.
func closeWithoutPeer(t *testing.T) time.Duration {
	t.Helper()
	fabrics := connectRanks(t, 2, share(ShareNever))
	l := fabrics[0].Control(1)
	testkit.Eventually(t, "the link is full", func() bool {
		n, err := l.Write(nil, make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	fabrics[1].Close()
	testkit.Eventually(t, "its end is noticed", func() bool { _, err := l.Write(nil, []byte("x")); return err != nil })
	start := time.Now()
	fabrics[0].Close()
	return time.Since(start)
}
