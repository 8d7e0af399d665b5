// Functions made of polynomials. Their constants and sources are in constants_amd64.h.

// EXP is P = exp(X) for X <= 88: 2^N exp(rest), with |rest| <= log(2)/2. X, N and T are overwritten. NaN stays NaN.
#define EXP(X, P, N, T) \
	EXPLIMIT(X, T); \
	VMULPS       LOG2E, X, N; \
	ROUNDEVEN(N); \
	VFNMADD231PS LN2HIGH, N, X; \
	VFNMADD231PS LN2LOW, N, X; \
	VMOVUPS      EXP7, P; \
	VFMADD213PS  EXP6, X, P; \
	VFMADD213PS  EXP5, X, P; \
	VFMADD213PS  EXP4, X, P; \
	VFMADD213PS  EXP3, X, P; \
	VFMADD213PS  EXP2, X, P; \
	VFMADD213PS  ONE, X, P; \
	VFMADD213PS  ONE, X, P; \
	EXPSCALE(N, T, P)

// dst = exp(x - a) with a in V12; V8 and V10 are sums, as in SUM.
#define EXPSUM(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	VSUBPS V12, V0, V0; \
	EXP(V0, V1, V2, V3); \
	KEEP(V1); \
	STORE(V1, DI); \
	WIDEN(V1, Y1, X1, V4, V5); \
	VADDPD V4, V8, V8; \
	VADDPD V5, V10, V10

// NORMAL is, for x in V0: the density phi(x) in V5, 1 - Phi(|x|) in V3, |x| in V1. It overwrites up to V7.
//
// |x| comes out as min(x, 40) where x > 0, so that x - |x| 0 is right at infinity, too.
#define NORMAL \
	VXORPS      SIGN, V0, V1; \
	VMINPS      NORMALTOP, V0, V2; \
	VMAXPS      V2, V1, V1; \
	VMULPS      V0, V0, V4; \
	VMULPS      MINUSHALF, V4, V4; \
	EXP(V4, V5, V6, V7); \
	VMULPS      DENSITY0, V5, V5; \
	VMOVUPS     ONE, V2; \
	VMOVAPS     V2, V3; \
	VFMADD231PS NORMALP, V1, V3; \
	VDIVPS      V3, V2, V2; \
	VMOVUPS     NORMAL5, V3; \
	VFMADD213PS NORMAL4, V2, V3; \
	VFMADD213PS NORMAL3, V2, V3; \
	VFMADD213PS NORMAL2, V2, V3; \
	VFMADD213PS NORMAL1, V2, V3; \
	VMULPS      V2, V3, V3; \
	VMULPS      V5, V3, V3

// dst = x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)), for which small results of negative x are not differences of
// large ones. V12 is 0.
#define GELU(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	NORMAL; \
	VMAXPS       V0, V12, V2; \
	VFNMADD231PS V1, V3, V2; \
	STORE(V2, DI)

// dst = y (Phi(x) + x phi(x)). The half less 1 - Phi(|x|), with the sign of x, is Phi(x) less the half.
#define GELUGRAD(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	NORMAL; \
	VMOVUPS     HALF, V2; \
	VANDPS      SIGN, V0, V4; \
	VSUBPS      V3, V2, V3; \
	VXORPS      V4, V3, V3; \
	VADDPS      V2, V3, V3; \
	VFMADD231PS V5, V0, V3; \
	LOAD(DX, V8); \
	VMULPS      V8, V3, V3; \
	STORE(V3, DI)

// dst = tanh(x) = x P(x x) / Q(x x). The quotient is taken first, as x P could be subnormal. V11 and V12 are the ends
// of its domain; with x as the second operand NaN stays NaN.
#define TANH(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	VMINPS      V0, V12, V0; \
	VMAXPS      V0, V11, V0; \
	VMULPS      V0, V0, V1; \
	VMOVUPS     TANHP13, V2; \
	VFMADD213PS TANHP11, V1, V2; \
	VFMADD213PS TANHP9, V1, V2; \
	VFMADD213PS TANHP7, V1, V2; \
	VFMADD213PS TANHP5, V1, V2; \
	VFMADD213PS TANHP3, V1, V2; \
	VFMADD213PS TANHP1, V1, V2; \
	VMOVUPS     TANHQ6, V3; \
	VFMADD213PS TANHQ4, V1, V3; \
	VFMADD213PS TANHQ2, V1, V3; \
	VFMADD213PS TANHQ0, V1, V3; \
	VDIVPS      V3, V2, V2; \
	VMULPS      V2, V0, V0; \
	STORE(V0, DI)
