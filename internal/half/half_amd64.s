//go:build !race && !noasm

#include "textflag.h"

// Conversions to and from 16 bits, 8 elements at a time. The number of elements must be a multiple of 8, and at least 8.
// AVX-512 would not be faster: they are as fast as memory.

// HALVES is BODY over all elements, from SI to DI.
#define HALVES(BODY) \
	XORQ AX, AX; \
	PCALIGN $32; \
loop: \
	BODY; \
	ADDQ $8, AX; \
	CMPQ AX, CX; \
	JLT  loop; \
	VZEROUPPER; \
	RET

#define OPERANDS \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ x_base+24(FP), SI

// BROADCAST fills Y, whose lower part is X, with a constant.
#define BROADCAST(C, X, Y) \
	MOVL C, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

#define BFLOATCONSTANTS \
	BROADCAST($1, X4, Y4); \
	BROADCAST($0x7fff, X5, Y5); \
	BROADCAST($0x400000, X6, Y6); \
	BROADCAST($0xffff0000, X7, Y7)

// BFLOAT makes the upper 16 bits of each lane of Y0 the nearest bfloat16: it adds 0x7fff, and 1 more if the
// last bit that is kept is 1, so that dropping the lower bits rounds to even. In a NaN it only sets the bit that
// makes it quiet. (VCVTNEPS2BF16 of AVX512_BF16 cannot be used: it treats subnormals as 0.)
#define BFLOAT \
	VMOVUPS (SI)(AX*4), Y0; \
	VCMPPS  $3, Y0, Y0, Y1; \
	VPSRLD  $16, Y0, Y2; \
	VPAND   Y4, Y2, Y2; \
	VPADDD  Y5, Y2, Y2; \
	VPANDN  Y2, Y1, Y2; \
	VPADDD  Y2, Y0, Y0; \
	VPAND   Y6, Y1, Y1; \
	VPOR    Y1, Y0, Y0

#define ROUNDBFLOAT \
	BFLOAT; \
	VPAND   Y7, Y0, Y0; \
	VMOVUPS Y0, (DI)(AX*4)

// The pack works within 128 bits; the permutation joins both results.
#define TOBFLOAT \
	BFLOAT; \
	VPSRLD    $16, Y0, Y0; \
	VPACKUSDW Y0, Y0, Y0; \
	VPERMQ    $8, Y0, Y0; \
	VMOVUPS   X0, (DI)(AX*2)

#define FROMBFLOAT \
	VPMOVZXWD (SI)(AX*2), Y0; \
	VPSLLD    $16, Y0, Y0; \
	VMOVUPS   Y0, (DI)(AX*4)

// $0 means rounding to nearest even.
#define ROUNDHALF \
	VMOVUPS   (SI)(AX*4), Y0; \
	VCVTPS2PH $0, Y0, X0; \
	VCVTPH2PS X0, Y0; \
	VMOVUPS   Y0, (DI)(AX*4)

#define TOHALF \
	VMOVUPS   (SI)(AX*4), Y0; \
	VCVTPS2PH $0, Y0, (DI)(AX*2)

#define FROMHALF \
	VCVTPH2PS (SI)(AX*2), Y0; \
	VMOVUPS   Y0, (DI)(AX*4)

// func roundBFloat16AVX2(dst, x []float32)
TEXT ·roundBFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	BFLOATCONSTANTS
	HALVES(ROUNDBFLOAT)

// func toBFloat16AVX2(dst []uint16, x []float32)
TEXT ·toBFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	BFLOATCONSTANTS
	HALVES(TOBFLOAT)

// func fromBFloat16AVX2(dst []float32, x []uint16)
TEXT ·fromBFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	HALVES(FROMBFLOAT)

// func roundFloat16AVX2(dst, x []float32)
TEXT ·roundFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	HALVES(ROUNDHALF)

// func toFloat16AVX2(dst []uint16, x []float32)
TEXT ·toFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	HALVES(TOHALF)

// func fromFloat16AVX2(dst []float32, x []uint16)
TEXT ·fromFloat16AVX2(SB), NOSPLIT, $0-48
	OPERANDS
	HALVES(FROMHALF)
