package launch

import "testing"

// From the start of two agents to the end of their workers, which do nothing: nearly all of it is the meeting.
func BenchmarkMeeting(b *testing.B) {
	w := newWorld(b, []int{1, 1}, "")
	for i := range w.agents {
		w.agents[i].Command, w.agents[i].RunDir = []string{"true"}, nil
	}
	for b.Loop() {
		for i, r := range w.run() {
			if r.err != nil || r.Exit != 0 {
				b.Fatalf("agent %d ended with %+v", i, r)
			}
		}
	}
}
