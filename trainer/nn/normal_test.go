package nn

import (
	_ "embed"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/internal/mt19937"
)

//go:embed testdata/normal.py
var normalScript string

func TestNormalIsPyTorchs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "normal")
	args, src := []string{file}, mt19937.New(5)
	var got []float32
	for _, n := range []int{16, 17, 31, 32, 1000} {
		args = append(args, strconv.Itoa(n))
		v := make([]float32, n)
		normal(v, 0.02, src)
		got = append(got, v...)
	}
	torch.Run(t, normalScript, args...)
	for i, want := range torch.ReadFloats(t, file) {
		// PyTorch rounds the angle, up to 2 pi, to 24 bits: an error of 2.4e-7 times the radius, up to 0.02 sqrt(-2 log 2^-24) = 0.12. Its
		// logarithm, sine and cosine of 8 numbers at a time add a few units in the last place.
		if math.Abs(float64(got[i]-want)) > 5e-8 {
			t.Errorf("number %d is %g, in PyTorch %g", i, got[i], want)
		}
	}
}

// Moments over many draws, also of lengths that PyTorch treats otherwise.
func TestNormalMoments(t *testing.T) {
	for _, n := range []int{1, 5, 15, 16, 100} {
		src, v := source(), make([]float32, n)
		var sum, squares float64
		const draws = 4000
		for range draws {
			normal(v, 2, src)
			for _, x := range v {
				sum += float64(x)
				squares += float64(x) * float64(x)
			}
		}
		count := float64(draws * n)
		// Six standard errors: those of the mean are 2/sqrt(count), of the variance 4 sqrt(2/count).
		if mean := sum / count; math.Abs(mean) > 12/math.Sqrt(count) {
			t.Errorf("mean of %d at a time is %g", n, mean)
		}
		if variance := squares / count; math.Abs(variance-4) > 24*math.Sqrt(2/count) {
			t.Errorf("variance of %d at a time is %g, want 4", n, variance)
		}
	}
}
