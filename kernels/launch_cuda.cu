/* The kernels for CUDA devices, and their C launchers. */
#include "dispatch.h"

#include <cuda_runtime.h>

namespace
{

/* A kernel takes the whole call as its parameter, in constant memory; an exchange takes its shares as a second
 * one. */

template <class T, class Op, uint32_t ALGORITHM, uint32_t PROTOCOL, class Kind>
__global__ void __launch_bounds__(PEER_MAX_THREADS, 1) allreduce_kernel(const __grid_constant__ peer_call c)
{
    wait_kernel_before();
    Block b = block_of(c, 0, Kind::PLAIN);
    any_allreduce<T, Op, ALGORITHM, PROTOCOL, Kind>(b, Op::of(c));
    if (!Kind::PLAIN)
        all_received();
}

template <class T, class Op, uint32_t PROTOCOL, class Kind>
__global__ void __launch_bounds__(PEER_MAX_THREADS, 1)
    combine_kernel(const __grid_constant__ peer_call c, const __grid_constant__ peer_exchange x)
{
    wait_kernel_before();
    Block b = block_of(c, 0, Kind::PLAIN);
    combine<T, Op, PROTOCOL, Kind>(b, x, Op::of(c));
    if (!Kind::PLAIN)
        all_received();
}

template <class T, uint32_t PROTOCOL, class Kind>
__global__ void __launch_bounds__(PEER_MAX_THREADS, 1)
    move_kernel(const __grid_constant__ peer_call c, const __grid_constant__ peer_exchange x)
{
    wait_kernel_before();
    Block b = block_of(c, 0, Kind::PLAIN);
    move<T, PROTOCOL, Kind>(b, x);
    all_received();
}

__global__ void __launch_bounds__(PEER_MAX_THREADS, 1) barrier_kernel(const __grid_constant__ peer_call c)
{
    wait_kernel_before();
    Block b = block_of(c, 0, true);
    barrier(b);
    all_received();
}

__global__ void fill_kernel(uint32_t *to, uint32_t word, size_t nwords)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nwords;
         i += gridDim.x * (size_t)blockDim.x)
        to[i] = word;
}

template <class T, class Op>
const void *reduction_of(const peer_call &c)
{
    const void *kernel = nullptr;
    with_algorithm(c.algorithm, c.protocol, [&](auto a, auto p) {
        with_kind<Op>(c, [&](auto kind) {
            constexpr uint32_t PROTOCOL = decltype(p)::VALUE, ALGORITHM = decltype(a)::VALUE;
            using Kind = KindUnder<PROTOCOL, decltype(kind)>;
            kernel =
                c.kernel == PEER_KERNEL_COMBINE
                    ? (const void *)combine_kernel<T, Op, PROTOCOL, Kind>
                    : (const void *)
                          allreduce_kernel<T, Op, ALGORITHM, PROTOCOL, KindFor<ALGORITHM, PROTOCOL, Kind>>;
        });
    });
    return kernel;
}

template <class T>
const void *movement_of(const peer_call &c)
{
    const void *kernel = nullptr;
    with_protocol(c.protocol, [&](auto p) {
        with_kind_of_move(c, [&](auto kind) {
            constexpr uint32_t PROTOCOL = decltype(p)::VALUE;
            kernel = (const void *)move_kernel<T, PROTOCOL, KindUnder<PROTOCOL, decltype(kind)>>;
        });
    });
    return kernel;
}

/* The kernel that serves a call with these fields. */
const void *kernel_of(const peer_call &c)
{
    const void *kernel = nullptr;
    if (c.kernel == PEER_KERNEL_BARRIER)
        return (const void *)barrier_kernel;
    if (c.kernel == PEER_KERNEL_MOVE)
        with_unit(c.unit, [&](auto type) { kernel = movement_of<typename decltype(type)::Type>(c); });
    else
        with_reduction(c.datatype, c.op, c.even, [&](auto type, auto op) {
            kernel = reduction_of<typename decltype(type)::Type, decltype(op)>(c);
        });
    return kernel;
}

/* body(kernel) for every kernel of the collectives; those that datatypes share come more than once. */
template <class Body>
void on_every_kernel(Body body)
{
    peer_call c = {};
    body((const void *)barrier_kernel);
    for (uint32_t i = 0; i < 8 * PEER_N_PROTOCOLS; i++) {
        c.protocol = i / 8;
        c.wire_ns = i / 4 % 2;
        c.npieces = 1 + i / 2 % 2;
        c.even = i % 2;
        c.kernel = PEER_KERNEL_MOVE;
        for (c.unit = 1; c.unit <= 4; c.unit += 3)
            body(kernel_of(c));
        for (c.datatype = 0; c.datatype < PEER_N_DATATYPES; c.datatype++)
            for (c.op = PEER_SUM; c.op <= PEER_PROD; c.op++) {
                c.kernel = PEER_KERNEL_COMBINE;
                body(kernel_of(c));
                c.kernel = PEER_KERNEL_ALLREDUCE;
                for (c.algorithm = 0; c.algorithm < PEER_N_ALGORITHMS; c.algorithm++)
                    body(kernel_of(c));
            }
    }
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

/* Kernels must have been compiled for compute capability 9.0 or later, or they don't wait for the one before; and graphs know
 * such launches since CUDA 12.3. */
extern "C" int peer_can_launch_early(bool *can)
{
    cudaFuncAttributes attributes = {};
    int driver = 0;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)barrier_kernel);
    if (error == cudaSuccess)
        error = cudaDriverGetVersion(&driver);
    *can = attributes.ptxVersion >= 90 && driver >= 12030;
    return error;
}

extern "C" int peer_launch_cuda(const struct peer_call *call, bool early, void *stream)
{
    void *parameters[] = {const_cast<peer_call *>(call), const_cast<peer_exchange *>(call->exchange)};
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(peer_grid(call));
    config.blockDim = dim3(call->threads);
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelExC(&config, kernel_of(*call), parameters);
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
    cudaError_t error = resident_blocks((const void *)fill_kernel, &least);
    on_every_kernel([&](const void *kernel) {
        if (error == cudaSuccess)
            error = resident_blocks(kernel, &least);
    });
    *resident = least;
    return error;
}
