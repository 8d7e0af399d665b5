/*
 * mpi.c - one collective of an MPI library, timed by the method of `ddpbatch bench` (docs/cli/bench.md):
 *
 *   mpi COLLECTIVE BEGIN END FACTOR BUDGET_US
 *
 * For sizes of BEGIN, BEGIN*FACTOR, ... up to END bytes of float32: two checked calls, a warm-up that also finds how many
 * calls fit into BUDGET_US, the timed calls with one barrier before each, and two checked calls. A row's time is
 * the median over the calls of the mean over the ranks, less what reading the clock takes. Rank 0 prints, in nccl-tests'
 * meaning of size,
 *
 *   row SIZE TIME_US WRONG
 *
 * and `end` after the last one: some libraries hang in MPI_Finalize.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIN_CALLS = 7, MAX_CALLS = 10000, PERIOD = 4093, MOST_RANKS = 1024, CLOCK_READINGS = 1001 };

static int rank, ranks;
static float *in, *out; /* of the largest size each */
static long count;      /* elements: of a whole buffer, or of one rank's block, on the average, where a collective has blocks */
static int counts[MOST_RANKS], at[MOST_RANKS]; /* the blocks of a buffer: their lengths, and where they begin */

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* mixed is the last step of MurmurHash3 (fmix32). */
static uint32_t mixed(uint32_t h)
{
	h = (h ^ h >> 16) * 0x85ebca6b;
	h = (h ^ h >> 13) * 0xc2b2ae35;
	return h ^ h >> 16;
}

/* value is what rank r contributes to element i in an iteration: a small whole number, so that sums are exact. Iteration 0
 * is all zeros, which stay what they are however often they are summed in place. */
static float value(int r, int iteration, long i)
{
	return iteration == 0 ? 0 : (float)(mixed((iteration * MOST_RANKS + r) * PERIOD + i % PERIOD) % 8);
}

static float pattern[PERIOD]; /* one period of what values or sums made last */

static void values(int r, int iteration)
{
	for (int i = 0; i < PERIOD; i++)
		pattern[i] = value(r, iteration, i);
}

/* sums computes the sums over ranks 0 to last. */
static void sums(int last, int iteration)
{
	memset(pattern, 0, sizeof pattern);
	for (int r = 0; r <= last; r++)
		for (int i = 0; i < PERIOD; i++)
			pattern[i] += value(r, iteration, i);
}

/* differ counts the elements of buf that differ from the pattern, which begins at its element at. */
static long differ(const float *buf, long n, long at)
{
	long wrong = 0;
	for (long i = 0, p = at % PERIOD; i < n; i++, p = p + 1 < PERIOD ? p + 1 : 0)
		wrong += buf[i] != pattern[p];
	return wrong;
}

static void fill_own(float *buf, long n, int iteration)
{
	values(rank, iteration);
	for (long i = 0, p = 0; i < n; i++, p = p + 1 < PERIOD ? p + 1 : 0)
		buf[i] = pattern[p];
}

/* spoil sets n elements of out to NaN. */
static void spoil(long n) { memset(out, 0xff, sizeof *out * n); }

/* cut makes the blocks of ranks * count elements. Where they are uneven, rank r's length is proportional to r + 1, as far as
 * whole elements can be. */
static void cut(int uneven)
{
	for (long r = 0; r < ranks; r++) {
		at[r] = uneven ? count * r * (r + 1) / (ranks + 1) : count * r;
		counts[r] = (uneven ? count * (r + 1) * (r + 2) / (ranks + 1) : count * (r + 1)) - at[r];
	}
}

/* wrong_blocks counts wrong elements in out's blocks, one from each rank, each of which was the first of that rank's values. */
static long wrong_blocks(int iteration)
{
	long wrong = 0;
	for (int r = 0; r < ranks; r++) {
		values(r, iteration);
		wrong += differ(out + at[r], counts[r], 0);
	}
	return wrong;
}

/* ---- the collectives ---- */

static void allreduce_fill(int iteration) { fill_own(out, count, iteration); }
static void allreduce_run(void) { MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long allreduce_wrong(int iteration)
{
	sums(ranks - 1, iteration);
	return differ(out, count, 0);
}

/* reduce works in place at its root. */
static void reduce_run(void)
{
	MPI_Reduce(rank == 0 ? MPI_IN_PLACE : out, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static long reduce_wrong(int iteration) { return rank == 0 ? allreduce_wrong(iteration) : 0; }

static void broadcast_run(void) { MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static long broadcast_wrong(int iteration)
{
	values(0, iteration);
	return differ(out, count, 0);
}

static void scan_run(void) { MPI_Scan(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long scan_wrong(int iteration)
{
	sums(rank, iteration);
	return differ(out, count, 0);
}

static void allgather_fill(int iteration)
{
	fill_own(in, counts[rank], iteration);
	spoil(count * ranks);
}
static void allgather_run(void) { MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); }
static void allgatherv_run(void)
{
	MPI_Allgatherv(in, counts[rank], MPI_FLOAT, out, counts, at, MPI_FLOAT, MPI_COMM_WORLD);
}
static long allgather_wrong(int iteration) { return wrong_blocks(iteration); }

static void gather_run(void) { MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void gatherv_run(void)
{
	MPI_Gatherv(in, counts[rank], MPI_FLOAT, out, counts, at, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static long gather_wrong(int iteration) { return rank == 0 ? wrong_blocks(iteration) : 0; }

static void alltoall_fill(int iteration)
{
	fill_own(in, count * ranks, iteration);
	spoil(count * ranks);
}
static void alltoall_run(void) { MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD); }
static long alltoall_wrong(int iteration)
{
	long wrong = 0;
	for (int r = 0; r < ranks; r++) {
		values(r, iteration);
		wrong += differ(out + r * count, count, rank * count);
	}
	return wrong;
}

/* In alltoallv rank r sends rank i the block of rank r + i, beyond the last rank from rank 0 on. */
static int turned[MOST_RANKS], turned_at[MOST_RANKS];

static void turn(int r)
{
	for (int i = 0, next = 0; i < ranks; i++) {
		turned[i] = counts[(r + i) % ranks];
		turned_at[i] = next;
		next += turned[i];
	}
}
static void alltoallv_fill(int iteration)
{
	alltoall_fill(iteration);
	turn(rank);
}
static void alltoallv_run(void)
{
	MPI_Alltoallv(in, turned, turned_at, MPI_FLOAT, out, turned, turned_at, MPI_FLOAT, MPI_COMM_WORLD);
}
static long alltoallv_wrong(int iteration)
{
	long wrong = 0, next = 0;
	for (int r = 0; r < ranks; r++) {
		values(r, iteration);
		turn(r); /* the block from r to this rank is as long as that from this rank to r */
		wrong += differ(out + next, turned[rank], turned_at[rank]);
		next += turned[rank];
	}
	turn(rank);
	return wrong;
}

static void reducescatter_fill(int iteration)
{
	fill_own(in, count * ranks, iteration);
	spoil(counts[rank]);
}
static void reducescatter_run(void) { MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long reducescatter_wrong(int iteration)
{
	sums(ranks - 1, iteration);
	return differ(out, counts[rank], at[rank]);
}
static void reducescatterv_run(void) { MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static void scatter_run(void) { MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void scatterv_run(void)
{
	MPI_Scatterv(in, counts, at, MPI_FLOAT, out, counts[rank], MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static long scatter_wrong(int iteration)
{
	values(0, iteration);
	return differ(out, counts[rank], at[rank]);
}

/* pingpong goes from rank 0 to rank 1 and back; its time is half of that. */
static void pingpong_fill(int iteration)
{
	fill_own(in, count, iteration);
	spoil(count);
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
static long pingpong_wrong(int iteration) { return rank < 2 ? broadcast_wrong(iteration) : 0; }

static void nothing_fill(int iteration) { (void)iteration; }
static void barrier_run(void) { MPI_Barrier(MPI_COMM_WORLD); }
static long nothing_wrong(int iteration) { return (void)iteration, 0; }

static const struct collective {
	const char *name;
	enum { WHOLE, EVEN, UNEVEN } blocks;
	void (*fill)(int iteration);
	void (*run)(void);
	long (*wrong)(int iteration);
} collectives[] = {
	{"allreduce", WHOLE, allreduce_fill, allreduce_run, allreduce_wrong},
	{"reduce", WHOLE, allreduce_fill, reduce_run, reduce_wrong},
	{"broadcast", WHOLE, allreduce_fill, broadcast_run, broadcast_wrong},
	{"scan", WHOLE, allreduce_fill, scan_run, scan_wrong},
	{"allgather", EVEN, allgather_fill, allgather_run, allgather_wrong},
	{"gather", EVEN, allgather_fill, gather_run, gather_wrong},
	{"scatter", EVEN, reducescatter_fill, scatter_run, scatter_wrong},
	{"alltoall", EVEN, alltoall_fill, alltoall_run, alltoall_wrong},
	{"reducescatter", EVEN, reducescatter_fill, reducescatter_run, reducescatter_wrong},
	{"allgatherv", UNEVEN, allgather_fill, allgatherv_run, allgather_wrong},
	{"gatherv", UNEVEN, allgather_fill, gatherv_run, gather_wrong},
	{"scatterv", UNEVEN, reducescatter_fill, scatterv_run, scatter_wrong},
	{"alltoallv", UNEVEN, alltoallv_fill, alltoallv_run, alltoallv_wrong},
	{"reducescatterv", UNEVEN, reducescatter_fill, reducescatterv_run, reducescatter_wrong},
	{"pingpong", WHOLE, pingpong_fill, pingpong_run, pingpong_wrong},
	{"barrier", WHOLE, nothing_fill, barrier_run, nothing_wrong},
	{"startup", WHOLE, nothing_fill, barrier_run, nothing_wrong},
};

/* ---- the method ---- */

static long checked_call(const struct collective *c, int iteration)
{
	c->fill(iteration);
	c->run();
	return c->wrong(iteration);
}

/* warm_up doubles the calls until they take a tenth of the budget, and returns how many calls fit into the whole budget. */
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

/* clock_us returns the time between two readings of the clock with nothing between them. */
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
	cut(c->blocks == UNEVEN);
	long all = 0, wrong = checked_call(c, 1);
	wrong += checked_call(c, 2);
	c->fill(0);
	int calls = warm_up(c, budget_us);
	double us = median_of_calls(c, calls);
	wrong += c->wrong(0);
	wrong += checked_call(c, 3);
	wrong += checked_call(c, 4);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("row %ld %.4f %ld\n", size, us, all), fflush(stdout);
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
