// Go's assembler has no names for NEON's floating-point arithmetic, so these
// are its codes (Arm Architecture Reference Manual, A64 SIMD and floating-point instructions).
// M, N and D are numbers of registers.

// D = N + M
#define FADD_S4(M, N, D) WORD $(0x4E20D400 | M<<16 | N<<5 | D)
#define FADD_D2(M, N, D) WORD $(0x4E60D400 | M<<16 | N<<5 | D)

// D = N / M
#define FDIV_S4(M, N, D) WORD $(0x6E20FC00 | M<<16 | N<<5 | D)
#define FDIV_D2(M, N, D) WORD $(0x6E60FC00 | M<<16 | N<<5 | D)

// D = the lower (upper) four halves in N, as float32
#define FCVTL(N, D) WORD $(0x0E217800 | N<<5 | D)
#define FCVTL2(N, D) WORD $(0x4E217800 | N<<5 | D)

// the lower (upper) four halves in D = four float32 in N, rounded
#define FCVTN(N, D) WORD $(0x0E216800 | N<<5 | D)
#define FCVTN2(N, D) WORD $(0x4E216800 | N<<5 | D)

// V0..V3 += V4..V7
#define ADD_FLOAT32 FADD_S4(4, 0, 0); FADD_S4(5, 1, 1); FADD_S4(6, 2, 2); FADD_S4(7, 3, 3)
#define ADD_FLOAT64 FADD_D2(4, 0, 0); FADD_D2(5, 1, 1); FADD_D2(6, 2, 2); FADD_D2(7, 3, 3)
