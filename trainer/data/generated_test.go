package data

import (
	"math"
	"slices"
	"testing"
)

func TestGeneratedIsAFunctionOfItsConfig(t *testing.T) {
	cfg := GeneratedConfig{Rows: 50, Inputs: 4, Outputs: 2, Noise: 0.5, Seed: 9}
	a, b := all(mustGenerate(t, cfg)), all(mustGenerate(t, cfg))
	if !slices.Equal(a.X, b.X) || !slices.Equal(a.Y, b.Y) {
		t.Error("the same config gave two data sets")
	}
	cfg.Seed++
	if c := all(mustGenerate(t, cfg)); slices.Equal(a.X, c.X) {
		t.Error("another seed gave the same inputs")
	}
}

// Without noise, outputs are linear in the inputs: with one input they are proportional to it. Noise
// adds residuals of the configured deviation.
func TestGeneratedIsLinearPlusNoise(t *testing.T) {
	clean := all(mustGenerate(t, GeneratedConfig{Rows: 2000, Inputs: 1, Outputs: 1}))
	slope := float64(clean.Y[0] / clean.X[0])
	var sumX, sumXX float64
	for i, x := range clean.X {
		if d := math.Abs(float64(clean.Y[i]) - slope*float64(x)); d > 1e-5 {
			t.Fatalf("row %d: %v is not %v times %v", i, clean.Y[i], slope, x)
		}
		sumX += float64(x)
		sumXX += float64(x) * float64(x)
	}
	// Mean and variance of 2,000 standard normals, within five standard errors.
	if mean, variance := sumX/2000, sumXX/2000; math.Abs(mean) > 0.11 || math.Abs(variance-1) > 0.16 {
		t.Errorf("inputs have mean %v and variance %v, want 0 and 1", mean, variance)
	}
	noisy := all(mustGenerate(t, GeneratedConfig{Rows: 2000, Inputs: 1, Outputs: 1, Noise: 2}))
	var residual float64
	for i, y := range noisy.Y {
		d := float64(y) - slope*float64(noisy.X[i])
		residual += d * d / 2000
	}
	if math.Abs(math.Sqrt(residual)-2) > 0.2 {
		t.Errorf("the noise has deviation %v, want 2", math.Sqrt(residual))
	}
}

func TestGenerateRefusesBadConfigs(t *testing.T) {
	for name, cfg := range map[string]GeneratedConfig{
		"no rows":        {Inputs: 1, Outputs: 1},
		"no inputs":      {Rows: 1, Outputs: 1},
		"no outputs":     {Rows: 1, Inputs: 1},
		"negative noise": {Rows: 1, Inputs: 1, Outputs: 1, Noise: -1},
		"NaN noise":      {Rows: 1, Inputs: 1, Outputs: 1, Noise: math.NaN()},
		"too many":       {Rows: 1 << 28, Inputs: 1, Outputs: 1},
		"overflow":       {Rows: math.MaxInt, Inputs: math.MaxInt, Outputs: math.MaxInt},
		"a large map":    {Rows: 1, Inputs: 1 << 20, Outputs: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Generate(cfg); err == nil {
				t.Error("no error")
			}
		})
	}
}
