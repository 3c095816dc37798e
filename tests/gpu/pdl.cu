/* pdl.cu: calls between kernels of a program that fill the GPU and are themselves launched by programmatic dependent launch.
 * Each reads what the call before it gave and writes what the next one takes, and lets the next begin at once; so kernels of
 * both sides wait on the GPU for those before them. Nothing may be read too early, nor may ranks that share a GPU keep each
 * other out.
 *
 *   nvcc -O2 -arch=native -Iinclude -o pdl tests/gpu/pdl.cu -lpeercoll -lmpi
 *   mpirun -np 4 ./pdl
 *
 * with the folders of peercoll and MPI, and CUDA's MPS where ranks share a GPU. Exit status 0 if all numbers are right. */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "peercoll.h"

#define ROUNDS  50  /* of a call and a kernel, in a graph */
#define REPLAYS 100 /* of the graph; as many rounds without it */
#define THREADS 1024

static int rank, size, blocks;

static void must(bool ok, const char *what, const char *why)
{
    if (!ok) {
        fprintf(stderr, "pdl: rank %d: %s: %s\n", rank, what, why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void cuda(cudaError_t error, const char *what)
{
    must(error == cudaSuccess, what, cudaGetErrorString(error));
}

/* x / n + 1, n being the ranks: what the all-reduce before made of x is x n. */
__global__ void __launch_bounds__(THREADS) next_numbers(int *x, int count, int n)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        x[i] = x[i] / n + 1;
}

static void round(PEER_Comm comm, int *x, int count, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    void *parameters[] = {&x, &count, &size};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const int status = PEER_Allreduce(PEER_IN_PLACE, x, count, PEER_INT32, PEER_SUM, comm, stream);
    must(status == PEER_SUCCESS, "PEER_Allreduce", PEER_Last_error());
    cuda(cudaLaunchKernelExC(&config, (const void *)next_numbers, parameters), "launching a kernel");
}

static void run(PEER_Comm comm, int count, cudaStream_t stream)
{
    std::vector<int> numbers(count);
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    int *x, status;
    cuda(cudaMalloc(&x, count * sizeof *x), "cudaMalloc");
    cuda(cudaMemset(x, 0, count * sizeof *x), "cudaMemset");
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a graph");
    for (int i = 0; i < ROUNDS; i++)
        round(comm, x, count, stream);
    cuda(cudaStreamEndCapture(stream, &captured), "capturing");
    cuda(cudaGraphInstantiateWithFlags(&graph, captured, 0), "instantiating");
    cuda(cudaDeviceSynchronize(), "before the first");
    for (int i = 0; i < REPLAYS; i++) {
        cuda(cudaGraphLaunch(graph, stream), "launching a graph");
        round(comm, x, count, stream);
    }
    cuda(cudaMemcpyAsync(numbers.data(), x, count * sizeof *x, cudaMemcpyDefault, stream), "copying");
    cuda(cudaStreamSynchronize(stream), "waiting");
    must(PEER_Comm_get_async_error(comm, &status) == PEER_SUCCESS && status == PEER_SUCCESS, "a call",
         PEER_Last_error());
    for (int number : numbers)
        must(number == REPLAYS * (ROUNDS + 1), "a number", number < REPLAYS * (ROUNDS + 1) ? "low" : "high");
    cuda(cudaGraphExecDestroy(graph), "freeing a graph");
    cuda(cudaGraphDestroy(captured), "freeing a graph");
    cuda(cudaFree(x), "cudaFree");
}

int main(int argc, char **argv)
{
    const int counts[] = {2, 10752, 300000};
    int device, multiprocessors;
    PEER_Comm comm;
    cudaStream_t stream;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    must(PEER_Select_device(MPI_COMM_WORLD, &device) == PEER_SUCCESS, "PEER_Select_device",
         PEER_Last_error());
    cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "asking the GPU");
    blocks = 4 * multiprocessors; /* twice what fits at once */
    must(PEER_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm) == PEER_SUCCESS, "PEER_Comm_create",
         PEER_Last_error());
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
    for (int count : counts)
        run(comm, count, stream);
    cuda(cudaStreamDestroy(stream), "destroying a stream");
    must(PEER_Comm_free(&comm) == PEER_SUCCESS, "PEER_Comm_free", PEER_Last_error());
    if (rank == 0)
        printf("passed\n");
    MPI_Finalize();
    return 0;
}
