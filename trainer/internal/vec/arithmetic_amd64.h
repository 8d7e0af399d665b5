// Arithmetic with the bits of the loops in Go: products are rounded before they are added.

// dst += x
#define ADD(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	LOAD(SI, V1); \
	VADDPS V1, V0, V0; \
	STORE(V0, DI)

// dst = x + y
#define ADDTO(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	VADDPS V1, V0, V0; \
	STORE(V0, DI)

// dst = x y
#define MUL(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	VMULPS V1, V0, V0; \
	STORE(V0, DI)

// dst *= a; a is in V12
#define SCALE(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	VMULPS V12, V0, V0; \
	STORE(V0, DI)

// dst += a x
#define AXPY(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DI, V1); \
	VMULPS V12, V0, V0; \
	VADDPS V0, V1, V1; \
	STORE(V1, DI)

// dst = dst + four rows, in their order
#define ADD4(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	LOAD(SI, V1); \
	LOAD(R8, V2); \
	LOAD(R9, V3); \
	LOAD(R10, V4); \
	VADDPS V1, V0, V0; \
	VADDPS V2, V0, V0; \
	VADDPS V3, V0, V0; \
	VADDPS V4, V0, V0; \
	STORE(V0, DI)

// ROWS4 is where the rows of ADD4 begin, CX elements each.
#define ROWS4 \
	LEAQ (SI)(CX*4), R8; \
	LEAQ (R8)(CX*4), R9; \
	LEAQ (R9)(CX*4), R10

// dst = max(x, 0). Of two zeros, and where x is NaN, the processor takes x.
#define RELU(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	VMAXPS V0, V12, V0; \
	STORE(V0, DI)

// dst = x > 0 ? y : 0
#define RELUGRAD(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	POSITIVE(V0, V1, V2); \
	STORE(V2, DI)

// dst = y (1 - x x); V12 is 1
#define TANHGRAD(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	VMULPS V0, V0, V0; \
	VSUBPS V0, V12, V0; \
	VMULPS V0, V1, V1; \
	STORE(V1, DI)

// dst = x (y - a)
#define SOFTMAXGRAD(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	VSUBPS V12, V1, V1; \
	VMULPS V1, V0, V0; \
	STORE(V0, DI)
