//go:build !noasm

package tile

import "golang.org/x/sys/cpu"

// assembly returns the kernels in assembly that this CPU can run, the best one first.
func assembly() []kernel {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA {
		return nil
	}
	kernels := []kernel{{"avx2", addAVX2, roundAVX2}}
	if x.HasAVX512F {
		kernels = append([]kernel{{"avx512", addAVX512, roundAVX512}}, kernels...)
	}
	return kernels
}

//go:noescape
func addAVX2(c *Sums, a, b []float64)

//go:noescape
func addAVX512(c *Sums, a, b []float64)

//go:noescape
func roundAVX2(dst *[Rows * Cols]float32, c *Sums)

//go:noescape
func roundAVX512(dst *[Rows * Cols]float32, c *Sums)
