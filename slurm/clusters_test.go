package slurm

import "testing"

func TestAreClusters(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "a,b-2.x_y": true, "": false, "all": false, "ALL": false, "a,": false, "a b": false, "!": false, "a;b": false,
	} {
		if got := AreClusters(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
