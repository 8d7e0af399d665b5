//go:build !race && !noasm

#include "textflag.h"

// BROADCAST fills Y, whose lower part is X, with an integer.
#define BROADCAST(N, X, Y) \
	MOVL N, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

// TAKE makes V the best (Y4), and N its number (Y5), in lanes where V is larger or NaN.
#define TAKE(V, N) \
	VCMPPS    $0x1e, Y4, V, Y6; \
	VCMPPS    $3, V, V, Y7; \
	VORPS     Y6, Y7, Y6; \
	VBLENDVPS Y6, V, Y4, Y4; \
	VBLENDVPS Y6, N, Y5, Y5

// PAIRS reads 16 values and leaves those of even place in EVEN, those of odd place in ODD. Both are in the order 0 1 4 5 2 3 6 7.
#define PAIRS(P, EVEN, ODD) \
	VMOVUPS (P), Y6; \
	VMOVUPS 32(P), Y7; \
	VSHUFPS $0x88, Y7, Y6, EVEN; \
	VSHUFPS $0xdd, Y7, Y6, ODD

// func maxRows(y *float32, from *uint8, x *float32, rows, width int, floor float32, element uint32)
//
// Eight results at a time. DI, SI, R8 are y, from and x's upper row; R9 is the lower one.
TEXT ·maxRows(SB), NOSPLIT, $0-48
	MOVQ y+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ x+16(FP), R8
	MOVQ rows+24(FP), CX
	MOVQ width+32(FP), DX
	VBROADCASTSS floor+40(FP), Y15
	MOVL element+44(FP), AX
	VMOVD AX, X14
	VPBROADCASTD X14, Y14
	VPXOR Y10, Y10, Y10
	BROADCAST($1, X11, Y11)
	BROADCAST($2, X12, Y12)
	BROADCAST($3, X13, Y13)
row:
	LEAQ (R8)(DX*8), R9
	XORQ BX, BX // results of the row so far
	PCALIGN $32
eight:
	PAIRS(R8, Y0, Y1)
	PAIRS(R9, Y2, Y3)
	VMOVAPS Y15, Y4
	VMOVDQA Y14, Y5
	TAKE(Y0, Y10)
	TAKE(Y1, Y11)
	TAKE(Y2, Y12)
	TAKE(Y3, Y13)
	VPERMPD $0xd8, Y4, Y4
	VPERMQ  $0xd8, Y5, Y5
	VMOVUPS Y4, (DI)(BX*4)
	VEXTRACTI128 $1, Y5, X6
	VPACKUSDW X6, X5, X5
	VPACKUSWB X5, X5, X5
	VMOVQ X5, (SI)(BX*1)
	ADDQ $64, R8
	ADDQ $64, R9
	ADDQ $8, BX
	CMPQ BX, DX
	JLT  eight
	// On to the next rows: R8 and R9 are 8 BX bytes behind their starts.
	LEAQ (DI)(DX*4), DI
	ADDQ DX, SI
	MOVQ DX, AX
	SUBQ BX, AX
	LEAQ (R9)(AX*8), R8
	DECQ CX
	JNZ  row
	VZEROUPPER
	RET

// HALF writes 16 values of dx at R8: dy (Y0) in the even ones where from (Y1) is EVEN, in the odd ones where it is ODD.
#define HALF(EVEN, ODD) \
	VPCMPEQD   EVEN, Y1, Y2; \
	VPCMPEQD   ODD, Y1, Y3; \
	VANDPS     Y0, Y2, Y2; \
	VANDPS     Y0, Y3, Y3; \
	VUNPCKLPS  Y3, Y2, Y4; \
	VUNPCKHPS  Y3, Y2, Y5; \
	VPERM2F128 $0x20, Y5, Y4, Y6; \
	VPERM2F128 $0x31, Y5, Y4, Y7; \
	VMOVUPS    Y6, (R8); \
	VMOVUPS    Y7, 32(R8)

// func spreadRows(dx *float32, from *uint8, dy *float32, rows, width int)
//
// The upper row is finished before the lower one begins, since it may be written beyond its end. DI, SI and R9 are dx, from and dy.
TEXT ·spreadRows(SB), NOSPLIT, $0-40
	MOVQ dx+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ dy+16(FP), R9
	MOVQ rows+24(FP), CX
	MOVQ width+32(FP), DX
	VPXOR Y10, Y10, Y10
	BROADCAST($1, X11, Y11)
	BROADCAST($2, X12, Y12)
	BROADCAST($3, X13, Y13)
row:
	MOVQ DI, R8
	XORQ BX, BX
upper:
	VMOVUPS   (R9)(BX*4), Y0
	VPMOVZXBD (SI)(BX*1), Y1
	HALF(Y10, Y11)
	ADDQ $64, R8
	ADDQ $8, BX
	CMPQ BX, DX
	JLT  upper
	LEAQ (DI)(DX*8), DI
	MOVQ DI, R8
	XORQ BX, BX
lower:
	VMOVUPS   (R9)(BX*4), Y0
	VPMOVZXBD (SI)(BX*1), Y1
	HALF(Y12, Y13)
	ADDQ $64, R8
	ADDQ $8, BX
	CMPQ BX, DX
	JLT  lower
	LEAQ (DI)(DX*8), DI
	LEAQ (R9)(DX*4), R9
	ADDQ DX, SI
	DECQ CX
	JNZ  row
	VZEROUPPER
	RET
