package data

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// maxGenerated is the largest number of values that are generated: 1 GiB of float32.
const maxGenerated = 1 << 28

// GeneratedConfig describes a regression task.
type GeneratedConfig struct {
	Rows, Inputs, Outputs int     // each at least 1
	Noise                 float64 // standard deviation of the noise added to every output
	Seed                  uint64
}

// Validate returns a fault of cfg that begins with the name of the setting in a job file.
func (cfg GeneratedConfig) Validate() error {
	if cfg.Rows < 1 || cfg.Inputs < 1 || cfg.Outputs < 1 {
		return fmt.Errorf("rows: %d rows of %d inputs and %d outputs, want at least 1 of each", cfg.Rows, cfg.Inputs, cfg.Outputs)
	}
	if !(cfg.Noise >= 0) || math.IsInf(cfg.Noise, 0) {
		return fmt.Errorf("noise: is %v, want a number from 0 on", cfg.Noise)
	}
	// Neither quotient nor difference can overflow, and once they are checked the sum below cannot, either.
	if cfg.Inputs > maxGenerated/cfg.Outputs || cfg.Outputs > maxGenerated-cfg.Inputs { // fewer rows would not help
		return fmt.Errorf("inputs: %d inputs x %d outputs are more than %d values, "+
			"whatever data.rows is: lower data.inputs or data.outputs",
			cfg.Inputs, cfg.Outputs, maxGenerated)
	}
	if cfg.Rows > maxGenerated/(cfg.Inputs+cfg.Outputs) {
		return fmt.Errorf("rows: %d rows of %d inputs and %d outputs are more than %d values: use fewer rows",
			cfg.Rows, cfg.Inputs, cfg.Outputs, maxGenerated)
	}
	return nil
}

// Generate makes rows of standard normal inputs, and outputs y = A x + noise, where the hidden A
// is normal with variance 1/Inputs, so that outputs are near 1 for any width. The least mean squared error that a
// linear model can reach is Noise^2. The result depends only on cfg.
func Generate(cfg GeneratedConfig) (Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("generate data: %w", err)
	}
	r := rand.New(rand.NewPCG(cfg.Seed, 0))
	hidden := normal(r, cfg.Outputs*cfg.Inputs, 1/math.Sqrt(float64(cfg.Inputs)))
	values := normal(r, cfg.Rows*cfg.Inputs, 1)
	y := normal(r, cfg.Rows*cfg.Outputs, cfg.Noise)
	for i := range y {
		x := values[i/cfg.Outputs*cfg.Inputs:][:cfg.Inputs]
		a := hidden[i%cfg.Outputs*cfg.Inputs:][:cfg.Inputs]
		sum := float64(y[i])
		for j, v := range x {
			// The conversion prevents fused operations, so that all machines make the same rows.
			sum += float64(float64(v) * float64(a[j]))
		}
		y[i] = float32(sum)
	}
	return &table{
		spec: Spec{Inputs: cfg.Inputs, Outputs: cfg.Outputs},
		rows: cfg.Rows,
		x:    floats{values, cfg.Inputs},
		y:    y,
	}, nil
}

func normal(r *rand.Rand, n int, deviation float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64() * deviation)
	}
	return v
}
