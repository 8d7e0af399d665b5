//go:build !noasm

#include "textflag.h"

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15
#define W 64

#include "tile_amd64.h"

// func addAVX512(c *Sums, a, b []float64)
TEXT ·addAVX512(SB), NOSPLIT, $0-56
	OPERANDS
	JEQ done
	LOADSUMS
	PCALIGN $32

loop:
	STEP
	JNE loop
	STORESUMS
	VZEROUPPER

done:
	RET

// func roundAVX512(dst *[Rows * Cols]float32, c *Sums)
TEXT ·roundAVX512(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ c+8(FP), SI
	MOVQ $96, CX

loop:
	VCVTPD2PS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $W, SI
	ADDQ $(W/2), DI
	SUBQ $(W/8), CX
	JNE loop
	VZEROUPPER
	RET
