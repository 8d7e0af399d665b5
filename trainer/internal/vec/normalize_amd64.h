// Layer norm of a row. V11 is the mean and V12 the reciprocal of the deviation.

// dst = (x - mean) rstd gain + bias; gain is at DX and bias at R8
#define NORMALIZE(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	LOAD(R8, V2); \
	VSUBPS      V11, V0, V0; \
	VMULPS      V12, V0, V0; \
	VFMADD213PS V2, V1, V0; \
	STORE(V0, DI)

// With unit = (x - mean) rstd: dgain (at R8) += dy unit; dbias (R9) += dy; V8 += dy gain; V10 += dy gain unit. x is
// at SI, dy at DX, gain at R10. Behind the end dy is 0, and so are all terms.
#define NORMALIZESUMS(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	VSUBPS V11, V0, V0; \
	VMULPS V12, V0, V0; \
	VMULPS V0, V1, V2; \
	LOAD(R8, V3); \
	VADDPS V2, V3, V3; \
	STORE(V3, R8); \
	LOAD(R9, V4); \
	VADDPS V1, V4, V4; \
	STORE(V4, R9); \
	LOAD(R10, V5); \
	VMULPS V5, V1, V1; \
	WIDEN(V1, Y1, X1, V2, V3); \
	WIDEN(V0, Y0, X0, V4, V5); \
	VADDPD V2, V8, V8; \
	VADDPD V3, V8, V8; \
	VFMADD231PD V4, V2, V10; \
	VFMADD231PD V5, V3, V10

// dx (at DI) = rstd (dy gain - a - unit b); x is at SI, dy at DX, gain at R8, a in V9 and b in V10
#define NORMALIZEGRAD(LOAD, FILL, STORE, KEEP) \
	LOAD(SI, V0); \
	LOAD(DX, V1); \
	LOAD(R8, V2); \
	VSUBPS       V11, V0, V0; \
	VMULPS       V12, V0, V0; \
	VFMSUB213PS  V9, V2, V1; \
	VFNMADD231PS V10, V0, V1; \
	VMULPS       V12, V1, V1; \
	STORE(V1, DI)
