//go:build !noasm

#include "textflag.h"

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15
#define W 32

#include "tile_amd64.h"

// func addAVX2(c *Sums, a, b []float64)
//
// It takes the left 12 columns, then the right ones, 96 bytes further in c and b.
TEXT ·addAVX2(SB), NOSPLIT, $0-56
	OPERANDS
	JEQ done
	LOADSUMS
	PCALIGN $32

left:
	STEP
	JNE left
	STORESUMS
	OPERANDS
	ADDQ $96, DI
	ADDQ $96, DX
	LOADSUMS
	PCALIGN $32

right:
	STEP
	JNE right
	STORESUMS
	VZEROUPPER

done:
	RET

// func roundAVX2(dst *[Rows * Cols]float32, c *Sums)
TEXT ·roundAVX2(SB), NOSPLIT, $0-16
	MOVQ dst+0(FP), DI
	MOVQ c+8(FP), SI
	MOVQ $96, CX

loop:
	VCVTPD2PSY (SI), X0
	VMOVUPS X0, (DI)
	ADDQ $W, SI
	ADDQ $(W/2), DI
	SUBQ $(W/8), CX
	JNE loop
	VZEROUPPER
	RET
