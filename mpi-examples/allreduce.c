/* The smallest program: every rank contributes a vector, every rank gets the sum.
 *
 *   cc allreduce.c $(pkg-config --cflags --libs peercoll) -o allreduce && mpirun -np 4 ./allreduce
 *
 * It asks for the host device, so that it is the same on machines with and without a GPU. For GPUs: leave out
 * the info, allocate both buffers with cudaMalloc, and pass a stream. The call then returns at once, and the sum
 * is there after cudaStreamSynchronize(stream).
 */
#include <stdio.h>
#include <stdlib.h>

#include <peercoll.h>

enum { COUNT = 21504 };

/* Every call returns a status, and PEER_Last_error() says what went wrong and what helps. */
static void check(int status)
{
    if (status == PEER_SUCCESS)
        return;
    fprintf(stderr, "allreduce: %s\n", PEER_Last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    static float mine[COUNT], sum[COUNT];
    MPI_Info info;
    PEER_Comm comm;
    int rank, size, wrong = 0;

    MPI_Init(&argc, &argv);
    check(PEER_Select_device(MPI_COMM_WORLD, NULL)); /* one GPU for each rank; nothing where there is none */
    MPI_Info_create(&info);
    MPI_Info_set(info, "device", "host");
    check(PEER_Comm_create(MPI_COMM_WORLD, info, &comm));
    MPI_Info_free(&info);
    check(PEER_Comm_rank(comm, &rank));
    check(PEER_Comm_size(comm, &size));

    for (int i = 0; i < COUNT; i++)
        mine[i] = (float)(rank + i % 100);
    check(PEER_Allreduce(mine, sum, COUNT, PEER_FLOAT32, PEER_SUM, comm, NULL));
    for (int i = 0; i < COUNT; i++)
        wrong += sum[i] != (float)(size * (size - 1) / 2 + size * (i % 100));

    if (rank == 0 || wrong)
        printf("rank %d of %d: %d sums, %d of them wrong\n", rank, size, COUNT, wrong);
    check(PEER_Comm_free(&comm));
    MPI_Finalize();
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
