// Sums, in double precision, and what else makes one number of an array.

#define CLEARSUMS \
	VXORPS V8, V8, V8; \
	VXORPS V10, V10, V10

// SUMLANES adds the lanes of V in X. Y and X are parts of V; YT and XT, of one register, are overwritten.
#define SUMLANES(V, Y, X, YT, XT) \
	FOLD(FOLDADD, V, Y, YT); \
	VEXTRACTF128 $1, Y, XT; \
	VADDPD       XT, X, X; \
	VPERMILPD    $1, X, XT; \
	VADDSD       XT, X, X

#define FOLDADD(U, L) VADDPD U, L, L

// V8 and V10 are sums over parts of vectors; ADDSUMS makes one number of them, in X8.
#define ADDSUMS \
	VADDPD V10, V8, V8; \
	SUMLANES(V8, Y8, X8, Y9, X9)

// SUM and DOT have the bits of the loops in Go: eight sums, to which elements are dealt in turn, and ADDSUMS adds as fold
// does. The products of DOT are exact.
#define SUM(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	WIDEN(V0, Y0, X0, V1, V2); \
	VADDPD V1, V8, V8; \
	VADDPD V2, UPPERSUM, UPPERSUM

#define DOT(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	WIDEN(V0, Y0, X0, V2, V3); \
	WIDEN(V1, Y1, X1, V4, V5); \
	VFMADD231PD V4, V2, V8; \
	VFMADD231PD V5, V3, UPPERSUM

// MAXNAN is A = max(A, B), NaN if either is. The processor's maximum is its second operand if either is NaN: it is
// taken both ways, and a NaN stays one whatever is or-ed to it. T is overwritten.
#define MAXNAN(B, A, T) \
	VMAXPS B, A, T; \
	VMAXPS A, B, A; \
	VORPS  T, A, A

// V8 is the maximum of what was seen, V12 -Inf.
#define MAX(LOAD, FILL, STORE, KEEP) \
	FILL(SI, V12, V0); \
	MAXNAN(V0, V8, V1)

// MAXLANES makes X8 the maximum of the lanes of V8.
#define MAXLANES \
	FOLD(FOLDMAX, V8, Y8, Y0); \
	VEXTRACTF128 $1, Y8, X0; \
	MAXNAN(X0, X8, X1); \
	VPERMILPD    $1, X8, X0; \
	MAXNAN(X0, X8, X1); \
	VPERMILPS    $1, X8, X0; \
	MAXNAN(X0, X8, X1)

#define FOLDMAX(U, L) MAXNAN(U, L, Y1)

// A finite number minus itself is 0; anything else becomes NaN, whose bits are collected in V8.
#define FINITE(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	VSUBPS V0, V0, V0; \
	VORPS  V0, V8, V8

// ANYBIT sets the flag Z if V8 is 0, and clears it otherwise.
#define ANYBIT \
	FOLD(FOLDOR, V8, Y8, Y0); \
	VPTEST Y8, Y8

#define FOLDOR(U, L) VORPS U, L, L

// V8 is the sum of x - x[0], V10 that of squares. V11 is x[0], V12 the same in double precision.
#define MOMENTS(LOAD, FILL, STORE, KEEP) \
	FILL(SI, V11, V0); \
	WIDEN(V0, Y0, X0, V1, V2); \
	VSUBPD      V12, V1, V1; \
	VSUBPD      V12, V2, V2; \
	VADDPD      V1, V8, V8; \
	VADDPD      V2, V8, V8; \
	VFMADD231PD V1, V1, V10; \
	VFMADD231PD V2, V2, V10
