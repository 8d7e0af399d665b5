//go:build !static && linux

#include "textflag.h"
#include "go_asm.h"

GLOBL ·gemm(SB), NOPTR|RODATA, $8
DATA ·gemm(SB)/8, $gemm<>(SB)

// gemm is void gemm(arguments *args) in the System V calling convention, on the C stack. It calls
// fn(&tA, &tB, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1): the last two are the lengths
// of tA and tB as strings, which compilers of Fortran add.
TEXT gemm<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BP
	MOVQ  SP, BP
	SUBQ  $80, SP // nine arguments of 8 bytes, aligned to 16
	MOVQ  DI, R11

	MOVQ arguments_a(R11), AX
	MOVQ AX, 0(SP)
	LEAQ arguments_lda(R11), AX
	MOVQ AX, 8(SP)
	MOVQ arguments_b(R11), AX
	MOVQ AX, 16(SP)
	LEAQ arguments_ldb(R11), AX
	MOVQ AX, 24(SP)
	LEAQ arguments_beta(R11), AX
	MOVQ AX, 32(SP)
	MOVQ arguments_c(R11), AX
	MOVQ AX, 40(SP)
	LEAQ arguments_ldc(R11), AX
	MOVQ AX, 48(SP)
	MOVQ $1, 56(SP)
	MOVQ $1, 64(SP)

	LEAQ arguments_tA(R11), DI
	LEAQ arguments_tB(R11), SI
	LEAQ arguments_m(R11), DX
	LEAQ arguments_n(R11), CX
	LEAQ arguments_k(R11), R8
	LEAQ arguments_alpha(R11), R9
	MOVQ arguments_fn(R11), R10
	CALL R10

	XORL AX, AX
	MOVQ BP, SP
	POPQ BP
	RET
