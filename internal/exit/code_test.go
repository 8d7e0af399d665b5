package exit

import "testing"

func TestGivenUp(t *testing.T) {
	for exit, want := range map[int]int{0: 1, 7: 7, 75: 93, 93: 93} {
		if got := GivenUp(exit); got != want {
			t.Errorf("a run that is given up after exit code %d ends with %d, want %d", exit, got, want)
		}
	}
}
