//go:build !amd64 || race || noasm

package half

const assembly = false

func toFloat16AVX2([]uint16, []float32) { panic("half: no assembly") }

func fromFloat16AVX2([]float32, []uint16) { panic("half: no assembly") }

func roundFloat16AVX2([]float32, []float32) { panic("half: no assembly") }

func toBFloat16AVX2([]uint16, []float32) { panic("half: no assembly") }

func fromBFloat16AVX2([]float32, []uint16) { panic("half: no assembly") }

func roundBFloat16AVX2([]float32, []float32) { panic("half: no assembly") }
