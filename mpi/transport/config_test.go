package transport

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// The expected numbers of streams were worked out by hand. Unless Config.Streams is set, the number is 1 within a machine. Between machines
// it is 256 over the number of ranks, but at most 4 and at least 1.
func TestStreamsArePickedByDistanceAndSize(t *testing.T) {
	for _, tt := range []struct {
		size, given, far, near int
	}{
		{2, 0, 4, 1}, {64, 0, 4, 1}, {65, 0, 3, 1}, {85, 0, 3, 1}, {86, 0, 2, 1}, {128, 0, 2, 1}, {129, 0, 1, 1}, {256, 0, 1, 1},
		{1000, 0, 1, 1}, {1_000_000, 0, 1, 1}, {2, 1, 1, 1}, {2, 16, 16, 16}, {1000, 3, 3, 3},
	} {
		cfg := Config{Size: tt.size, Streams: tt.given}
		if far, near := cfg.streams(false), cfg.streams(true); far != tt.far || near != tt.near {
			t.Errorf("of %d ranks, given %d: %d and, within a machine, %d, want %d and %d", tt.size, tt.given, far, near, tt.far, tt.near)
		}
	}
}

// The higher rank of a pair, which dials, decides the number of streams. A link of one stream is that stream, and memory needs no stream.
func TestHigherRankDecidesThePairsStreams(t *testing.T) {
	for _, tt := range []struct {
		sharing   Sharing
		low, high int // Config.Streams
		want      int
	}{
		{ShareNever, 0, 0, 1}, {ShareNever, 1, 1, 1}, {ShareNever, 1, 3, 3}, {ShareNever, 3, 1, 1}, {ShareNever, 16, 2, 2},
		{ShareNever, 2, 16, 16}, {ShareWhereItWorks, 2, 2, 0}, {ShareAlways, 16, 16, 0},
	} {
		t.Run(fmt.Sprintf("%d_%d_%d", tt.sharing, tt.low, tt.high), func(t *testing.T) {
			fabrics := connectRanks(t, 2, func(c *Config) { c.Sharing, c.Streams = tt.sharing, [2]int{tt.low, tt.high}[c.Rank] })
			for rank, f := range fabrics {
				streams := 0
				switch l := f.Data(1 - rank).(type) {
				case *tcpLink:
					streams = 1
				case *stripedLink:
					streams = len(l.streams)
				}
				if streams != tt.want || len(f.conns) != 1+tt.want {
					t.Errorf("rank %d has %d streams, and %d connections in all, want %d streams", rank, streams, len(f.conns), tt.want)
				}
			}
		})
	}
}

func TestFaultyConfigIsRefused(t *testing.T) {
	tests := []struct {
		name      string
		change    func(*Config)
		complaint string
	}{
		{"rank_negative", func(c *Config) { c.Rank = -1 }, "rank -1 does not exist in a world of 2 ranks"},
		{"rank_too_high", func(c *Config) { c.Rank = 2 }, "rank 2 does not exist in a world of 2 ranks"},
		{"size_too_large", func(c *Config) { c.Size = store.MaxWorld + 1 }, "a world has at most 1048576 ranks, got 1048577"},
		{"size_zero", func(c *Config) { c.Size, c.Rank = 0, 0 }, "rank 0 does not exist in a world of 0 ranks"},
		{"listen_empty", func(c *Config) { c.Listen = "" }, "must be an IP address"},
		{"listen_name", func(c *Config) { c.Listen = "localhost" }, "must be an IP address"},
		{"listen_everywhere", func(c *Config) { c.Listen = "0.0.0.0" }, "cannot connect to the address 0.0.0.0"},
		{"listen_everywhere_6", func(c *Config) { c.Listen = "::" }, "cannot connect to the address ::"},
		{"listen_elsewhere", func(c *Config) { c.Listen = "192.0.2.1" }, "listen for the other ranks"}, // TEST-NET-1, RFC 5737
		{"streams_negative", func(c *Config) { c.Streams = -1 }, "must be from 0 to 16, got -1"},
		{"streams_too_many", func(c *Config) { c.Streams = 17 }, "must be from 0 to 16, got 17"},
		{"no_secret", func(c *Config) { c.Secret = auth.Secret{} }, "no secret is set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(store.NewMemory(), 0, 2)
			tt.change(&cfg)
			_, err := Connect(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tt.complaint) {
				t.Errorf("got %v, want %q", err, tt.complaint)
			}
		})
	}
}

func TestAddressRecordRoundTrip(t *testing.T) {
	for _, e := range []addressRecord{
		{"10.0.0.7:4000", machineID(), testSecret}, {"[fd00::1]:1", "unknown", testSecret}, {"10.0.0.7:4000", "", testSecret},
	} {
		addr, machine, ticket, err := decodeAddressRecord(e.encode())
		if err != nil || addr != netip.MustParseAddrPort(e.addr) || machine != e.machine || ticket != e.ticket {
			t.Errorf("%+v becomes %v, %q, %v", e, addr, machine, err)
		}
	}
}

func FuzzDecodeAddressRecord(f *testing.F) {
	f.Add([]byte("10.0.0.7:4000 0f3c"))
	f.Add(addressRecord{"10.0.0.7:4000", "0f3c", testSecret}.encode())
	f.Add([]byte("localhost:1 x"))
	f.Fuzz(func(t *testing.T, value []byte) {
		addr, machine, ticket, err := decodeAddressRecord(value)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !addr.IsValid() || len(machine) > 256 || ticket.IsZero() {
			t.Fatalf("%v, %q", addr, machine)
		}
	})
}

func TestTooManyRanksOversubscribeTheCores(t *testing.T) {
	cores := runtime.NumCPU()
	var cfg Config
	if cfg.oversubscribed(cores-1) || !cfg.oversubscribed(cores) {
		t.Errorf("on %d cores, %d other ranks are a crowd: %v, %d: %v",
			cores, cores-1, cfg.oversubscribed(cores-1), cores, cfg.oversubscribed(cores))
	}
	if (Config{OwnCores: true}).oversubscribed(cores) {
		t.Error("a rank with cores of its own is in a crowd")
	}
	if m := connectRanks(t, cores+1, nil)[0].WaitPolicy(); !m.Yield {
		t.Error("ranks that are more than the cores do not give them away")
	}
}
