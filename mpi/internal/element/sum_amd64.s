#include "textflag.h"

// SUM is dst[i] = a[i] + b[i] over n bytes, a multiple of 64 and not 0. ADD adds vectors of the elements.
#define SUM(ADD) \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	XORQ AX, AX; \
	PCALIGN $32; \
loop: \
	VMOVUPS (SI)(AX*1), Y0; \
	VMOVUPS 32(SI)(AX*1), Y1; \
	ADD     (DX)(AX*1), Y0, Y0; \
	ADD     32(DX)(AX*1), Y1, Y1; \
	VMOVUPS Y0, (DI)(AX*1); \
	VMOVUPS Y1, 32(DI)(AX*1); \
	ADDQ    $64, AX; \
	CMPQ    AX, CX; \
	JLT     loop; \
	VZEROUPPER; \
	RET

// func sumFloat32(dst, a, b *byte, n int)
TEXT ·sumFloat32(SB), NOSPLIT, $0-32
	SUM(VADDPS)

// func sumFloat64(dst, a, b *byte, n int)
TEXT ·sumFloat64(SB), NOSPLIT, $0-32
	SUM(VADDPD)

// func sumInt8(dst, a, b *byte, n int)
TEXT ·sumInt8(SB), NOSPLIT, $0-32
	SUM(VPADDB)

// func sumInt16(dst, a, b *byte, n int)
TEXT ·sumInt16(SB), NOSPLIT, $0-32
	SUM(VPADDW)

// func sumInt32(dst, a, b *byte, n int)
TEXT ·sumInt32(SB), NOSPLIT, $0-32
	SUM(VPADDD)

// func sumInt64(dst, a, b *byte, n int)
TEXT ·sumInt64(SB), NOSPLIT, $0-32
	SUM(VPADDQ)
