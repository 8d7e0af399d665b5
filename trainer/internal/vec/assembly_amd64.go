//go:build !noasm

package vec

import "golang.org/x/sys/cpu"

// assembly is what this CPU can run of the sets in assembly, the best one first.
func assembly() []*set {
	x := &cpu.X86
	var sets []*set
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return nil
	}
	if x.HasAVX512F && x.HasAVX512DQ && x.HasBMI2 {
		sets = append(sets, &avx512)
	}
	return append(sets, &avx2)
}
