package collbench

import (
	"testing"
)

// Every collective that moves elements can be called, and no other.
func TestCallsAreComplete(t *testing.T) {
	calls := new(buffers[float32]).calls()
	for _, c := range collectives {
		if _, ok := calls[c.name]; ok == c.unsized {
			t.Errorf("%s: there is a call: %v", c.name, ok)
		}
	}
}
