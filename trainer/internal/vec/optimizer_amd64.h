// The steps of optimizers, with the bits of the loops in Go: every operation is rounded.

// DECAYMASKS, with the weight decay's bits in BX, sets V6 to all bits and V7 to none, or, if the decay is 0, V6 to
// none and V7 to the sign bits.
#define DECAYMASKS \
	ADDL BX, BX; \
	NEGL BX; \
	SBBL BX, BX; \
	VMOVD BX, X6; \
	VPBROADCASTD X6, V6; \
	NOTL BX; \
	ANDL $0x80000000, BX; \
	VMOVD BX, X7; \
	VPBROADCASTD X7, V7

// DECAYED is G = G + D W, and G if the decay D is 0: adding -0 changes nothing. D is overwritten.
#define DECAYED(D, W, G) \
	VMULPS W, D, D; \
	VANDPS V6, D, D; \
	VORPS  V7, D, D; \
	VADDPS D, G, G

// g (at SI) = g + decay w; w (at DI) = w - lr g. lr is in V12 and decay in V11.
#define SGD(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	LOAD(SI, V1); \
	VMOVAPS V11, V2; \
	DECAYED(V2, V0, V1); \
	VMULPS V12, V1, V1; \
	VSUBPS V1, V0, V0; \
	STORE(V0, DI)

// The same with v (at DX) and an sgdStep: lr is in V12, decay in V11, momentum in V10, rest in V9; V8 is all bits for
// Nesterov's form, else none.
#define SGDMOMENTUM(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	LOAD(SI, V1); \
	LOAD(DX, V3); \
	VMOVAPS V11, V2; \
	DECAYED(V2, V0, V1); \
	VMULPS  V10, V3, V3; \
	VMULPS  V9, V1, V2; \
	VADDPS  V2, V3, V3; \
	STORE(V3, DX); \
	VMULPS  V10, V3, V2; \
	VADDPS  V2, V1, V1; \
	VANDPS  V8, V1, V1; \
	VANDNPS V3, V8, V2; \
	VORPS   V2, V1, V1; \
	VMULPS  V12, V1, V1; \
	VSUBPS  V1, V0, V0; \
	STORE(V0, DI)

// w is at DI, g at SI, m at DX, v at R8, an AdamStep at R9. Its numbers are read again for every vector: there are
// more than AVX2 has registers, and the square root takes longer.
#define ADAM(LOAD, FILL, STORE, KEEP) \
	LOAD(DI, V0); \
	LOAD(SI, V1); \
	LOAD(DX, V2); \
	LOAD(R8, V3); \
	VBROADCASTSS 0(R9), V4; \
	VMULPS       V4, V0, V0; \
	VBROADCASTSS 4(R9), V4; \
	DECAYED(V4, V0, V1); \
	VBROADCASTSS 8(R9), V4; \
	VMULPS       V4, V2, V2; \
	VBROADCASTSS 16(R9), V4; \
	VMULPS       V1, V4, V4; \
	VADDPS       V4, V2, V2; \
	STORE(V2, DX); \
	VBROADCASTSS 12(R9), V4; \
	VMULPS       V4, V3, V3; \
	VBROADCASTSS 20(R9), V4; \
	VMULPS       V1, V4, V4; \
	VMULPS       V1, V4, V4; \
	VADDPS       V4, V3, V3; \
	STORE(V3, R8); \
	VSQRTPS      V3, V3; \
	VBROADCASTSS 28(R9), V4; \
	VDIVPS       V4, V3, V3; \
	VBROADCASTSS 32(R9), V4; \
	VADDPS       V4, V3, V3; \
	VBROADCASTSS 24(R9), V4; \
	VMULPS       V4, V2, V2; \
	VDIVPS       V3, V2, V2; \
	VSUBPS       V2, V0, V0; \
	STORE(V0, DI)
