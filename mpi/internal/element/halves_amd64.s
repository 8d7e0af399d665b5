#include "textflag.h"

// func sumFloat16(dst, a, b *byte, n int)
//
// It adds eight halves at a time, as float32. $0 is rounding to nearest even.
TEXT ·sumFloat16(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	XORQ AX, AX
	PCALIGN $32
loop:
	VCVTPH2PS (SI)(AX*1), Y0
	VCVTPH2PS (DX)(AX*1), Y1
	VADDPS    Y1, Y0, Y0
	VCVTPS2PH $0, Y0, (DI)(AX*1)
	ADDQ      $16, AX
	CMPQ      AX, CX
	JLT       loop
	VZEROUPPER
	RET

// BROADCAST fills Y, whose lower part is X, with a constant.
#define BROADCAST(C, X, Y) \
	MOVL C, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

// ROUND makes cutting off the lower 16 bits of the float32 sums in V a rounding to nearest even: it adds 0x7fff (in Y6), and
// 1 more if the last bit that stays is 1 (Y7 masks it). It cannot spoil a NaN: the
// lower 16 bits of one are 0, be it from a bfloat16 or the processor's own. T is overwritten.
#define ROUND(V, T) \
	VPSRLD $16, V, T; \
	VPAND  Y7, T, T; \
	VPADDD Y6, V, V; \
	VPADDD T, V, V

// func sumBFloat16(dst, a, b *byte, n int)
//
// It adds sixteen at a time. The upper one of each pair becomes a float32 by a mask, the lower one by a shift, so nothing moves
// between lanes. (VCVTNEPS2BF16 of AVX512_BF16 does not help: it treats subnormals as 0.)
TEXT ·sumBFloat16(SB), NOSPLIT, $0-32
	BROADCAST($0xffff0000, X5, Y5)
	BROADCAST($0x7fff, X6, Y6)
	BROADCAST($1, X7, Y7)
	MOVQ dst+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	XORQ AX, AX
	PCALIGN $32
loop:
	VMOVUPS (SI)(AX*1), Y0
	VMOVUPS (DX)(AX*1), Y1
	VPAND   Y5, Y0, Y2
	VPAND   Y5, Y1, Y3
	VADDPS  Y3, Y2, Y2
	VPSLLD  $16, Y0, Y0
	VPSLLD  $16, Y1, Y1
	VADDPS  Y1, Y0, Y0
	ROUND(Y0, Y1)
	ROUND(Y2, Y3)
	VPSRLD  $16, Y0, Y0
	VPAND   Y5, Y2, Y2
	VPOR    Y0, Y2, Y2
	VMOVUPS Y2, (DI)(AX*1)
	ADDQ    $32, AX
	CMPQ    AX, CX
	JLT     loop
	VZEROUPPER
	RET
