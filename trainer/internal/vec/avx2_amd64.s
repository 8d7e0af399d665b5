//go:build !noasm

#include "textflag.h"
#include "avx2_amd64.h"
#include "constants_amd64.h"
#include "loop_amd64.h"
#include "arithmetic_amd64.h"
#include "reduce_amd64.h"
#include "activation_amd64.h"
#include "normalize_amd64.h"
#include "optimizer_amd64.h"

// The kernels for AVX2 with FMA. What they compute is in the headers, which are the same for both widths.

// func addAVX2(dst, x []float32)
TEXT ·addAVX2(SB), NOSPLIT, $0-48
	SLICES2
	EACH(ADD)
	DONE

// func addToAVX2(dst, x, y []float32)
TEXT ·addToAVX2(SB), NOSPLIT, $0-72
	SLICES3
	EACH(ADDTO)
	DONE

// func mulAVX2(dst, x, y []float32)
TEXT ·mulAVX2(SB), NOSPLIT, $0-72
	SLICES3
	EACH(MUL)
	DONE

// func scaleAVX2(dst []float32, a float32)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-28
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	VBROADCASTSS a+24(FP), V12
	EACH(SCALE)
	DONE

// func axpyAVX2(dst []float32, a float32, x []float32)
TEXT ·axpyAVX2(SB), NOSPLIT, $0-56
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	VBROADCASTSS a+24(FP), V12
	MOVQ x_base+32(FP), SI
	EACH(AXPY)
	DONE

// func add4AVX2(dst, m []float32)
TEXT ·add4AVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ m_base+24(FP), SI
	ROWS4
	EACH(ADD4)
	DONE

// func sumAVX2(x []float32) float64
TEXT ·sumAVX2(SB), NOSPLIT, $0-32
	SLICES1
	CLEARSUMS
	EACH(SUM)
	ADDSUMS
	VMOVSD X8, ret+24(FP)
	DONE

// func dotAVX2(x, y []float32) float64
TEXT ·dotAVX2(SB), NOSPLIT, $0-56
	SLICES1
	MOVQ y_base+24(FP), DX
	CLEARSUMS
	EACH(DOT)
	ADDSUMS
	VMOVSD X8, ret+48(FP)
	DONE

// func maxAVX2(x []float32) float32
TEXT ·maxAVX2(SB), NOSPLIT, $0-28
	SLICES1
	VMOVUPS MINUSINF, V12
	VMOVAPS V12, V8
	EACH(MAX)
	MAXLANES
	VMOVSS X8, ret+24(FP)
	DONE

// func finiteAVX2(x []float32) bool
TEXT ·finiteAVX2(SB), NOSPLIT, $0-25
	SLICES1
	VXORPS V8, V8, V8
	EACH(FINITE)
	ANYBIT
	SETEQ ret+24(FP)
	DONE

// func reluAVX2(dst, x []float32)
TEXT ·reluAVX2(SB), NOSPLIT, $0-48
	SLICES2
	VXORPS V12, V12, V12
	EACH(RELU)
	DONE

// func reluGradAVX2(dst, y, dy []float32)
TEXT ·reluGradAVX2(SB), NOSPLIT, $0-72
	SLICES3
	EACH(RELUGRAD)
	DONE

// func geluAVX2(dst, x []float32)
TEXT ·geluAVX2(SB), NOSPLIT, $0-48
	SLICES2
	VXORPS V12, V12, V12
	EACH(GELU)
	DONE

// func geluGradAVX2(dst, x, dy []float32)
TEXT ·geluGradAVX2(SB), NOSPLIT, $0-72
	SLICES3
	EACH(GELUGRAD)
	DONE

// func tanhAVX2(dst, x []float32)
TEXT ·tanhAVX2(SB), NOSPLIT, $0-48
	SLICES2
	VMOVUPS TANHTOP, V12
	VMOVUPS TANHLOW, V11
	EACH(TANH)
	DONE

// func tanhGradAVX2(dst, y, dy []float32)
TEXT ·tanhGradAVX2(SB), NOSPLIT, $0-72
	SLICES3
	VMOVUPS ONE, V12
	EACH(TANHGRAD)
	DONE

// func expSumAVX2(dst, x []float32, top float32) float64
TEXT ·expSumAVX2(SB), NOSPLIT, $0-64
	SLICES2
	VBROADCASTSS top+48(FP), V12
	CLEARSUMS
	EACH(EXPSUM)
	ADDSUMS
	VMOVSD X8, ret+56(FP)
	DONE

// func softmaxGradAVX2(dst, y, dy []float32, dot float32)
TEXT ·softmaxGradAVX2(SB), NOSPLIT, $0-76
	SLICES3
	VBROADCASTSS dot+72(FP), V12
	EACH(SOFTMAXGRAD)
	DONE

// func momentsAVX2(x []float32) (sum, squares float64)
TEXT ·momentsAVX2(SB), NOSPLIT, $0-40
	SLICES1
	VBROADCASTSS (SI), V11
	WIDEN(V11, Y11, X11, V12, V10)
	CLEARSUMS
	EACH(MOMENTS)
	SUMLANES(V8, Y8, X8, Y9, X9)
	VMOVSD X8, sum+24(FP)
	SUMLANES(V10, Y10, X10, Y9, X9)
	VMOVSD X10, squares+32(FP)
	DONE

// func normalizeAVX2(dst, x, gain, bias []float32, mean, rstd float32)
TEXT ·normalizeAVX2(SB), NOSPLIT, $0-104
	SLICES2
	MOVQ gain_base+48(FP), DX
	MOVQ bias_base+72(FP), R8
	VBROADCASTSS mean+96(FP), V11
	VBROADCASTSS rstd+100(FP), V12
	EACH(NORMALIZE)
	DONE

// func normalizeSumsAVX2(dgain, dbias, x, dy, gain []float32, mean, rstd float32) (sum, dot float64)
TEXT ·normalizeSumsAVX2(SB), NOSPLIT, $0-144
	MOVQ dgain_base+0(FP), R8
	MOVQ dgain_len+8(FP), CX
	MOVQ dbias_base+24(FP), R9
	MOVQ x_base+48(FP), SI
	MOVQ dy_base+72(FP), DX
	MOVQ gain_base+96(FP), R10
	VBROADCASTSS mean+120(FP), V11
	VBROADCASTSS rstd+124(FP), V12
	CLEARSUMS
	EACH(NORMALIZESUMS)
	SUMLANES(V8, Y8, X8, Y9, X9)
	VMOVSD X8, sum+128(FP)
	SUMLANES(V10, Y10, X10, Y9, X9)
	VMOVSD X10, dot+136(FP)
	DONE

// func normalizeGradAVX2(dx, x, dy, gain []float32, mean, rstd, a, b float32)
TEXT ·normalizeGradAVX2(SB), NOSPLIT, $0-112
	MOVQ dx_base+0(FP), DI
	MOVQ dx_len+8(FP), CX
	MOVQ x_base+24(FP), SI
	MOVQ dy_base+48(FP), DX
	MOVQ gain_base+72(FP), R8
	VBROADCASTSS mean+96(FP), V11
	VBROADCASTSS rstd+100(FP), V12
	VBROADCASTSS a+104(FP), V9
	VBROADCASTSS b+108(FP), V10
	EACH(NORMALIZEGRAD)
	DONE

// func sgdAVX2(w, g []float32, lr, decay float32)
TEXT ·sgdAVX2(SB), NOSPLIT, $0-56
	MOVQ w_base+0(FP), DI
	MOVQ w_len+8(FP), CX
	MOVQ g_base+24(FP), SI
	VBROADCASTSS lr+48(FP), V12
	VBROADCASTSS decay+52(FP), V11
	MOVL decay+52(FP), BX
	DECAYMASKS
	EACH(SGD)
	DONE

// func sgdMomentumAVX2(w, g, v []float32, s sgdStep)
TEXT ·sgdMomentumAVX2(SB), NOSPLIT, $0-92
	MOVQ w_base+0(FP), DI
	MOVQ w_len+8(FP), CX
	MOVQ g_base+24(FP), SI
	MOVQ v_base+48(FP), DX
	LEAQ s_lr+72(FP), R9
	VBROADCASTSS 0(R9), V12
	VBROADCASTSS 4(R9), V10
	VBROADCASTSS 8(R9), V9
	VBROADCASTSS 12(R9), V11
	VBROADCASTSS 16(R9), V8
	MOVL s_decay+84(FP), BX
	DECAYMASKS
	EACH(SGDMOMENTUM)
	DONE

// func adamAVX2(w, g, m, v []float32, s AdamStep)
TEXT ·adamAVX2(SB), NOSPLIT, $0-132
	MOVQ w_base+0(FP), DI
	MOVQ w_len+8(FP), CX
	MOVQ g_base+24(FP), SI
	MOVQ m_base+48(FP), DX
	MOVQ v_base+72(FP), R8
	LEAQ s_Shrink+96(FP), R9
	MOVL s_Decay+100(FP), BX
	DECAYMASKS
	EACH(ADAM)
	DONE
