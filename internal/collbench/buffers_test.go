package collbench

import (
	"testing"
)

// Every collective that moves elements can be called, and no other.
func TestCallsAreComplete(t *testing.T) {
	for _, e := range table[float32]() {
		if (e.call != nil) == e.unsized() {
			t.Errorf("%s: there is a call: %v", e.name, e.call != nil)
		}
	}
}
