package nn

import (
	_ "embed"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"gonum.org/v1/gonum/mathext/prng"

	"ddpbatch/internal/testkit/torch"
)

//go:embed testdata/normal.py
var normalScript string

func TestNormalIsPyTorchs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "normal")
	args, src := []string{file}, prng.NewMT19937()
	src.Seed(5)
	var got []float32
	for _, n := range []int{16, 17, 31, 32, 1000} {
		args = append(args, strconv.Itoa(n))
		v := make([]float32, n)
		normal(v, 0.02, src)
		got = append(got, v...)
	}
	torch.Run(t, normalScript, args...)
	for i, want := range torch.ReadFloats(t, file) {
		// PyTorch rounds the angle, up to 2 pi, to 24 bits. That is an error of 2.4e-7 times the radius, which is at most
		// 0.02 sqrt(-2 log 2^-24) = 0.12. Its vectorized logarithm, sine and cosine add errors of a few units in the last place.
		if math.Abs(float64(got[i]-want)) > 5e-8 {
			t.Errorf("number %d is %g, in PyTorch %g", i, got[i], want)
		}
	}
}

// The mean and variance over many draws are right, also for lengths for which PyTorch uses another method.
func TestNormalHasTheRightMoments(t *testing.T) {
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
		// The bounds are six standard errors. One is 2/sqrt(count) for the mean and 4 sqrt(2/count) for the variance.
		if mean := sum / count; math.Abs(mean) > 12/math.Sqrt(count) {
			t.Errorf("mean of %d at a time is %g", n, mean)
		}
		if variance := squares / count; math.Abs(variance-4) > 24*math.Sqrt(2/count) {
			t.Errorf("variance of %d at a time is %g, want 4", n, variance)
		}
	}
}

// Philox gives the known answers for philox4x32-10 that come with the authors' implementation (Random123, kat_vectors).
func TestPhiloxGivesTheKnownAnswers(t *testing.T) {
	const ones = 1<<64 - 1
	for _, c := range []struct {
		key     uint64
		counter [2]uint64
		want    [4]uint32
	}{
		{0, [2]uint64{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{ones, [2]uint64{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0_a4093822, [2]uint64{0x85a308d3_243f6a88, 0x03707344_13198a2e},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.key, c.counter); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.key, c.counter, got, c.want)
		}
	}
}
