package transport

import (
	"bytes"
	"context"
	"fmt"
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

// flowVariable makes this binary one of the two processes of a flow: "RANK STREAMS BYTES RATE DIRECTORY".
const flowVariable = "DDPBATCH_TEST_FLOW"

// netAddress is that of a rank between two namespaces, from a block for documentation (RFC 5737).
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

// flow sends bytes from rank 1 to rank 0 by so many streams, each of which gets no more than rate, as tc(8) writes it, and
// returns the bytes per second.
func flow(t testing.TB, names [2]string, streams, size int, rate string) float64 {
	t.Helper()
	dir := t.TempDir()
	exec.Command("ip", "netns", "exec", names[1], "tc", "qdisc", "del", "dev", flowDevice, "root").Run() // of the flow before
	run(t, "ip", "netns", "exec", names[1], "tc", "qdisc", "add", "dev", flowDevice, "root", "handle", "1:", "htb")
	var out [2]bytes.Buffer
	errs := testkit.Each(2, func(rank int) error {
		cmd := exec.Command("ip", "netns", "exec", names[rank], os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", // else the race detector takes a second to end
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

// flowProcess is one of the two.
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

// folder is a Directory of files.
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

// Where the network limits each flow, as clouds do, streams add up.
func TestStreamsAddUp(t *testing.T) {
	const size, rate = 8 << 20, "200mbit" // 25 MB/s
	names := namespaces(t)
	one, four := flow(t, names, 1, size, rate), 0.0
	for try := 0; try < 5 && four < 2.5*one; try++ { // what else the machine does only slows them down
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
