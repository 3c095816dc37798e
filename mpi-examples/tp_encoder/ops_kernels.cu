/* ops_kernels.cu: what a layer does besides matrix products, on a GPU (ops_kernels.h). They are plain on purpose: a row
 * of HIDDEN numbers has a block with a thread for each number, a row of scores has a warp.
 *
 * Every reduction adds in a fixed order, so equal inputs give the same bits on all ranks and in every run. */
#include "ops_kernels.h"
#include "tp_encoder.h"

#define WARP         32
#define WARPS        (HIDDEN / WARP)
#define NORM_EPSILON 1e-12f /* the model's */

/* On all lanes, since each adds the same pairs (a+b is b+a). */
static __device__ float warp_sum(float x)
{
    for (int other = WARP / 2; other > 0; other /= 2)
        x += __shfl_xor_sync(0xffffffff, x, other);
    return x;
}

static __device__ float warp_max(float x)
{
    for (int other = WARP / 2; other > 0; other /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, other));
    return x;
}

/* Over a block of HIDDEN threads, on all of them. */
static __device__ float block_sum(float x)
{
    __shared__ float warps[WARPS];
    float sum = 0;

    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        sum += warps[i];
    __syncthreads(); /* before a next call writes */
    return sum;
}

/* Layer norm of the row whose number i = threadIdx.x is x; returns that of the result. */
static __device__ float normalise(float x, const float *gamma, const float *beta)
{
    float mean = block_sum(x) / HIDDEN;
    float variance = block_sum((x - mean) * (x - mean)) / HIDDEN;

    return (x - mean) / sqrtf(variance + NORM_EPSILON) * gamma[threadIdx.x] + beta[threadIdx.x];
}

static __global__ void __launch_bounds__(HIDDEN)
    embed(float *x, const int *ids, int length, const float *word, const float *position, const float *type,
          const float *gamma, const float *beta)
{
    size_t row = blockIdx.x;
    int i = threadIdx.x;
    float sum = word[(size_t)ids[row] * HIDDEN + i] + type[i] + position[row % length * HIDDEN + i];

    x[row * HIDDEN + i] = normalise(sum, gamma, beta);
}

static __global__ void __launch_bounds__(HIDDEN)
    add_norm(float *x, const float *sum, const float *bias, const float *gamma, const float *beta)
{
    size_t at = (size_t)blockIdx.x * HIDDEN + threadIdx.x;

    x[at] = normalise(x[at] + (sum[at] + bias[threadIdx.x]), gamma, beta);
}

static __global__ void add_bias(float *x, const float *bias, size_t count, int columns, int gelu)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float t;

    if (at >= count)
        return;
    t = x[at] + bias[at % columns];
    x[at] = gelu ? t * 0.5f * (1 + erff(t * 0.70710678118654752f)) : t;
}

/* A warp for each row; rows_per_line is heads * length. */
static __global__ void softmax(float *scores, const int *lengths, int rows, int rows_per_line, int length)
{
    int row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP), lane = threadIdx.x % WARP, valid;
    float max = -INFINITY, sum = 0;

    if (row >= rows) /* a whole warp */
        return;
    valid = lengths[row / rows_per_line];
    scores += (size_t)row * length;
    for (int j = lane; j < valid; j += WARP)
        max = fmaxf(max, scores[j]);
    max = warp_max(max);
    for (int j = lane; j < valid; j += WARP)
        sum += scores[j] = expf(scores[j] - max);
    sum = warp_sum(sum);
    for (int j = lane; j < length; j += WARP)
        scores[j] = j < valid ? scores[j] / sum : 0;
}

/* A block for each line. */
static __global__ void __launch_bounds__(HIDDEN)
    pool(float *vectors, const float *x, const int *lengths, int length)
{
    size_t line = blockIdx.x;
    int valid = lengths[line];
    float mean = 0;

    x += line * length * HIDDEN + threadIdx.x;
    for (int token = 0; token < valid; token++)
        mean += x[(size_t)token * HIDDEN];
    mean /= valid;
    vectors[line * HIDDEN + threadIdx.x] = mean / sqrtf(block_sum(mean * mean));
}

/* ---- Launches ------------------------------------------------------------------------------------------------- */

cudaError_t kernel_embed(float *x, const int *ids, int rows, int length, const float *word,
                         const float *position, const float *type, const float *gamma, const float *beta,
                         cudaStream_t stream)
{
    embed<<<rows, HIDDEN, 0, stream>>>(x, ids, length, word, position, type, gamma, beta);
    return cudaGetLastError();
}

cudaError_t kernel_add_norm(float *x, const float *sum, const float *bias, const float *gamma,
                            const float *beta, int rows, cudaStream_t stream)
{
    add_norm<<<rows, HIDDEN, 0, stream>>>(x, sum, bias, gamma, beta);
    return cudaGetLastError();
}

cudaError_t kernel_add_bias(float *x, const float *bias, int rows, int columns, int gelu, cudaStream_t stream)
{
    size_t count = (size_t)rows * columns;

    add_bias<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(x, bias, count, columns, gelu);
    return cudaGetLastError();
}

cudaError_t kernel_softmax(float *scores, const int *lengths, int batch, int heads, int length,
                           cudaStream_t stream)
{
    int rows = batch * heads * length, rows_per_block = 256 / WARP;

    softmax<<<(rows + rows_per_block - 1) / rows_per_block, 256, 0, stream>>>(scores, lengths, rows,
                                                                              heads * length, length);
    return cudaGetLastError();
}

cudaError_t kernel_pool(float *vectors, const float *x, const int *lengths, int batch, int length,
                        cudaStream_t stream)
{
    pool<<<batch, HIDDEN, 0, stream>>>(vectors, x, lengths, length);
    return cudaGetLastError();
}
