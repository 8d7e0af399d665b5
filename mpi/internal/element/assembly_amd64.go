package element

import "golang.org/x/sys/cpu"

// assembly is for AVX2 with the half-precision conversions of F16C, which came before it. AVX-512
// was tried: docs/adr/0005.
func assembly() routineSet {
	if cpu.X86.HasAVX2 && cpu.X86.HasF16C {
		return routines
	}
	return routineSet{}
}
