/* alltoall.c - the baseline of a move between processes: float32 {size, size} from rows to columns, by packing, a bare
 * MPI_Alltoallv, and unpacking. Prints the seconds of the slowest process, the best of several rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, count;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  if (argc != 3) return 2;
  size_t size = strtoull(argv[1], NULL, 10), part = size / (size_t)count;
  int rounds = atoi(argv[2]);
  size_t bytes = size * part * sizeof(float);
  char *rows = malloc(bytes), *columns = malloc(bytes), *out = malloc(bytes), *in = malloc(bytes);
  int *counts = calloc((size_t)count, sizeof *counts), *places = calloc((size_t)count, sizeof *places);
  memset(rows, 1, bytes);
  memset(columns, 2, bytes);
  memset(out, 3, bytes);
  memset(in, 4, bytes);
  size_t block = part * part * sizeof(float), run = part * sizeof(float), pitch = size * sizeof(float);
  for (int p = 0; p < count; p++) {
    counts[p] = (int)block;
    places[p] = (int)(block * (size_t)p);
  }
  double best = 1e9;
  for (int r = 0; r < rounds; r++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (size_t p = 0; p < (size_t)count; p++) /* {part, size} by columns */
      for (size_t i = 0; i < part; i++) memcpy(out + p * block + i * run, rows + i * pitch + p * run, run);
    MPI_Alltoallv(out, counts, places, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    memcpy(columns, in, bytes); /* {size, part}: the blocks stand one below the other */
    double mine = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (slowest < best) best = slowest;
  }
  if (rank == 0) printf("%.9f\n", best);
  MPI_Finalize();
  return 0;
}
