package element

import "testing"

// TestBools takes all pairs of bytes: anything but 0 is true, and results are 0 or 1.
func TestBools(t *testing.T) {
	or := func(x, y bool) bool { return x || y }
	and := func(x, y bool) bool { return x && y }
	for op, f := range map[Op]func(x, y bool) bool{
		Sum: or, Max: or, BOr: or, Product: and, Min: and, BAnd: and, BXor: func(x, y bool) bool { return x != y },
	} {
		a, b, dst := make([]byte, 1<<16), make([]byte, 1<<16), make([]byte, 1<<16)
		for i := range a {
			a[i], b[i] = byte(i), byte(i>>8)
		}
		kernels[Bool][op](dst, a, b)
		for i, got := range dst {
			want := byte(0)
			if f(byte(i) != 0, byte(i>>8) != 0) {
				want = 1
			}
			if got != want {
				t.Fatalf("%v of bytes %d and %d is %d", op, byte(i), byte(i>>8), got)
			}
		}
	}
}
