// A BLAS library with what the tests need: the definition of the products, and the faults that are asked for by -D.
//
//	INT           type of integers (int; int64_t for ILP64)
//	SUFFIX(name)  how names end
//	WRONG         sgemm_ ignores alpha
//	NO_SGEMM      there is no sgemm_
//	NARROW        there is a sbgemm_; 1: right, 2: it halves what it reads
//	MKL           it says that it is MKL
//	OPENBLAS      it says that it is OpenBLAS, for so many threads at most
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef INT
#define INT int
#endif
#ifndef SUFFIX
#define SUFFIX(name) name
#endif

static float narrow(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float x;
	memcpy(&x, &wide, sizeof x);
	return x;
}

#define GEMM(NAME, TYPE, VALUE) \
	void SUFFIX(NAME)(const char *tA, const char *tB, const INT *m, const INT *n, const INT *k, const float *alpha, \
		const TYPE *a, const INT *lda, const TYPE *b, const INT *ldb, const float *beta, float *c, const INT *ldc, size_t lenA, size_t lenB) \
	{ \
		if (lenA != 1 || lenB != 1 || (*tA != 'N' && *tA != 'T') || (*tB != 'N' && *tB != 'T')) \
			return; \
		for (INT j = 0; j < *n; j++) \
			for (INT i = 0; i < *m; i++) { \
				float sum = 0; \
				for (INT l = 0; l < *k; l++) \
					sum += VALUE(a[*tA == 'N' ? i + l * *lda : l + i * *lda]) * VALUE(b[*tB == 'N' ? l + j * *ldb : j + l * *ldb]); \
				float *at = &c[i + j * *ldc]; \
				*at = (*beta == 0 ? 0 : *beta * *at) + ALPHA * sum; \
			} \
	}

#ifdef WRONG
#define ALPHA 1
#else
#define ALPHA *alpha
#endif
#define SAME(x) (x)
#ifndef NO_SGEMM
GEMM(sgemm_, float, SAME)
#endif

#if NARROW == 1
GEMM(sbgemm_, uint16_t, narrow)
#elif NARROW == 2
#define HALF(x) (narrow(x) / 2)
GEMM(sbgemm_, uint16_t, HALF)
#endif

#ifdef OPENBLAS
static int threads = 1;
char *SUFFIX(openblas_get_config)(void)
{
	const char *omp = getenv("OMP_NUM_THREADS"), *own = getenv("OPENBLAS_NUM_THREADS");
	static char text[64] = "fake";
	if (omp && own && strlen(omp) < 8 && !strcmp(omp, own))
		strcat(strcpy(text, "fake, started with "), omp);
	return text;
}
void SUFFIX(openblas_set_num_threads)(int n) { threads = n < OPENBLAS ? n : OPENBLAS; }
int SUFFIX(openblas_get_num_threads)(void) { return threads; }
int SUFFIX(openblas_get_parallel)(void) { return OPENBLAS > 1; }
#endif

#ifdef MKL
static int mkl_threads = 1;
void MKL_Get_Version_String(char *text, int size) { strncpy(text, "fake MKL   ", size); }
void MKL_Set_Num_Threads(int n) { mkl_threads = n; }
int MKL_Get_Max_Threads(void) { return mkl_threads; }
#endif
