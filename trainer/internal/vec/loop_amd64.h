// The loop over vectors, for all kernels and both widths.
//
// Kernels have the number of elements in CX and the index of this vector's first one in AX; operands are at DI (what
// is written), SI, DX, R8, R9, R10. BX is for anything.

#define LOADWHOLE(P, V) VMOVUPS (P)(AX*4), V
#define FILLWHOLE(P, F, V) VMOVUPS (P)(AX*4), V
#define STOREWHOLE(V, P) VMOVUPS V, (P)(AX*4)
#define KEEPWHOLE(V)

// EACH runs BODY(load, fill, store, keep) for every whole vector, and once more for what is left behind them, if
// anything is, with the masked forms of these four.
#define EACH(BODY) \
	XORQ AX, AX; \
	SUBQ $WIDTH, CX; \
	JLT  rest; \
	PCALIGN $32; \
loop: \
	BODY(LOADWHOLE, FILLWHOLE, STOREWHOLE, KEEPWHOLE); \
	ADDQ $WIDTH, AX; \
	CMPQ AX, CX; \
	JLE  loop; \
rest: \
	ADDQ $WIDTH, CX; \
	SUBQ AX, CX; \
	JEQ  done; \
	MASK; \
	BODY(LOADMASKED, FILLMASKED, STOREMASKED, KEEPMASKED); \
done:

// Operands by the kernels' signatures.
#define SLICES1 \
	MOVQ x_base+0(FP), SI; \
	MOVQ x_len+8(FP), CX

#define SLICES2 \
	MOVQ dst_base+0(FP), DI; \
	MOVQ dst_len+8(FP), CX; \
	MOVQ x_base+24(FP), SI

#define SLICES3 \
	SLICES2; \
	MOVQ y_base+48(FP), DX

#define DONE \
	VZEROUPPER; \
	RET
