package mpi

import (
	"testing"

	"ddpbatch/mpi/internal/engine"
)

func TestDescriptionNamesTheCall(t *testing.T) {
	for _, tt := range []struct {
		call engine.Call
		want string
	}{
		{engine.Call{Seq: 1}, "init #1"},
		{engine.Call{Seq: 7, Count: 10, Collective: 1, Element: 1, Op: 1}, "all_reduce #7 float32 x 10 sum"},
		{engine.Call{Seq: 8, Count: 3, Collective: 1, Element: 5, Op: 3}, "all_reduce #8 uint8 x 3 max"},
		{engine.Call{Seq: 9, Count: 3, Collective: 2, Element: 4, Root: 2}, "broadcast #9 int64 x 3 from rank 2"},
		{engine.Call{Seq: 1, Collective: 3}, "barrier #1"},
		// Codes that a hostile or newer peer might send.
		{engine.Call{Seq: 1, Collective: 1, Element: 0, Op: 0}, "all_reduce #1"},
		{engine.Call{Seq: 1, Collective: 1, Element: 99, Op: 40}, "all_reduce #1 element type 99 x 0 op 40"},
		{engine.Call{Seq: 1, Collective: 255}, "collective 255 #1"},
	} {
		if got := describe(tt.call); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(uint64(7), uint64(10), int32(0), uint8(1), uint8(1), uint8(1))
	f.Add(uint64(0), uint64(0), int32(-1), uint8(255), uint8(255), uint8(255))
	f.Fuzz(func(t *testing.T, seq, count uint64, root int32, collective, element, op uint8) {
		call := engine.Call{Seq: seq, Count: count, Root: root, Collective: collective, Element: element, Op: op}
		if describe(call) == "" {
			t.Errorf("no words for %+v", call)
		}
	})
}
