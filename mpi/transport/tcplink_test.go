package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// tcpPair returns both ends of a TCP connection.
func tcpPair(t testing.TB) (a, b *tcpLink) {
	t.Helper()
	near, far := dialledPair(t)
	var links [2]*tcpLink
	for i, conn := range []*net.TCPConn{near, far} {
		err := tune(conn)
		if err == nil {
			links[i], err = takeOver(conn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, l := range links {
			if l.fd >= 0 {
				l.close()
			}
		}
	})
	return links[0], links[1]
}

// shut closes a connection early. With reset it sets a linger time of 0, which resets the connection (socket(7)).
func shut(t testing.TB, l *tcpLink, reset bool) {
	t.Helper()
	if reset {
		if err := unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l.fd = -1
}

func stripedPair(t testing.TB, streams, cell int) (a, b *stripedLink) {
	t.Helper()
	near, far := make([]Link, streams), make([]Link, streams)
	for i := range near {
		near[i], far[i] = tcpPair(t)
	}
	return newStripedLink(near, cell), newStripedLink(far, cell)
}

// numbered returns n random bytes, so that bytes in a wrong place are noticed.
func numbered(n int) []byte {
	out := make([]byte, n)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

// Bytes arrive in their order, whatever the pieces in which they are written and read, in both directions at once.
func TestStripedLinkKeepsTheOrder(t *testing.T) {
	seed := rand.Uint64()
	for _, streams := range []int{2, 3, 4, 16} {
		for _, cell := range []int{1, 2, 7, 64, 1000} {
			rng := rand.New(rand.NewPCG(seed, uint64(streams*10_000+cell)))
			a, b := stripedPair(t, streams, cell)
			sent := numbered(40*cell + rng.IntN(2000))
			ends, wrote, read := [2]*stripedLink{a, b}, [2]int{}, [2][]byte{}
			testkit.Eventually(t, "all bytes come", func() bool {
				for range 100 {
					way, size := rng.IntN(2), rng.IntN(3*cell+2)
					if rng.IntN(2) == 0 {
						part := sent[wrote[way]:min(wrote[way]+size, len(sent))]
						cut := rng.IntN(len(part) + 1)
						n, err := ends[way].Write(part[:cut], part[cut:])
						if err != nil || n > len(part) {
							t.Fatalf("seed %d, %d streams, cells of %d: wrote %d bytes of %d, %v", seed, streams, cell, n, len(part), err)
						}
						wrote[way] += n
						continue
					}
					buf := make([]byte, size)
					n, err := ends[1-way].Read(buf)
					if err != nil {
						t.Fatalf("seed %d, %d streams, cells of %d: %v", seed, streams, cell, err)
					}
					read[way] = append(read[way], buf[:n]...)
				}
				return len(read[0]) == len(sent) && len(read[1]) == len(sent)
			})
			if !bytes.Equal(read[0], sent) || !bytes.Equal(read[1], sent) {
				t.Fatalf("seed %d, %d streams, cells of %d: other bytes came out", seed, streams, cell)
			}
		}
	}
}

// The expected streams, of 3 with cells of 4 bytes, were worked out by hand.
func TestStripedLinkDealsCellsOut(t *testing.T) {
	a, b := stripedPair(t, 3, 4)
	if n, err := a.Write([]byte("abcdef"), []byte("ghijklmnopqrst")); n != 20 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []string{"abcdmnop", "efghqrst", "ijkl"} {
		if got := readN(t, b.streams[i], len(want)); string(got) != want {
			t.Errorf("stream %d had %q, want %q", i, got, want)
		}
	}
}

// The end of a link, at any point, is returned after the last byte before it, and by every later read. The same holds for a reset.
func TestStripedLinkReportsItsEnd(t *testing.T) {
	const streams, cell = 3, 4
	for sent := range 3 * streams * cell {
		for _, reset := range []bool{false, true} {
			a, b := stripedPair(t, streams, cell)
			text := numbered(sent)
			if n, err := a.Write(nil, text); n != sent || err != nil {
				t.Fatal(n, err)
			}
			last := a.out.stream
			if reset { // a reset may overtake data that was sent, so only the data of the other streams is sure to arrive
				readBoth(t, b, text)
			}
			for i, l := range a.streams {
				shut(t, l.(*tcpLink), reset && i == last)
			}
			if !reset {
				readBoth(t, b, text)
			}
			for range 3 {
				var err error
				testkit.Eventually(t, "the end is returned", func() bool {
					var n int
					if n, err = b.Read(make([]byte, 100)); n != 0 {
						t.Fatalf("after %d bytes came %d more", sent, n)
					}
					return err != nil
				})
				if want := map[bool]error{false: io.EOF, true: unix.ECONNRESET}[reset]; !errors.Is(err, want) {
					t.Errorf("after %d bytes: %v, want %v", sent, err, want)
				}
			}
			testkit.Eventually(t, "writing fails", func() bool { _, err := b.Write(make([]byte, streams*cell), nil); return err != nil })
		}
	}
}

func readBoth(t testing.TB, l Link, want []byte) {
	t.Helper()
	if got := readN(t, l, len(want)); !bytes.Equal(got, want) {
		t.Fatalf("%x came, want %x", got, want)
	}
}

// If a stream is reset while the others go on, the bytes before its turn are still read, and then the reset.
func TestStripedLinkReadsBeforeAReset(t *testing.T) {
	const cell = 4
	a, b := stripedPair(t, 3, cell)
	text := numbered(2 * cell)
	if n, err := a.Write(nil, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	shut(t, a.streams[2].(*tcpLink), true)
	readBoth(t, b, text)
	testkit.Eventually(t, "a reset", func() bool { _, err := b.Read(make([]byte, 100)); return errors.Is(err, unix.ECONNRESET) })
	if _, err := b.Read(make([]byte, 100)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("then %v", err)
	}
}

func TestStripedLinkReportsAnErrorAfterItsBytes(t *testing.T) {
	a, b := stripedPair(t, 2, 4)
	write(t, a, "abcdef")
	for _, l := range a.streams {
		shut(t, l.(*tcpLink), false)
	}
	buf := make([]byte, 100)
	got := 0
	var err error
	testkit.Eventually(t, "the end is returned", func() bool {
		var n int
		n, err = b.Read(buf[got:])
		if n > 0 && err != nil {
			t.Fatalf("%d bytes and %v", n, err)
		}
		got += n
		return err != nil
	})
	if string(buf[:got]) != "abcdef" || !errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v", buf[:got], err)
	}
}

// A link that is full continues at the right place after it has been read.
func TestFullStripedLinkGoesOnWhereItWas(t *testing.T) {
	const cell = 1 << 10
	a, b := stripedPair(t, 2, cell)
	block, sent := numbered(1<<20), []byte{}
	testkit.Eventually(t, "the link is full", func() bool {
		n, err := a.Write(block[:100], block[100:])
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, block[:n]...)
		return n == 0
	})
	readBoth(t, b, sent)
	if n, err := a.Write([]byte("more"), []byte(" of it")); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	readBoth(t, b, []byte("more of it"))
}

// flowVariable makes this binary one of the two processes of a flow: "RANK STREAMS BYTES RATE DIRECTORY".
const flowVariable = "DDPBATCH_TEST_FLOW"

// netAddress returns the address of a rank between two namespaces, from a block for documentation (RFC 5737).
func netAddress(rank int) string { return fmt.Sprintf("192.0.2.%d", rank+1) }

const flowDevice = "flow0"

// namespaces joins two network namespaces by a veth pair (veth(4)), and returns their names by rank.
func namespaces(t testing.TB) [2]string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces: not as this user, only as root")
	}
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("network namespaces: %v; it is in Debian's package iproute2", err)
		}
	}
	var names [2]string
	for rank := range names {
		names[rank] = fmt.Sprintf("ddpbatch-%d-%d", os.Getpid(), rank)
		if out, err := exec.Command("ip", "netns", "add", names[rank]).CombinedOutput(); err != nil {
			t.Skipf("network namespaces: this machine makes none: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", names[rank]).Run() })
	}
	run(t, "ip", "link", "add", flowDevice, "netns", names[0], "type", "veth", "peer", "name", flowDevice, "netns", names[1])
	for rank, name := range names {
		run(t, "ip", "-n", name, "addr", "add", netAddress(rank)+"/24", "dev", flowDevice)
		run(t, "ip", "-n", name, "link", "set", flowDevice, "up")
	}
	return names
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// flow sends bytes from rank 1 to rank 0 over the given number of streams, each limited to rate, as tc(8) writes it. It returns the bytes
// per second.
func flow(t testing.TB, names [2]string, streams, size int, rate string) float64 {
	t.Helper()
	dir := t.TempDir()
	exec.Command("ip", "netns", "exec", names[1], "tc", "qdisc", "del", "dev", flowDevice, "root").Run() // of the previous flow
	run(t, "ip", "netns", "exec", names[1], "tc", "qdisc", "add", "dev", flowDevice, "root", "handle", "1:", "htb")
	var out [2]bytes.Buffer
	errs := testkit.Each(2, func(rank int) error {
		cmd := exec.Command("ip", "netns", "exec", names[rank], os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", // otherwise the race detector takes a second to end
			fmt.Sprintf("%s=%d %d %d %s %s", flowVariable, rank, streams, size, rate, dir))
		cmd.Stdout, cmd.Stderr = &out[rank], &out[rank]
		return cmd.Run()
	})
	took, err := time.ParseDuration(strings.TrimSpace(out[1].String()))
	if errs[0] != nil || errs[1] != nil || err != nil {
		t.Fatalf("%v, %q, %q, %v", errs, out[0].String(), out[1].String(), err)
	}
	return float64(size) / took.Seconds()
}

// flowProcess is one of the two processes of a flow.
func flowProcess(words string) error {
	var rank, streams, size int
	var rate, dir string
	if _, err := fmt.Sscan(words, &rank, &streams, &size, &rate, &dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	cfg := testConfig(folder(dir), rank, 2)
	cfg.Listen, cfg.Sharing, cfg.Streams = netAddress(rank), ShareNever, streams
	f, err := Connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer f.Close()
	if rank == 1 && rate != "-" {
		if err := limit(f, rate); err != nil {
			return err
		}
	}
	l, block, start := f.Data(1-rank), make([]byte, 1<<20), time.Now()
	for done := 0; done < size; {
		part := block[:min(len(block), size-done)]
		n := 0
		if rank == 1 {
			n, err = l.Write(nil, part)
		} else {
			n, err = l.Read(part)
		}
		if err != nil {
			return err
		}
		if done += n; n == 0 {
			f.Sleep()
			f.Ready(nil)
		}
	}
	if rank == 0 {
		_, err = f.Control(1).Write(block[:1], nil)
		return err
	}
	for n := 0; n == 0 && err == nil; n, err = f.Control(0).Read(block[:1]) {
	}
	fmt.Println(time.Since(start))
	return err
}

// limit gives each stream of the data link to rank 0 a class of its own (tc-htb(8)).
func limit(f *Sockets, rate string) error {
	streams := []Link{f.data[0]}
	if l, ok := f.data[0].(*stripedLink); ok {
		streams = l.streams
	}
	for i, l := range streams {
		name, err := unix.Getsockname(l.(*tcpLink).fd)
		if err != nil {
			return err
		}
		class, port := fmt.Sprintf("1:%d", i+1), strconv.Itoa(name.(*unix.SockaddrInet4).Port)
		for _, args := range []string{
			"class replace dev " + flowDevice + " parent 1: classid " + class + " htb rate " + rate,
			"filter add dev " + flowDevice + " parent 1: protocol ip u32 match ip sport " + port + " 0xffff flowid " + class,
		} {
			if out, err := exec.Command("tc", strings.Fields(args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("tc %s: %w: %s", args, err, out)
			}
		}
	}
	return nil
}

// folder is a Directory that keeps its values in files.
type folder string

func (d folder) path(key string) string { return filepath.Join(string(d), filepath.Base(key)) }

func (d folder) Set(_ context.Context, key string, value []byte) error {
	if err := os.WriteFile(d.path(key)+".new", value, 0o600); err != nil {
		return err
	}
	return os.Rename(d.path(key)+".new", d.path(key))
}

func (d folder) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		value, err := os.ReadFile(d.path(key))
		if err == nil {
			return value, nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// If the network limits each flow, as clouds do, the rates of streams add up.
func TestStreamsAddUp(t *testing.T) {
	if !testkit.IsLong() {
		t.Skip("a bound on throughput belongs to --long: what else the machine does slows all streams down")
	}
	const size, rate = 8 << 20, "200mbit" // 25 MB/s
	names := namespaces(t)
	one, four := flow(t, names, 1, size, rate), 0.0
	for try := 0; try < 5 && four < 2.5*one; try++ { // other work on the machine can only slow them down
		four = max(four, flow(t, names, 4, 4*size, rate))
	}
	t.Logf("1 stream: %.0f MB/s, 4 streams: %.0f MB/s, where each gets %s", one/1e6, four/1e6, rate)
	if one > 30e6 {
		t.Errorf("the limit does not limit one stream: %.0f MB/s", one/1e6)
	}
	if four < 2.5*one {
		t.Errorf("4 streams gave %.1f times the bandwidth of one", four/one)
	}
}

// BenchmarkStreams sends between two network namespaces, with each flow limited and without limits.
func BenchmarkStreams(b *testing.B) {
	names := namespaces(b)
	for _, rate := range []string{"1gbit", "-"} {
		for _, streams := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("rate=%s/streams=%d", rate, streams), func(b *testing.B) {
				const size = 256 << 20
				sum := 0.0
				for range b.N {
					sum += flow(b, names, streams, size, rate)
				}
				b.ReportMetric(sum/float64(b.N)/1e6, "MB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
