// What the kernels need to know of AVX-512 (F and DQ): 16 lanes. K1 is the mask of the last vector, where that is
// partial; Y13 is overwritten by WIDEN.

#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12

#define WIDTH 16

// UPPERSUM is where the sums of lanes 8 to 15 are: those of lanes 0 to 7.
#define UPPERSUM Z8

// MASK makes the mask of the first CX lanes, 0 < CX < 16.
#define MASK \
	MOVL  $-1, BX; \
	BZHIL CX, BX, BX; \
	KMOVW BX, K1

// Behind the end LOADMASKED fills lanes with 0, FILLMASKED with those of F; STOREMASKED leaves memory alone,
// KEEPMASKED makes lanes 0.
#define LOADMASKED(P, V) VMOVUPS.Z (P)(AX*4), K1, V
#define FILLMASKED(P, F, V) \
	VMOVAPS F, V; \
	VMOVUPS (P)(AX*4), K1, V
#define STOREMASKED(V, P) VMOVUPS V, K1, (P)(AX*4)
#define KEEPMASKED(V) VMOVAPS.Z V, K1, V

// POSITIVE is V = A > 0 ? B : 0.
#define POSITIVE(A, B, V) \
	VXORPS    V, V, V; \
	VCMPPS    $0x1e, V, A, K2; \
	VMOVAPS.Z B, K2, V

// ROUNDEVEN rounds to a whole number.
#define ROUNDEVEN(V) VRNDSCALEPS $8, V, V

// EXPLIMIT raises X to where exp(X) is 0, so that -Inf does not become NaN. T is overwritten.
#define EXPLIMIT(X, T) \
	VMOVUPS EXPZERO, T; \
	VMAXPS  X, T, X

// EXPSCALE is V = V 2^N for whole N.
#define EXPSCALE(N, T, V) VSCALEFPS N, V, V

// WIDEN makes double precision of V: its lower half in D0, the upper in D1. Y and X are parts of V.
#define WIDEN(V, Y, X, D0, D1) \
	VEXTRACTF64X4 $1, V, Y13; \
	VCVTPS2PD     Y, D0; \
	VCVTPS2PD     Y13, D1

// FOLD combines the lower and the upper half of V by OP(upper, lower) in Y, its lower half, where V is wider than that.
#define FOLD(OP, V, Y, T) \
	VEXTRACTF64X4 $1, V, T; \
	OP(T, Y)
