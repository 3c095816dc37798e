/* The kernels for CUDA devices, and their C launchers. */
#include "dispatch.h"

#include <cuda_runtime.h>

namespace
{

/* A kernel takes the whole call as its one parameter, in constant memory. */
using Kernel = void (*)(const peer_call);

__device__ Block block_of(const peer_call &c)
{
    return {c, place(c, 0), 0, 0, 0, 0, 0, 0};
}

template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL>
__global__ void __launch_bounds__(PEER_MAX_THREADS, 1) allreduce_kernel(const __grid_constant__ peer_call c)
{
    Block b = block_of(c);
    allreduce<T, Op, ALGORITHM, PROTOCOL>(b, Op{c.op});
}

__global__ void __launch_bounds__(PEER_MAX_THREADS, 1) barrier_kernel(const __grid_constant__ peer_call c)
{
    Block b = block_of(c);
    barrier(b);
}

__global__ void __launch_bounds__(PEER_MAX_THREADS, 1)
    probe_kernel(const __grid_constant__ peer_call c, uint32_t rounds, peer_probe_result *result)
{
    Block b = {c, place(c, 0), PEER_PROBE_EPOCH, 0, 0, 0, 0, 0};
    probe(b, rounds, [&](uint32_t unseen, uint32_t wrong, uint32_t torn) {
        atomicOr(&result->unseen, unseen);
        atomicOr(&result->wrong, wrong);
        atomicOr(&result->torn, torn);
    });
}

__global__ void fill_kernel(uint32_t *to, uint32_t word, size_t nwords)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nwords;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = word;
}

template <class Body>
void on_every_allreduce(Body body)
{
    for (uint32_t datatype = 0; datatype < PEER_N_DATATYPES; datatype++)
        for (uint32_t op = 0; op < PEER_N_OPS; op++)
            for (uint32_t algorithm = 0; algorithm < PEER_N_ALGORITHMS; algorithm++)
                for (uint32_t protocol = 0; protocol < PEER_N_PROTOCOLS; protocol++)
                    body(datatype, op, algorithm, protocol);
}

Kernel allreduce_kernel_of(uint32_t datatype, uint32_t op, uint32_t algorithm, uint32_t protocol)
{
    Kernel kernel = nullptr;
    with_reduction(datatype, op, [&](auto type, auto operation) {
        with_algorithm(algorithm, protocol, [&](auto a, auto p) {
            using T = typename decltype(type)::Type;
            kernel = allreduce_kernel<T, decltype(operation), decltype(a)::VALUE, decltype(p)::VALUE>;
        });
    });
    return kernel;
}

/* The most blocks of the largest size that fit on a multiprocessor, or an error; loads the kernel. */
cudaError_t resident_blocks(const void *kernel, int *least)
{
    int blocks = 0;
    cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, PEER_MAX_THREADS, 0);
    if (error == cudaSuccess && blocks < *least)
        *least = blocks;
    return error;
}

} // namespace

extern "C" int peer_launch_cuda(const struct peer_call *call, void *stream)
{
    Kernel kernel = call->collective == PEER_COLL_BARRIER
                        ? barrier_kernel
                        : allreduce_kernel_of(call->datatype, call->op, call->algorithm, call->protocol);
    void *parameters[] = {const_cast<peer_call *>(call)};
    return cudaLaunchKernel((const void *)kernel, dim3(call->blocks), dim3(call->threads), parameters, 0,
                            (cudaStream_t)stream);
}

extern "C" int peer_probe_cuda(const struct peer_call *call, uint32_t rounds,
                               struct peer_probe_result *result, void *stream)
{
    void *parameters[] = {const_cast<peer_call *>(call), &rounds, &result};
    return cudaLaunchKernel((const void *)probe_kernel, dim3(1), dim3(call->threads), parameters, 0,
                            (cudaStream_t)stream);
}

extern "C" int peer_fill_cuda(void *to, uint32_t word, size_t nwords, void *stream)
{
    uint32_t *words = (uint32_t *)to;
    void *parameters[] = {&words, &word, &nwords};
    return cudaLaunchKernel((const void *)fill_kernel, dim3(PEER_MAX_BLOCKS), dim3(PEER_MAX_THREADS),
                            parameters, 0, (cudaStream_t)stream);
}

extern "C" uint32_t peer_vector_cuda(void)
{
    return PEER_VECTOR;
}

extern "C" int peer_preload_cuda(int *resident)
{
    int least = PEER_MAX_BLOCKS;
    cudaError_t error = resident_blocks((const void *)barrier_kernel, &least);
    if (error == cudaSuccess)
        error = resident_blocks((const void *)probe_kernel, &least);
    if (error == cudaSuccess)
        error = resident_blocks((const void *)fill_kernel, &least);
    on_every_allreduce([&](uint32_t datatype, uint32_t op, uint32_t algorithm, uint32_t protocol) {
        if (error == cudaSuccess)
            error =
                resident_blocks((const void *)allreduce_kernel_of(datatype, op, algorithm, protocol), &least);
    });
    *resident = least;
    return error;
}
