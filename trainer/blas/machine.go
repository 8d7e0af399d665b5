package blas

import (
	"os"
	"slices"
	"strings"
)

// hasBFloat16 tells whether the machine multiplies bfloat16 in hardware. Libraries have sbgemm_ for others too, far slower than sgemm_.
func hasBFloat16() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && namesBFloat16(string(text))
}

// namesBFloat16 reads the flags of the first CPU in /proc/cpuinfo: "flags" on amd64, "Features" on arm64.
func namesBFloat16(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		key, flags, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); !ok || (key != "flags" && key != "Features") {
			continue
		}
		return slices.ContainsFunc(strings.Fields(flags), func(flag string) bool {
			return flag == "avx512_bf16" || flag == "amx_bf16" || flag == "bf16"
		})
	}
	return false
}
