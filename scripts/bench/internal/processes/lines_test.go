package processes

import (
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	var got []string
	w := &Lines{Hear: func(line string) { got = append(got, line) }}
	for _, piece := range []string{"[n1 0] m", "et\n", " met\r\n[1, 2]\n", "\ncut"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if want := []string{"[n1 0] met", "met", "[1, 2]", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
