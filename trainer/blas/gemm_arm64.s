//go:build !static && linux

#include "textflag.h"
#include "go_asm.h"

GLOBL ·gemm(SB), NOPTR|RODATA, $8
DATA ·gemm(SB)/8, $gemm<>(SB)

// gemm is void gemm(arguments *args) in the calling convention of AAPCS64, on the C stack. It calls
// fn(&tA, &tB, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1): the last two are the lengths
// of tA and tB as strings, which compilers of Fortran add. The assembler saves the link register.
// It has been tested under emulation (QEMU) only.
TEXT gemm<>(SB), NOSPLIT, $0
	SUB  $64, RSP // seven arguments of 8 bytes, aligned to 16
	MOVD R0, R9

	MOVD arguments_b(R9), R10
	MOVD R10, 0(RSP)
	ADD  $arguments_ldb, R9, R10
	MOVD R10, 8(RSP)
	ADD  $arguments_beta, R9, R10
	MOVD R10, 16(RSP)
	MOVD arguments_c(R9), R10
	MOVD R10, 24(RSP)
	ADD  $arguments_ldc, R9, R10
	MOVD R10, 32(RSP)
	MOVD $1, R10
	MOVD R10, 40(RSP)
	MOVD R10, 48(RSP)

	ADD  $arguments_tA, R9, R0
	ADD  $arguments_tB, R9, R1
	ADD  $arguments_m, R9, R2
	ADD  $arguments_n, R9, R3
	ADD  $arguments_k, R9, R4
	ADD  $arguments_alpha, R9, R5
	MOVD arguments_a(R9), R6
	ADD  $arguments_lda, R9, R7
	MOVD arguments_fn(R9), R10
	BL   (R10)

	ADD  $64, RSP
	MOVD $0, R0
	RET
