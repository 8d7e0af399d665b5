//go:build !static && linux

#include "textflag.h"
#include "go_asm.h"

GLOBL ·integers(SB), NOPTR|RODATA, $8
DATA ·integers(SB)/8, $integers<>(SB)

// integers is void integers(Call *c) in the calling convention of AAPCS64, on the C stack: c->result = c->fn(c->args[0], ..., c->args[14]).
// The function reads as many arguments as it has. The assembler saves the link register. This was tested only under emulation (QEMU).
TEXT integers<>(SB), NOSPLIT, $0
	SUB  $80, RSP // seven arguments of 8 bytes, and R19, which is the caller's; aligned to 16
	MOVD R19, 64(RSP)
	MOVD R0, R19

	MOVD (Call_args+64)(R19), R10
	MOVD R10, 0(RSP)
	MOVD (Call_args+72)(R19), R10
	MOVD R10, 8(RSP)
	MOVD (Call_args+80)(R19), R10
	MOVD R10, 16(RSP)
	MOVD (Call_args+88)(R19), R10
	MOVD R10, 24(RSP)
	MOVD (Call_args+96)(R19), R10
	MOVD R10, 32(RSP)
	MOVD (Call_args+104)(R19), R10
	MOVD R10, 40(RSP)
	MOVD (Call_args+112)(R19), R10
	MOVD R10, 48(RSP)

	MOVD (Call_args+0)(R19), R0
	MOVD (Call_args+8)(R19), R1
	MOVD (Call_args+16)(R19), R2
	MOVD (Call_args+24)(R19), R3
	MOVD (Call_args+32)(R19), R4
	MOVD (Call_args+40)(R19), R5
	MOVD (Call_args+48)(R19), R6
	MOVD (Call_args+56)(R19), R7
	MOVD Call_fn(R19), R10
	BL   (R10)
	MOVD R0, Call_result(R19)

	MOVD 64(RSP), R19
	ADD  $80, RSP
	MOVD $0, R0
	RET
