// Constants, each as wide as the widest vector, so that instructions of both widths take them from memory.

#define SPLAT(OFF, C) \
	DATA k<>+OFF+0(SB)/4, C; \
	DATA k<>+OFF+4(SB)/4, C; \
	DATA k<>+OFF+8(SB)/4, C; \
	DATA k<>+OFF+12(SB)/4, C; \
	DATA k<>+OFF+16(SB)/4, C; \
	DATA k<>+OFF+20(SB)/4, C; \
	DATA k<>+OFF+24(SB)/4, C; \
	DATA k<>+OFF+28(SB)/4, C; \
	DATA k<>+OFF+32(SB)/4, C; \
	DATA k<>+OFF+36(SB)/4, C; \
	DATA k<>+OFF+40(SB)/4, C; \
	DATA k<>+OFF+44(SB)/4, C; \
	DATA k<>+OFF+48(SB)/4, C; \
	DATA k<>+OFF+52(SB)/4, C; \
	DATA k<>+OFF+56(SB)/4, C; \
	DATA k<>+OFF+60(SB)/4, C

#define ONE k<>+0(SB)
SPLAT(0, $1.0)
#define HALF k<>+64(SB)
SPLAT(64, $0.5)
#define MINUSHALF k<>+128(SB)
SPLAT(128, $-0.5)
#define SIGN k<>+192(SB)
SPLAT(192, $0x80000000)
#define MINUSINF k<>+256(SB)
SPLAT(256, $0xff800000)

// exp: below EXPLOW it is subnormal and taken for 0 (by AVX2), at EXPZERO it is 0 (AVX-512); the logarithm of 2 in
// two parts, and a polynomial for |x| <= log(2)/2 (S. Moshier, Cephes, expf.c).
#define EXPLOW k<>+320(SB)
SPLAT(320, $-87.33)
#define EXPZERO k<>+384(SB)
SPLAT(384, $-104.0)
#define LOG2E k<>+448(SB)
SPLAT(448, $1.44269504088896341)
#define LN2HIGH k<>+512(SB)
SPLAT(512, $0.693359375)
#define LN2LOW k<>+576(SB)
SPLAT(576, $-2.12194440e-4)
#define EXP7 k<>+640(SB)
SPLAT(640, $1.9875691500e-4)
#define EXP6 k<>+704(SB)
SPLAT(704, $1.3981999507e-3)
#define EXP5 k<>+768(SB)
SPLAT(768, $8.3334519073e-3)
#define EXP4 k<>+832(SB)
SPLAT(832, $4.1665795894e-2)
#define EXP3 k<>+896(SB)
SPLAT(896, $1.6666665459e-1)
#define EXP2 k<>+960(SB)
SPLAT(960, $5.0000001201e-1)

// The normal distribution: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.2.17.
#define NORMALP k<>+1024(SB)
SPLAT(1024, $0.2316419)
#define NORMAL1 k<>+1088(SB)
SPLAT(1088, $0.319381530)
#define NORMAL2 k<>+1152(SB)
SPLAT(1152, $-0.356563782)
#define NORMAL3 k<>+1216(SB)
SPLAT(1216, $1.781477937)
#define NORMAL4 k<>+1280(SB)
SPLAT(1280, $-1.821255978)
#define NORMAL5 k<>+1344(SB)
SPLAT(1344, $1.330274429)
#define DENSITY0 k<>+1408(SB) // 1 / sqrt(2 pi)
SPLAT(1408, $0.398942280401432678)
#define NORMALTOP k<>+1472(SB) // the normal distribution is 1 from far below
SPLAT(1472, $40.0)

// tanh: a quotient of polynomials for |x| <= TANHTOP, beyond which it is 1 (Eigen, MathFunctionsImpl.h,
// generic_fast_tanh_float).
#define TANHTOP k<>+1536(SB)
SPLAT(1536, $7.99881172180175781)
#define TANHLOW k<>+1600(SB)
SPLAT(1600, $-7.99881172180175781)
#define TANHP13 k<>+1664(SB)
SPLAT(1664, $-2.76076847742355e-16)
#define TANHP11 k<>+1728(SB)
SPLAT(1728, $2.00018790482477e-13)
#define TANHP9 k<>+1792(SB)
SPLAT(1792, $-8.60467152213735e-11)
#define TANHP7 k<>+1856(SB)
SPLAT(1856, $5.12229709037114e-08)
#define TANHP5 k<>+1920(SB)
SPLAT(1920, $1.48572235717979e-05)
#define TANHP3 k<>+1984(SB)
SPLAT(1984, $6.37261928875436e-04)
#define TANHP1 k<>+2048(SB)
SPLAT(2048, $4.89352455891786e-03)
#define TANHQ6 k<>+2112(SB)
SPLAT(2112, $1.19825839466702e-06)
#define TANHQ4 k<>+2176(SB)
SPLAT(2176, $1.18534705686654e-04)
#define TANHQ2 k<>+2240(SB)
SPLAT(2240, $2.26843463243900e-03)
#define TANHQ0 k<>+2304(SB)
SPLAT(2304, $4.89352518554385e-03)

GLOBL k<>(SB), RODATA|NOPTR, $2368
