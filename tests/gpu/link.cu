/* link.cu: how long one GPU's kernels take to write some bytes to pinned host memory and read others from it at once: the
 * least that an all-reduce through transport shm can take, whose ranks share that GPU's link. Nothing waits for anything here.
 *
 *   nvcc -O3 -arch=native -o link tests/gpu/link.cu && ./link
 *
 * Of n ranks and S bytes, oneshot on 2 ranks writes 2 S and reads 2 S; twoshot whose results are pulled writes n S, and
 * reads 2 (n-1) S. Printed: for each pair the median of RUNS, of the best of a few grids. */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define RUNS   9
#define BYTES  ((size_t)64 << 20) /* of each buffer */
#define BLOCKS 128

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "link: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

__device__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

/* The first `writers` blocks write, the others read. when: begin and end of each block. */
__global__ void both_ways(uint4 *to, const uint4 *from, uint4 *local, size_t nwrite, size_t nread,
                          uint32_t writers, uint64_t *when)
{
    const uint64_t began = now_ns();
    const bool writes = blockIdx.x < writers;
    const size_t first = (size_t)(writes ? blockIdx.x : blockIdx.x - writers) * blockDim.x + threadIdx.x;
    const size_t step = (size_t)(writes ? writers : gridDim.x - writers) * blockDim.x;
    if (writes) {
        for (size_t i = first; i < nwrite; i += step)
            to[i] = make_uint4((uint32_t)i, 1, 2, 3);
        __threadfence_system();
    } else {
        for (size_t i = first; i < nread; i += step)
            local[i] = from[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        when[2 * blockIdx.x] = began;
        when[2 * blockIdx.x + 1] = now_ns();
    }
}

int main()
{
    static const struct {
        size_t write, read; /* MiB */
        const char *of;
    } jobs[] = {{2, 2, "1 MiB, 2 ranks"},   {4, 6, "1 MiB, 4 ranks"}, {8, 14, "1 MiB, 8 ranks"},
                {32, 56, "4 MiB, 8 ranks"}, {0, 56, "reads alone"},   {56, 0, "writes alone"}};
    static const uint32_t grids[][3] = {{8, 32, 512},  {16, 64, 512}, {32, 64, 512}, {16, 64, 256},
                                        {32, 64, 256}, {8, 64, 256},  {8, 24, 512},  {64, 64, 256}};
    uint4 *to, *from, *local;
    uint64_t *when;
    must(cudaHostAlloc(&to, BYTES, cudaHostAllocMapped), "cudaHostAlloc");
    must(cudaHostAlloc(&from, BYTES, cudaHostAllocMapped), "cudaHostAlloc");
    must(cudaMalloc(&local, BYTES), "cudaMalloc");
    must(cudaMallocManaged(&when, 2 * BLOCKS * sizeof *when), "cudaMallocManaged");
    for (const auto &job : jobs) {
        const size_t nwrite = (job.write << 20) / sizeof(uint4), nread = (job.read << 20) / sizeof(uint4);
        double best = 1e30;
        for (const auto &grid : grids) {
            std::vector<double> us;
            for (int run = 0; run < RUNS; run++) {
                const uint32_t n = grid[0] + grid[1];
                both_ways<<<n, grid[2]>>>(to, from, local, nwrite, nread, grid[0], when);
                must(cudaDeviceSynchronize(), "the kernel");
                uint64_t began = UINT64_MAX, ended = 0;
                for (uint32_t i = 0; i < n; i++) {
                    began = std::min(began, when[2 * i]);
                    ended = std::max(ended, when[2 * i + 1]);
                }
                us.push_back((double)(ended - began) / 1e3);
            }
            std::sort(us.begin(), us.end());
            best = std::min(best, us[RUNS / 2]);
        }
        printf("write %2zu MiB, read %2zu MiB: %7.1f us, %5.1f GB/s  (%s)\n", job.write, job.read, best,
               (double)((job.write + job.read) << 20) / best / 1e3, job.of);
    }
    return 0;
}
