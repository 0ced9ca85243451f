/* allreduce.c - the baseline of a sum over processes: MPI_Allreduce of so many float32, in place. Prints the seconds of
 * the slowest process, the best of several rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 3) return 2;
  int count = atoi(argv[1]), rounds = atoi(argv[2]);
  float *data = malloc((size_t)count * sizeof *data);
  memset(data, 0, (size_t)count * sizeof *data);
  double best = 1e9;
  for (int r = 0; r < rounds; r++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mine = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (slowest < best) best = slowest;
  }
  if (rank == 0) printf("%.9f\n", best);
  MPI_Finalize();
  return 0;
}
