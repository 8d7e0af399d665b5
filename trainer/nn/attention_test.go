package nn

import (
	"slices"
	"testing"
)

// A change of a later position changes no bit of the outputs before it.
func TestAttentionIsCausal(t *testing.T) {
	const context = attentionBlock + 9
	r := source()
	a := NewCausalAttention(4, 2, context)
	x := randomMatrix(r, 2*context, 12)
	before := slices.Clone(a.Forward(new(Pass), x).Data)
	for _, place := range []int{0, 1, attentionBlock - 1, attentionBlock, context - 1} {
		changed := NewMatrix(x.Rows, x.Cols)
		copy(changed.Data, x.Data)
		for i := range changed.Row(place) {
			changed.Row(place)[i]++
		}
		after := a.Forward(new(Pass), changed).Data
		if !slices.Equal(after[:4*place], before[:4*place]) {
			t.Errorf("a change at %d is seen before it", place)
		}
		if slices.Equal(after[4*place:4*(place+1)], before[4*place:4*(place+1)]) {
			t.Errorf("a change at %d is not seen there", place)
		}
		if !slices.Equal(after[4*context:], before[4*context:]) {
			t.Errorf("a change at %d is seen in the next sequence", place)
		}
	}
}

// NewCausalAttention allocates no memory for the context before it is used, however large a job file makes it.
func TestAttentionAllocatesWhenUsed(t *testing.T) {
	NewCausalAttention(1, 1, 1<<30) // the square of this context is more than a slice can hold
}
