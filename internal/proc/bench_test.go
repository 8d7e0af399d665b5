package proc

import "testing"

// What a sweep costs that finds nobody, as at the end of most runs.
func BenchmarkSweepOfNobody(b *testing.B) {
	for b.Loop() {
		if _, err := SweepOrphans(b.Context(), NewCookie()); err != nil {
			b.Fatal(err)
		}
	}
}

// What an agent does that looks for hangs.
func BenchmarkUsages(b *testing.B) {
	for b.Loop() {
		if _, err := Usages([]int{1}); err != nil {
			b.Fatal(err)
		}
	}
}

// What an agent does before its first worker.
func BenchmarkStartGuard(b *testing.B) {
	for b.Loop() {
		guard, err := StartGuard(nil)
		if err != nil {
			b.Fatal(err)
		}
		guard.End()
	}
}
