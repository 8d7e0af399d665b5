#include "textflag.h"

// DIVIDE is dst[i] /= by over n bytes, a multiple of 32 and not 0. DIV divides vectors; Y1 holds by in every lane.
#define DIVIDE(DIV) \
	MOVQ dst+0(FP), DI; \
	MOVQ n+8(FP), CX; \
	ADDQ DI, CX; \
	PCALIGN $32; \
loop: \
	VMOVUPS (DI), Y0; \
	DIV     Y1, Y0, Y0; \
	VMOVUPS Y0, (DI); \
	ADDQ    $32, DI; \
	CMPQ    DI, CX; \
	JNE     loop; \
	VZEROUPPER; \
	RET

// func divideFloat32(dst *byte, n int, by float32)
TEXT ·divideFloat32(SB), NOSPLIT, $0-20
	VBROADCASTSS by+16(FP), Y1
	DIVIDE(VDIVPS)

// func divideFloat64(dst *byte, n int, by float64)
TEXT ·divideFloat64(SB), NOSPLIT, $0-24
	VBROADCASTSD by+16(FP), Y1
	DIVIDE(VDIVPD)
