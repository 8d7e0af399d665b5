/*
 * mpi.c - the smallest program of an MPI library: all ranks meet in a barrier, and rank 0 prints a line.
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0) {
		puts("met");
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
