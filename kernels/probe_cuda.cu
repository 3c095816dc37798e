/* The probe's kernel for CUDA devices, and its C launcher. */
#include "probe.h"

#include <cuda_runtime.h>

namespace
{

/* Threads add to the result, which began with nothing seen: at and begin_ns at their largest, all else 0. */
struct Merge {
    peer_probe_result *result;

    PEER_FN void faults(uint32_t unseen, uint32_t at, uint32_t wrong, uint32_t torn) const
    {
        if (unseen != 0) {
            atomicOr(&result->unseen, unseen);
            atomicMin(&result->at, at);
        }
        if (wrong != 0)
            atomicOr(&result->wrong, wrong);
        if (torn != 0)
            atomicOr(&result->torn, torn);
    }

    PEER_FN void stage(uint32_t i, uint64_t begin, uint64_t end, uint64_t amount) const
    {
        atomicMin(&result->stage[i].begin_ns, (unsigned long long)begin);
        atomicMax(&result->stage[i].end_ns, (unsigned long long)end);
        atomicAdd(&result->stage[i].amount, (unsigned long long)amount);
    }
};

/* Two blocks are resident on a multiprocessor, so that the probe does not bound the grids of the calls. */
__global__ void __launch_bounds__(PEER_MAX_THREADS, 2)
    probe_kernel(const __grid_constant__ peer_call c, const __grid_constant__ peer_probe_step step,
                 peer_probe_result *result)
{
    Block b = block_of(c, 0, true);
    b.state.epoch = step.tag;
    probe(b, step, Merge{result});
}

} // namespace

extern "C" int peer_probe_cuda(const peer_call *call, const peer_probe_step *step, peer_probe_result *result,
                               void *stream)
{
    void *parameters[] = {const_cast<peer_call *>(call), const_cast<peer_probe_step *>(step), &result};
    return cudaLaunchKernel((const void *)probe_kernel, dim3(call->blocks), dim3(call->threads), parameters,
                            0, (cudaStream_t)stream);
}

extern "C" int peer_probe_preload_cuda(int *resident)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(resident, (const void *)probe_kernel,
                                                         PEER_MAX_THREADS, 0);
}
