/*
 * mpi.c - one collective of an MPI library, timed by the method of `ddpbatch bench` (docs/cli.md, "bench"):
 *
 *   mpi COLLECTIVE BEGIN END FACTOR BUDGET_US
 *
 * For sizes of BEGIN, BEGIN*FACTOR, ... up to END bytes of float32: a checked call, a warm-up that also finds how many
 * calls fit into BUDGET_US, the timed calls with one barrier before each, and a checked call. A row's time is
 * the median over the calls of the mean over the ranks, less what reading the clock takes. Rank 0 prints, in nccl-tests'
 * meaning of size,
 *
 *   row SIZE TIME_US WRONG
 *
 * and `end` after the last one: some libraries hang in MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIN_CALLS = 7, MAX_CALLS = 10000, PERIOD = 251, CLOCK_READINGS = 1001 };

static int rank, ranks;
static float *in, *out; /* of the largest size each */
static long count;      /* elements: of a whole buffer, or of one rank's block where a collective has blocks */

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* value is what rank r contributes to element i: a small whole number, so that sums are exact. Seed 0 is all
 * zeros, which stay what they are however often they are summed in place. */
static float value(int r, int seed, long i)
{
	return seed == 0 ? 0 : (float)(((i % PERIOD) * (r + 3) + seed) % 8);
}

static float sum_of_values(int seed, long i)
{
	float sum = 0;
	for (int r = 0; r < ranks; r++)
		sum += value(r, seed, i);
	return sum;
}

/* ---- the collectives ---- */

static void fill_own(float *buf, long n, int seed)
{
	for (long i = 0; i < n; i++)
		buf[i] = value(rank, seed, i);
}

static void allreduce_fill(int seed) { fill_own(out, count, seed); }
static void allreduce_run(void) { MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long allreduce_wrong(int seed)
{
	long wrong = 0;
	for (long i = 0; i < count; i++)
		wrong += out[i] != sum_of_values(seed, i);
	return wrong;
}

static void broadcast_fill(int seed) { fill_own(out, count, seed); }
static void broadcast_run(void) { MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static long broadcast_wrong(int seed)
{
	long wrong = 0;
	for (long i = 0; i < count; i++)
		wrong += out[i] != value(0, seed, i);
	return wrong;
}

static void allgather_fill(int seed)
{
	fill_own(in, count, seed);
	memset(out, 0xff, sizeof *out * count * ranks);
}
static void allgather_run(void) { MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); }
static long allgather_wrong(int seed)
{
	long wrong = 0;
	for (int r = 0; r < ranks; r++)
		for (long i = 0; i < count; i++)
			wrong += out[r * count + i] != value(r, seed, i);
	return wrong;
}

static void reducescatter_fill(int seed)
{
	fill_own(in, count * ranks, seed);
	memset(out, 0xff, sizeof *out * count);
}
static void reducescatter_run(void) { MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long reducescatter_wrong(int seed)
{
	long wrong = 0;
	for (long i = 0; i < count; i++)
		wrong += out[i] != sum_of_values(seed, rank * count + i);
	return wrong;
}

/* pingpong goes from rank 0 to rank 1 and back; its time is half of that. */
static void pingpong_fill(int seed)
{
	if (rank == 0)
		fill_own(in, count, seed);
	memset(out, 0xff, sizeof *out * count);
}
static void pingpong_run(void)
{
	if (rank == 0) {
		MPI_Send(in, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(out, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(out, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(out, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
	}
}
static long pingpong_wrong(int seed)
{
	long wrong = 0;
	for (long i = 0; i < count && rank < 2; i++)
		wrong += out[i] != value(0, seed, i);
	return wrong;
}

static void nothing_fill(int seed) { (void)seed; }
static void barrier_run(void) { MPI_Barrier(MPI_COMM_WORLD); }
static long nothing_wrong(int seed) { return (void)seed, 0; }

static const struct collective {
	const char *name;
	int blocks; /* count is that of one rank's block */
	void (*fill)(int seed);
	void (*run)(void);
	long (*wrong)(int seed);
} collectives[] = {
	{"allreduce", 0, allreduce_fill, allreduce_run, allreduce_wrong},
	{"broadcast", 0, broadcast_fill, broadcast_run, broadcast_wrong},
	{"allgather", 1, allgather_fill, allgather_run, allgather_wrong},
	{"reducescatter", 1, reducescatter_fill, reducescatter_run, reducescatter_wrong},
	{"pingpong", 0, pingpong_fill, pingpong_run, pingpong_wrong},
	{"barrier", 0, nothing_fill, barrier_run, nothing_wrong},
	{"startup", 0, nothing_fill, barrier_run, nothing_wrong},
};

/* ---- the method ---- */

static long checked_call(const struct collective *c, int seed)
{
	long wrong;
	c->fill(seed);
	MPI_Barrier(MPI_COMM_WORLD);
	c->run();
	wrong = c->wrong(seed);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	return wrong;
}

/* warm_up doubles the calls until they take a tenth of the budget, and says how many calls fit into all of it. */
static int warm_up(const struct collective *c, double budget_us)
{
	for (int n = 1;; n *= 2) {
		double took = now_us();
		for (int i = 0; i < n; i++) {
			MPI_Barrier(MPI_COMM_WORLD);
			c->run();
		}
		took = now_us() - took;
		MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
		if (took < budget_us / 10 && n < MAX_CALLS)
			continue;
		double calls = budget_us / (took / n);
		return calls < MIN_CALLS ? MIN_CALLS : calls > MAX_CALLS ? MAX_CALLS : (int)calls;
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, n, sizeof x[0], ascending);
	return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/* clock_us is what two readings of the clock around nothing are apart. */
static double clock_us(void)
{
	static double apart[CLOCK_READINGS];
	for (int i = 0; i < CLOCK_READINGS; i++) {
		double start = now_us();
		apart[i] = now_us() - start;
	}
	return median(apart, CLOCK_READINGS);
}

static double median_of_calls(const struct collective *c, int calls)
{
	static double took[MAX_CALLS], sums[MAX_CALLS];
	double clock = clock_us();
	for (int i = 0; i < calls; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double start = now_us();
		c->run();
		took[i] = now_us() - start - clock;
	}
	MPI_Reduce(took, sums, calls, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	for (int i = 0; i < calls; i++)
		sums[i] = c->run == pingpong_run ? took[i] / 2 : sums[i] / ranks;
	return median(sums, calls);
}

static void row(const struct collective *c, double budget_us)
{
	long size = count * sizeof(float) * (c->blocks ? ranks : 1);
	long wrong = checked_call(c, 1);
	c->fill(0);
	int calls = warm_up(c, budget_us);
	double us = median_of_calls(c, calls);
	wrong += checked_call(c, 2);
	if (rank == 0)
		printf("row %ld %.4f %ld\n", size, us, wrong), fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct collective *c = NULL;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (size_t i = 0; argc == 6 && i < sizeof collectives / sizeof collectives[0]; i++)
		if (strcmp(argv[1], collectives[i].name) == 0)
			c = &collectives[i];
	if (c == NULL || (c->run == pingpong_run && ranks < 2)) {
		fprintf(stderr, "usage: mpi COLLECTIVE BEGIN END FACTOR BUDGET_US (pingpong: 2 ranks)\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	long begin = atol(argv[2]), end = atol(argv[3]), factor = atol(argv[4]);
	double budget_us = atof(argv[5]);
	if (posix_memalign((void **)&in, 4096, end + 4096) || posix_memalign((void **)&out, 4096, end + 4096))
		MPI_Abort(MPI_COMM_WORLD, 1);

	if (strcmp(c->name, "startup") == 0) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			printf("row 0 0 0\n"), fflush(stdout);
	} else if (c->run == barrier_run) {
		row(c, budget_us);
	} else {
		for (long size = begin; size <= end; size *= factor) {
			count = size / sizeof(float) / (c->blocks ? ranks : 1);
			if (count > 0)
				row(c, budget_us);
		}
	}
	if (rank == 0)
		printf("end\n"), fflush(stdout);
	MPI_Finalize();
	return 0;
}
