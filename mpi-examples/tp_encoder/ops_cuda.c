/* ops_cuda.c: the maths of a layer on a GPU: matrix products by cuBLAS, the rest by kernels (ops.h, ops_kernels.cu). */
#include "config.h"
#include "ops.h"
#include "tp_encoder.h"

#ifndef HAVE_CUBLAS

struct ops *ops_cuda_open(PEER_Stream stream)
{
    (void)stream;
    fail("built without cuBLAS: install it with the CUDA toolkit and build again, or set PEER_DEVICE=host");
}

#else

    #include "ops_kernels.h"

    #include <cublas_v2.h>
    #include <math.h>
    #include <stdlib.h>

    /* What cuBLAS asks for on Hopper. Given to it beforehand, since it can't allocate while a graph is captured. */
    #define WORKSPACE ((size_t)32 << 20)

struct cuda_ops {
    struct ops ops; /* the first, so that one is the other's address */
    cudaStream_t stream;
    cublasHandle_t cublas;
    void *workspace;
};

static void need(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fail("%s failed: %s", what, cudaGetErrorString(error));
}

static void need_cublas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        fail("%s failed: %s", what, cublasGetStatusString(status));
}

static struct cuda_ops *cuda(struct ops *ops)
{
    return (struct cuda_ops *)ops;
}

static void cuda_embed(struct ops *ops, float *x, const struct batch *batch, const float *word,
                       const float *position, const float *type, struct norm norm)
{
    need(kernel_embed(x, batch->ids, batch->batch * batch->length, batch->length, word, position, type,
                      norm.gamma, norm.beta, cuda(ops)->stream),
         "the embeddings' kernel");
}

/* cuBLAS takes matrices by columns, and so sees the transpose of each of ours: y' = weight x'. */
static void cuda_linear(struct ops *ops, float *y, const float *x, const float *weight, int rows, int in,
                        int out)
{
    const float one = 1, zero = 0;

    need_cublas(cublasSgemm(cuda(ops)->cublas, CUBLAS_OP_T, CUBLAS_OP_N, out, rows, in, &one, weight, in, x,
                            in, &zero, y, out),
                "a matrix product");
}

static void cuda_add_bias(struct ops *ops, float *x, const float *bias, int rows, int columns)
{
    need(kernel_add_bias(x, bias, rows, columns, 0, cuda(ops)->stream), "the bias' kernel");
}

static void cuda_add_bias_gelu(struct ops *ops, float *x, const float *bias, int rows, int columns)
{
    need(kernel_add_bias(x, bias, rows, columns, 1, cuda(ops)->stream), "the GELU's kernel");
}

/* Lines are one stride apart and heads another, and cuBLAS knows one: so a call for each head, of all lines. Scores are
 * batch x heads x length x length. */
static void cuda_attention(struct ops *ops, float *context, const float *qkv, float *scores,
                           const struct batch *batch, int heads)
{
    const float one = 1, zero = 0, scale = 1 / sqrtf(HEAD_WIDTH);
    int length = batch->length, width = heads * HEAD_WIDTH;
    long long square = (long long)length * length, line = (long long)length * width;

    for (int head = 0; head < heads; head++) {
        const float *q = qkv + head * HEAD_WIDTH, *k = q + width;

        need_cublas(cublasSgemmStridedBatched(cuda(ops)->cublas, CUBLAS_OP_T, CUBLAS_OP_N, length, length,
                                              HEAD_WIDTH, &scale, k, 3 * width, 3 * line, q, 3 * width,
                                              3 * line, &zero, scores + head * square, length, heads * square,
                                              batch->batch),
                    "the product of queries and keys");
    }
    need(kernel_softmax(scores, batch->lengths, batch->batch, heads, length, cuda(ops)->stream),
         "the softmax kernel");
    for (int head = 0; head < heads; head++) {
        const float *v = qkv + 2 * width + head * HEAD_WIDTH;

        need_cublas(cublasSgemmStridedBatched(cuda(ops)->cublas, CUBLAS_OP_N, CUBLAS_OP_N, HEAD_WIDTH, length,
                                              length, &one, v, 3 * width, 3 * line, scores + head * square,
                                              length, heads * square, &zero, context + head * HEAD_WIDTH,
                                              width, line, batch->batch),
                    "the product of weights and values");
    }
}

static void cuda_add_norm(struct ops *ops, float *x, const float *sum, const float *bias, struct norm norm,
                          int rows)
{
    need(kernel_add_norm(x, sum, bias, norm.gamma, norm.beta, rows, cuda(ops)->stream),
         "the layer norm's kernel");
}

static void cuda_pool(struct ops *ops, float *vectors, const float *x, const struct batch *batch)
{
    need(kernel_pool(vectors, x, batch->lengths, batch->batch, batch->length, cuda(ops)->stream),
         "the pooling's kernel");
}

static void cuda_clear(struct ops *ops, float *x, size_t count)
{
    need(cudaMemsetAsync(x, 0, count * sizeof *x, cuda(ops)->stream), "clearing memory");
}

static void *cuda_host_alloc(size_t bytes)
{
    void *memory;
    cudaError_t error = cudaMallocHost(&memory, bytes);

    if (error != cudaSuccess)
        fail("no %zu bytes of pinned host memory: %s; a smaller --batch needs less", bytes,
             cudaGetErrorString(error));
    return memory;
}

static void cuda_host_free(void *memory)
{
    need(cudaFreeHost(memory), "freeing pinned host memory");
}

static void cuda_close(struct ops *ops)
{
    need_cublas(cublasDestroy(cuda(ops)->cublas), "ending cuBLAS");
    need(cudaFree(cuda(ops)->workspace), "freeing GPU memory");
    free(ops);
}

struct ops *ops_cuda_open(PEER_Stream stream)
{
    struct cuda_ops *ops = allocate(sizeof *ops);

    ops->ops = (struct ops){.name = "cuBLAS",
                            .close = cuda_close,
                            .host_alloc = cuda_host_alloc,
                            .host_free = cuda_host_free,
                            .embed = cuda_embed,
                            .linear = cuda_linear,
                            .add_bias = cuda_add_bias,
                            .add_bias_gelu = cuda_add_bias_gelu,
                            .attention = cuda_attention,
                            .add_norm = cuda_add_norm,
                            .pool = cuda_pool,
                            .clear = cuda_clear};
    ops->stream = stream;
    need_cublas(cublasCreate(&ops->cublas), "starting cuBLAS");
    need_cublas(cublasSetMathMode(ops->cublas, CUBLAS_DEFAULT_MATH), "asking for fp32"); /* and no TF32 */
    /* The stream first: setting it takes the workspace away. */
    need_cublas(cublasSetStream(ops->cublas, stream), "giving cuBLAS the stream");
    need(cudaMalloc(&ops->workspace, WORKSPACE), "allocating cuBLAS's workspace");
    need_cublas(cublasSetWorkspace(ops->cublas, ops->workspace, WORKSPACE), "giving cuBLAS its workspace");
    return &ops->ops;
}

#endif
