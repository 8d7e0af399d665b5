//go:build !noasm

#include "textflag.h"

// FOLD multiplies the 16 bytes in each quarter of ACC by the factors in Z15 and adds NEXT to the products.
#define FOLD(ACC, T, NEXT) \
	VPCLMULQDQ $0x00, Z15, ACC, T; \
	VPCLMULQDQ $0x11, Z15, ACC, ACC; \
	VPTERNLOGQ $0x96, NEXT, T, ACC // the sum of three

// INTO does the same, but adds to NEXT and leaves ACC undefined.
#define INTO(ACC, T, NEXT) \
	VPCLMULQDQ $0x00, Z15, ACC, T; \
	VPCLMULQDQ $0x11, Z15, ACC, ACC; \
	VPTERNLOGQ $0x96, ACC, T, NEXT

// func foldAVX512(crc uint32, p []byte) uint32
TEXT ·foldAVX512(SB), NOSPLIT, $0-36
	MOVL crc+0(FP), AX
	MOVQ p_base+8(FP), SI
	MOVQ p_len+16(FP), CX
	LEAQ ·folds(SB), DX

	VMOVD     AX, X8
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVDQU64 256(SI), Z4
	VMOVDQU64 320(SI), Z5
	VMOVDQU64 384(SI), Z6
	VMOVDQU64 448(SI), Z7
	VPXORQ    Z8, Z0, Z0
	ADDQ      $512, SI
	SUBQ      $1024, CX
	JLT       join
	VBROADCASTI32X4 (DX), Z15
	PCALIGN $64

eight:
	FOLD(Z0, Z8, (SI))
	FOLD(Z1, Z9, 64(SI))
	FOLD(Z2, Z10, 128(SI))
	FOLD(Z3, Z11, 192(SI))
	FOLD(Z4, Z8, 256(SI))
	FOLD(Z5, Z9, 320(SI))
	FOLD(Z6, Z10, 384(SI))
	FOLD(Z7, Z11, 448(SI))
	ADDQ $512, SI
	SUBQ $512, CX
	JGE  eight

join:
	ADDQ $448, CX // the number of bytes left, minus 64
	VBROADCASTI32X4 16(DX), Z15
	INTO(Z0, Z8, Z4)
	INTO(Z1, Z9, Z5)
	INTO(Z2, Z10, Z6)
	INTO(Z3, Z11, Z7)
	VBROADCASTI32X4 32(DX), Z15
	INTO(Z4, Z8, Z6)
	INTO(Z5, Z9, Z7)
	VBROADCASTI32X4 48(DX), Z15
	INTO(Z6, Z8, Z7)
	TESTQ CX, CX
	JLT   quarters

one:
	FOLD(Z7, Z8, (SI))
	ADDQ $64, SI
	SUBQ $64, CX
	JGE  one

quarters:
	VMOVDQU64     64(DX), Z15
	VEXTRACTI32X4 $3, Z7, X1
	VPCLMULQDQ    $0x00, Z15, Z7, Z8
	VPCLMULQDQ    $0x11, Z15, Z7, Z7
	VPXORQ        Z8, Z7, Z7
	VEXTRACTI64X4 $1, Z7, Y8
	VPXOR         Y8, Y7, Y7
	VEXTRACTI128  $1, Y7, X8
	VPXOR         X8, X7, X7
	VPXOR         X1, X7, X7

	VMOVQ   X7, BX
	VPEXTRQ $1, X7, CX
	XORL    AX, AX
	CRC32Q  BX, AX
	CRC32Q  CX, AX
	VZEROUPPER
	MOVL    AX, ret+32(FP)
	RET
