#include "textflag.h"

// PAIR is dst[i] = dst2[i] = a[i] + b[i] over n bytes, a multiple of 64 and not 0. ADD adds vectors of the elements.
#define PAIR(ADD) \
	MOVQ dst+0(FP), DI; \
	MOVQ dst2+8(FP), R8; \
	MOVQ a+16(FP), SI; \
	MOVQ b+24(FP), DX; \
	MOVQ n+32(FP), CX; \
	XORQ AX, AX; \
	PCALIGN $32; \
loop: \
	VMOVUPS (SI)(AX*1), Y0; \
	VMOVUPS 32(SI)(AX*1), Y1; \
	ADD     (DX)(AX*1), Y0, Y0; \
	ADD     32(DX)(AX*1), Y1, Y1; \
	VMOVUPS Y0, (DI)(AX*1); \
	VMOVUPS Y1, 32(DI)(AX*1); \
	VMOVUPS Y0, (R8)(AX*1); \
	VMOVUPS Y1, 32(R8)(AX*1); \
	ADDQ    $64, AX; \
	CMPQ    AX, CX; \
	JLT     loop; \
	VZEROUPPER; \
	RET

// func pairFloat32(dst, dst2, a, b *byte, n int)
TEXT ·pairFloat32(SB), NOSPLIT, $0-40
	PAIR(VADDPS)

// func pairFloat64(dst, dst2, a, b *byte, n int)
TEXT ·pairFloat64(SB), NOSPLIT, $0-40
	PAIR(VADDPD)
