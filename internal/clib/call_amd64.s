//go:build !static && linux

#include "textflag.h"
#include "go_asm.h"

GLOBL ·integers(SB), NOPTR|RODATA, $8
DATA ·integers(SB)/8, $integers<>(SB)

// integers is void integers(Call *c) in the System V calling convention, on the C stack: c->result = c->fn(c->args[0], ..., c->args[14]).
// The function reads as many arguments as it has.
TEXT integers<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	SUBQ  $72, SP // nine arguments of 8 bytes; after this the stack is aligned to 16
	MOVQ  DI, BX

	MOVQ (Call_args+48)(BX), AX
	MOVQ AX, 0(SP)
	MOVQ (Call_args+56)(BX), AX
	MOVQ AX, 8(SP)
	MOVQ (Call_args+64)(BX), AX
	MOVQ AX, 16(SP)
	MOVQ (Call_args+72)(BX), AX
	MOVQ AX, 24(SP)
	MOVQ (Call_args+80)(BX), AX
	MOVQ AX, 32(SP)
	MOVQ (Call_args+88)(BX), AX
	MOVQ AX, 40(SP)
	MOVQ (Call_args+96)(BX), AX
	MOVQ AX, 48(SP)
	MOVQ (Call_args+104)(BX), AX
	MOVQ AX, 56(SP)
	MOVQ (Call_args+112)(BX), AX
	MOVQ AX, 64(SP)

	MOVQ (Call_args+0)(BX), DI
	MOVQ (Call_args+8)(BX), SI
	MOVQ (Call_args+16)(BX), DX
	MOVQ (Call_args+24)(BX), CX
	MOVQ (Call_args+32)(BX), R8
	MOVQ (Call_args+40)(BX), R9
	MOVQ Call_fn(BX), R10
	CALL R10
	MOVQ AX, Call_result(BX)

	XORL AX, AX
	ADDQ $72, SP
	POPQ BX
	POPQ BP
	RET
