/* cublas_on_host.h - the few calls of cuBLAS that the trainers make, by OpenBLAS, on the streams of
 * cuda_on_host.h (include that first): a product is enqueued, and reads its matrices when its turn comes. */
#ifndef CUBLAS_ON_HOST_H
#define CUBLAS_ON_HOST_H

#include <cblas.h>

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };

struct cublas_on_host {
    cudaStream_t stream;
};
typedef cublas_on_host *cublasHandle_t;

inline const char *cublasGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    default:
        return "the function failed to launch on the GPU";
    }
}

inline cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    void *memory; /* of the GPU, as the real one's workspace: so tests can let it fail */
    if (cudaMalloc(&memory, 1 << 16) != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
    cudaFree(memory);
    *handle = new cublas_on_host{nullptr};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

struct cublas_on_host_products {
    CBLAS_TRANSPOSE a_t, b_t;
    int m, n, k, lda, ldb, ldc, count;
    long long next_a, next_b, next_c;
    const float *a, *b;
    float *c, alpha, beta;
};

inline void cublas_on_host_run(void *argument) {
    cublas_on_host_products *p = static_cast<cublas_on_host_products *>(argument);
    for (int i = 0; i < p->count; i++)
        cblas_sgemm(CblasColMajor, p->a_t, p->b_t, p->m, p->n, p->k, p->alpha, p->a + i * p->next_a, p->lda,
                    p->b + i * p->next_b, p->ldb, p->beta, p->c + i * p->next_c, p->ldc);
    delete p;
}

inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t a_t, cublasOperation_t b_t,
                                                int m, int n, int k, const float *alpha, const float *a, int lda,
                                                long long next_a, const float *b, int ldb, long long next_b,
                                                const float *beta, float *c, int ldc, long long next_c, int count) {
    if (m < 0 || n < 0 || k < 0 || count < 0 || lda < (a_t == CUBLAS_OP_N ? m : k) ||
        ldb < (b_t == CUBLAS_OP_N ? k : n) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    CBLAS_TRANSPOSE transposed[] = {CblasNoTrans, CblasTrans};
    cublas_on_host_products *p =
        new cublas_on_host_products{transposed[a_t], transposed[b_t], m,      n, k, lda, ldb,    ldc,  count,
                                    next_a,          next_b,          next_c, a, b, c,   *alpha, *beta};
    if (cudaLaunchHostFunc(handle->stream, cublas_on_host_run, p) == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
    delete p;
    return CUBLAS_STATUS_EXECUTION_FAILED;
}

inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_t, cublasOperation_t b_t, int m, int n,
                                  int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                                  const float *beta, float *c, int ldc) {
    return cublasSgemmStridedBatched(handle, a_t, b_t, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

#endif
