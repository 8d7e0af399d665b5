package transport

import (
	"fmt"
	"testing"
)

// How many streams are picked. By hand: 1 within a machine; else 256 connections to all ranks, but no more than 4 to each.
func TestStreamsPicked(t *testing.T) {
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

// The higher rank, which dials, decides for a pair; a link of one stream is that stream; memory needs none.
func TestStreamsOfPairs(t *testing.T) {
	for _, tt := range []struct {
		sharing   Sharing
		low, high int // Config.Streams
		want      int
	}{
		{ShareNever, 0, 0, 1}, {ShareNever, 1, 1, 1}, {ShareNever, 1, 3, 3}, {ShareNever, 3, 1, 1}, {ShareNever, 16, 2, 2},
		{ShareNever, 2, 16, 16}, {ShareWhereItWorks, 2, 2, 0}, {ShareAlways, 16, 16, 0},
	} {
		t.Run(fmt.Sprintf("%d_%d_%d", tt.sharing, tt.low, tt.high), func(t *testing.T) {
			fabrics := meetAll(t, 2, func(c *Config) { c.Sharing, c.Streams = tt.sharing, [2]int{tt.low, tt.high}[c.Rank] })
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
