/* The kernels of ops_kernels.cu, each put on a stream by one call. What they compute, ops.h says. */
#ifndef TP_ENCODER_OPS_KERNELS_H
#define TP_ENCODER_OPS_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t kernel_embed(float *x, const int *ids, int rows, int length, const float *word,
                         const float *position, const float *type, const float *gamma, const float *beta,
                         cudaStream_t stream);
cudaError_t kernel_add_bias(float *x, const float *bias, int rows, int columns, int gelu,
                            cudaStream_t stream);
cudaError_t kernel_add_norm(float *x, const float *sum, const float *bias, const float *gamma,
                            const float *beta, int rows, cudaStream_t stream);
cudaError_t kernel_pool(float *vectors, const float *x, const int *lengths, int batch, int length,
                        cudaStream_t stream);

/* Each of batch * heads * length rows of scores, of which the line's `lengths` are valid. */
cudaError_t kernel_softmax(float *scores, const int *lengths, int batch, int heads, int length,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
