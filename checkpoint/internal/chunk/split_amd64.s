//go:build !noasm

#include "textflag.h"

// Each loop handles 32 elements at a time. X14 and X15 hold the shift counts of the rotation: 1 and the width less 1, or 0 and the
// width, which shifts everything out.

// COUNTS loads X14 and X15. BITS is the width of an element.
#define COUNTS(BITS) \
	VMOVQ AX, X14; \
	NEGQ  AX; \
	ADDQ  BITS, AX; \
	VMOVQ AX, X15

#define ROTATE(SHIFT, BACK, Y, T) \
	SHIFT X14, Y, T; \
	BACK  X15, Y, Y; \
	VPOR  T, Y, Y

// func split2AVX2(p0, p1, src []byte, rotate uint)
TEXT ·split2AVX2(SB), NOSPLIT, $0-80
	MOVQ p0_base+0(FP), R8
	MOVQ p1_base+24(FP), R9
	MOVQ src_base+48(FP), SI
	MOVQ src_len+56(FP), CX
	MOVQ rotate+72(FP), AX
	COUNTS($16)
	SHRQ $1, CX
	VPCMPEQW Y13, Y13, Y13
	VPSRLW   $8, Y13, Y13 // 0x00ff in every element
	XORQ BX, BX
	PCALIGN $32

loop:
	VMOVDQU (SI)(BX*2), Y0
	VMOVDQU 32(SI)(BX*2), Y1
	ROTATE(VPSLLW, VPSRLW, Y0, Y2)
	ROTATE(VPSLLW, VPSRLW, Y1, Y3)
	VPAND     Y13, Y0, Y2
	VPAND     Y13, Y1, Y3
	VPACKUSWB Y3, Y2, Y2 // within 128 bits: VPERMQ puts the quarters in order
	VPERMQ    $0xd8, Y2, Y2
	VMOVDQU   Y2, (R8)(BX*1)
	VPSRLW    $8, Y0, Y0
	VPSRLW    $8, Y1, Y1
	VPACKUSWB Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (R9)(BX*1)
	ADDQ $32, BX
	CMPQ BX, CX
	JLT  loop
	VZEROUPPER
	RET

// func join2AVX2(dst, p0, p1 []byte, rotate uint)
TEXT ·join2AVX2(SB), NOSPLIT, $0-80
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ p0_base+24(FP), R8
	MOVQ p1_base+48(FP), R9
	MOVQ rotate+72(FP), AX
	COUNTS($16)
	SHRQ $1, CX
	XORQ BX, BX
	PCALIGN $32

loop:
	VPERMQ     $0xd8, (R8)(BX*1), Y0
	VPERMQ     $0xd8, (R9)(BX*1), Y1
	VPUNPCKLBW Y1, Y0, Y2
	VPUNPCKHBW Y1, Y0, Y3
	ROTATE(VPSRLW, VPSLLW, Y2, Y0)
	ROTATE(VPSRLW, VPSLLW, Y3, Y1)
	VMOVDQU Y2, (DI)(BX*2)
	VMOVDQU Y3, 32(DI)(BX*2)
	ADDQ $32, BX
	CMPQ BX, CX
	JLT  loop
	VZEROUPPER
	RET

// gather<> brings the bytes of equal rank of 4 elements together, and is its own inverse.
DATA gather<>+0(SB)/8, $0x0d0905010c080400
DATA gather<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL gather<>(SB), RODATA|NOPTR, $16

// lanes<> puts 8 parts of 4 bytes in order that come from the lower halves of 4 vectors, then from their upper halves.
DATA lanes<>+0(SB)/8, $0x0000000400000000
DATA lanes<>+8(SB)/8, $0x0000000500000001
DATA lanes<>+16(SB)/8, $0x0000000600000002
DATA lanes<>+24(SB)/8, $0x0000000700000003
GLOBL lanes<>(SB), RODATA|NOPTR, $32

// unlanes<> is the inverse of lanes<>.
DATA unlanes<>+0(SB)/8, $0x0000000200000000
DATA unlanes<>+8(SB)/8, $0x0000000600000004
DATA unlanes<>+16(SB)/8, $0x0000000300000001
DATA unlanes<>+24(SB)/8, $0x0000000700000005
GLOBL unlanes<>(SB), RODATA|NOPTR, $32

// func split4AVX2(p0, p1, p2, p3, src []byte, rotate uint)
TEXT ·split4AVX2(SB), NOSPLIT, $0-128
	MOVQ p0_base+0(FP), R8
	MOVQ p1_base+24(FP), R9
	MOVQ p2_base+48(FP), R10
	MOVQ p3_base+72(FP), R11
	MOVQ src_base+96(FP), SI
	MOVQ src_len+104(FP), CX
	MOVQ rotate+120(FP), AX
	COUNTS($32)
	SHRQ $2, CX
	VBROADCASTI128 gather<>(SB), Y13
	VMOVDQU lanes<>(SB), Y12
	XORQ BX, BX
	PCALIGN $32

loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	ROTATE(VPSLLD, VPSRLD, Y0, Y4)
	ROTATE(VPSLLD, VPSRLD, Y1, Y5)
	ROTATE(VPSLLD, VPSRLD, Y2, Y6)
	ROTATE(VPSLLD, VPSRLD, Y3, Y7)
	VPSHUFB Y13, Y0, Y0
	VPSHUFB Y13, Y1, Y1
	VPSHUFB Y13, Y2, Y2
	VPSHUFB Y13, Y3, Y3
	VPUNPCKLDQ  Y1, Y0, Y4 // planes 0 and 1 of the first 16 elements
	VPUNPCKHDQ  Y1, Y0, Y5 // 2 and 3
	VPUNPCKLDQ  Y3, Y2, Y6
	VPUNPCKHDQ  Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0
	VPUNPCKHQDQ Y6, Y4, Y1
	VPUNPCKLQDQ Y7, Y5, Y2
	VPUNPCKHQDQ Y7, Y5, Y3
	VPERMD Y0, Y12, Y0
	VPERMD Y1, Y12, Y1
	VPERMD Y2, Y12, Y2
	VPERMD Y3, Y12, Y3
	VMOVDQU Y0, (R8)(BX*1)
	VMOVDQU Y1, (R9)(BX*1)
	VMOVDQU Y2, (R10)(BX*1)
	VMOVDQU Y3, (R11)(BX*1)
	ADDQ $128, SI
	ADDQ $32, BX
	CMPQ BX, CX
	JLT  loop
	VZEROUPPER
	RET

// func join4AVX2(dst, p0, p1, p2, p3 []byte, rotate uint)
TEXT ·join4AVX2(SB), NOSPLIT, $0-128
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ p0_base+24(FP), R8
	MOVQ p1_base+48(FP), R9
	MOVQ p2_base+72(FP), R10
	MOVQ p3_base+96(FP), R11
	MOVQ rotate+120(FP), AX
	COUNTS($32)
	SHRQ $2, CX
	VBROADCASTI128 gather<>(SB), Y13
	VMOVDQU unlanes<>(SB), Y12
	XORQ BX, BX
	PCALIGN $32

loop:
	VPERMD (R8)(BX*1), Y12, Y0
	VPERMD (R9)(BX*1), Y12, Y1
	VPERMD (R10)(BX*1), Y12, Y2
	VPERMD (R11)(BX*1), Y12, Y3
	VPUNPCKLDQ  Y1, Y0, Y4
	VPUNPCKHDQ  Y1, Y0, Y5
	VPUNPCKLDQ  Y3, Y2, Y6
	VPUNPCKHDQ  Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0
	VPUNPCKHQDQ Y6, Y4, Y1
	VPUNPCKLQDQ Y7, Y5, Y2
	VPUNPCKHQDQ Y7, Y5, Y3
	VPSHUFB Y13, Y0, Y0
	VPSHUFB Y13, Y1, Y1
	VPSHUFB Y13, Y2, Y2
	VPSHUFB Y13, Y3, Y3
	ROTATE(VPSRLD, VPSLLD, Y0, Y4)
	ROTATE(VPSRLD, VPSLLD, Y1, Y5)
	ROTATE(VPSRLD, VPSLLD, Y2, Y6)
	ROTATE(VPSRLD, VPSLLD, Y3, Y7)
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	ADDQ $128, DI
	ADDQ $32, BX
	CMPQ BX, CX
	JLT  loop
	VZEROUPPER
	RET
