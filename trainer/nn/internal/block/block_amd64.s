//go:build !race && !noasm

#include "textflag.h"

// BLOCK is a whole kernel. It handles N values of a row at a time, as a vector V, and then the last N of the row, L, which may overlap with V.
// L is computed first, so that values which V has written are not added again. MOVE loads or stores N values. TAKE(MOVE, P, Q, R)
// computes R from the values at P in dst and at Q in src.
#define BLOCK(N, MOVE, V, L, TAKE) \
	MOVQ dst+0(FP), DI; \
	MOVQ src+8(FP), SI; \
	MOVQ rows+16(FP), CX; \
	MOVQ width+24(FP), DX; \
	MOVQ dstPitch+32(FP), R8; \
	MOVQ srcPitch+40(FP), R9; \
	SUBQ $N, DX; \
row: \
	TAKE(MOVE, (DI)(DX*4), (SI)(DX*4), L); \
	XORQ AX, AX; \
	JMP  test; \
vector: \
	TAKE(MOVE, (DI)(AX*4), (SI)(AX*4), V); \
	MOVE V, (DI)(AX*4); \
	ADDQ $N, AX; \
test: \
	CMPQ AX, DX; \
	JLT  vector; \
	MOVE L, (DI)(DX*4); \
	LEAQ (DI)(R8*4), DI; \
	LEAQ (SI)(R9*4), SI; \
	DECQ CX; \
	JNZ  row; \
	VZEROUPPER; \
	RET

#define COPY(MOVE, P, Q, R) \
	MOVE Q, R

#define ADD(MOVE, P, Q, R) \
	MOVE   P, R; \
	VADDPS Q, R, R

// ADD2 is ADD of 2 values: VADDPS itself would read 4.
#define ADD2(MOVE, P, Q, R) \
	MOVE   P, R; \
	MOVE   Q, X2; \
	VADDPS X2, R, R

// func copy2(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·copy2(SB), NOSPLIT, $0-48
	BLOCK(2, VMOVSD, X0, X1, COPY)

// func copy4(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·copy4(SB), NOSPLIT, $0-48
	BLOCK(4, VMOVUPS, X0, X1, COPY)

// func copy8(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·copy8(SB), NOSPLIT, $0-48
	BLOCK(8, VMOVUPS, Y0, Y1, COPY)

// func add2(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·add2(SB), NOSPLIT, $0-48
	BLOCK(2, VMOVSD, X0, X1, ADD2)

// func add4(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·add4(SB), NOSPLIT, $0-48
	BLOCK(4, VMOVUPS, X0, X1, ADD)

// func add8(dst, src *float32, rows, width, dstPitch, srcPitch int)
TEXT ·add8(SB), NOSPLIT, $0-48
	BLOCK(8, VMOVUPS, Y0, Y1, ADD)
