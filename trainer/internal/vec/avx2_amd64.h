// What the kernels need to know of AVX2: 8 lanes, 16 registers. Y15 is the mask of the last vector, where that is
// partial; Y13 is overwritten by WIDEN.

#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12

#define WIDTH 8

// UPPERSUM is where the sums of lanes 4 to 7 are.
#define UPPERSUM Y10

DATA masks<>+0(SB)/8, $-1
DATA masks<>+8(SB)/8, $-1
DATA masks<>+16(SB)/8, $-1
DATA masks<>+24(SB)/8, $-1
DATA masks<>+32(SB)/8, $0
DATA masks<>+40(SB)/8, $0
DATA masks<>+48(SB)/8, $0
DATA masks<>+56(SB)/8, $0
GLOBL masks<>(SB), RODATA|NOPTR, $64

// MASK makes the mask of the first CX lanes, 0 < CX < 8.
#define MASK \
	LEAQ    masks<>+32(SB), BX; \
	SHLQ    $2, CX; \
	SUBQ    CX, BX; \
	VMOVUPS (BX), Y15

// Behind the end LOADMASKED fills lanes with 0, FILLMASKED with those of F; STOREMASKED leaves memory alone,
// KEEPMASKED makes lanes 0.
#define LOADMASKED(P, V) VMASKMOVPS (P)(AX*4), Y15, V
#define FILLMASKED(P, F, V) \
	VMASKMOVPS (P)(AX*4), Y15, V; \
	VBLENDVPS  Y15, V, F, V
#define STOREMASKED(V, P) VMASKMOVPS V, Y15, (P)(AX*4)
#define KEEPMASKED(V) VANDPS Y15, V, V

// POSITIVE is V = A > 0 ? B : 0.
#define POSITIVE(A, B, V) \
	VXORPS V, V, V; \
	VCMPPS $0x1e, V, A, V; \
	VANDPS B, V, V

// ROUNDEVEN rounds to a whole number.
#define ROUNDEVEN(V) VROUNDPS $8, V, V

// EXPLIMIT notes in T where exp(X) is to be 0, as EXPSCALE would make nonsense of it.
#define EXPLIMIT(X, T) VCMPPS $0x11, EXPLOW, X, T

// EXPSCALE is V = V 2^N for whole N, and 0 where T says so. N is overwritten.
#define EXPSCALE(N, T, V) \
	VCVTPS2DQ N, N; \
	VPSLLD    $23, N, N; \
	VPADDD    N, V, V; \
	VANDNPS   V, T, V

// WIDEN makes double precision of V: its lower half in D0, the upper in D1. Y and X are parts of V.
#define WIDEN(V, Y, X, D0, D1) \
	VEXTRACTF128 $1, Y, X13; \
	VCVTPS2PD    X, D0; \
	VCVTPS2PD    X13, D1

// FOLD combines the lower and the upper half of V by OP(upper, lower) in Y, its lower half, where V is wider than that.
#define FOLD(OP, V, Y, T)
