// The kernel for both widths: V0 to V15 are registers of W bytes, which the including file defines.
//
// Sums of 4 rows and three vectors of columns are in V0 to V11, those of row i in V3i to V3i+2. DI is the tile, SI and DX are the panels,
// and CX counts down the inner dimension. A row of the tile, and one of b, takes 192 bytes.

#define LOADSUMS \
	VMOVUPD 0(DI), V0; \
	VMOVUPD W(DI), V1; \
	VMOVUPD (2*W)(DI), V2; \
	VMOVUPD 192(DI), V3; \
	VMOVUPD (192+W)(DI), V4; \
	VMOVUPD (192+2*W)(DI), V5; \
	VMOVUPD 384(DI), V6; \
	VMOVUPD (384+W)(DI), V7; \
	VMOVUPD (384+2*W)(DI), V8; \
	VMOVUPD 576(DI), V9; \
	VMOVUPD (576+W)(DI), V10; \
	VMOVUPD (576+2*W)(DI), V11

#define STORESUMS \
	VMOVUPD V0, 0(DI); \
	VMOVUPD V1, W(DI); \
	VMOVUPD V2, (2*W)(DI); \
	VMOVUPD V3, 192(DI); \
	VMOVUPD V4, (192+W)(DI); \
	VMOVUPD V5, (192+2*W)(DI); \
	VMOVUPD V6, 384(DI); \
	VMOVUPD V7, (384+W)(DI); \
	VMOVUPD V8, (384+2*W)(DI); \
	VMOVUPD V9, 576(DI); \
	VMOVUPD V10, (576+W)(DI); \
	VMOVUPD V11, (576+2*W)(DI)

// STEP adds the products of one column of a and one row of b.
#define STEP \
	VMOVUPD      0(DX), V12; \
	VMOVUPD      W(DX), V13; \
	VMOVUPD      (2*W)(DX), V14; \
	VBROADCASTSD 0(SI), V15; \
	VFMADD231PD  V12, V15, V0; \
	VFMADD231PD  V13, V15, V1; \
	VFMADD231PD  V14, V15, V2; \
	VBROADCASTSD 8(SI), V15; \
	VFMADD231PD  V12, V15, V3; \
	VFMADD231PD  V13, V15, V4; \
	VFMADD231PD  V14, V15, V5; \
	VBROADCASTSD 16(SI), V15; \
	VFMADD231PD  V12, V15, V6; \
	VFMADD231PD  V13, V15, V7; \
	VFMADD231PD  V14, V15, V8; \
	VBROADCASTSD 24(SI), V15; \
	VFMADD231PD  V12, V15, V9; \
	VFMADD231PD  V13, V15, V10; \
	VFMADD231PD  V14, V15, V11; \
	ADDQ         $32, SI; \
	ADDQ         $192, DX; \
	DECQ         CX

// OPERANDS loads addresses, and the inner dimension, and sets the flag Z if that is 0.
#define OPERANDS \
	MOVQ c+0(FP), DI; \
	MOVQ a_base+8(FP), SI; \
	MOVQ a_len+16(FP), CX; \
	MOVQ b_base+32(FP), DX; \
	SHRQ $2, CX
