/* Logits, losses and gradients of the recommendation models on a GPU. See model.h for what they are, model.c
 * for the same on host cores.
 *
 *   layers     cuBLAS; bias and relu, relu's mask, bias' gradients: a thread a number, a block 32 columns
 *   pairs      tiles of 32 x 32 in shared memory, as for a matrix product; the same for their gradients
 *   cross      a warp a sample: a cross layer, and its gradients
 *   logits     a warp a sample: linear part, factorization machine, loss and its slope
 *   total      one block: the loss
 */
#include "trainers/common/program_gpu.h"

#define TRAINING_CUDA
#include "trainers/dlrm/dlrm_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DLRM_BLOCK     256 /* threads, of every kernel */
#define DLRM_WARPS     (DLRM_BLOCK / 32)
#define DLRM_TILE      32                       /* rows, columns and depth of a tile */
#define DLRM_TILE_ROWS (DLRM_TILE / DLRM_WARPS) /* of each warp */

/* What the kernels see of a step. */
typedef struct dlrm_view {
    dlrm_kind kind;
    uint32_t numbers, features, dim, vectors;
    uint32_t n;     /* samples */
    int has_bottom; /* the first vector is the bottom's output, which lies in the top's input */
    float scale;
    const float *number, *label, *rows, *linear;
    float *row_gradients, *linear_gradients;
    float *in, *in_gradient; /* of the top: [n][stride] */
    size_t stride, pairs_at; /* where in them the pairs begin */
    float *bottom_gradient;  /* [n][dim] */
    float *sum;              /* of rows: [n][dim] */
    float *cross;            /* dcn: [n], the cross layers' part of the logit */
    float *logit, *slope, *loss;
} dlrm_view;

/* ---- Layers ---------------------------------------------------------------------------------------------- */

/* Number i of a grid that has a thread for each number, or fewer. */
static __device__ size_t dlrm_first() {
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ size_t dlrm_threads() {
    return (size_t)gridDim.x * blockDim.x;
}

static __global__ void dlrm_bias_kernel(uint32_t n, uint32_t width, const float *bias, int relu, float *y,
                                        size_t stride) {
    for (size_t i = dlrm_first(); i < (size_t)n * width; i += dlrm_threads()) {
        size_t at = i / width * stride + i % width;
        float x = y[at] + bias[i % width];
        y[at] = relu && x < 0.0f ? 0.0f : x;
    }
}

/* gradient[n][width] plus `add`, if given, where the relu has not cut off. */
static __global__ void dlrm_mask_kernel(uint32_t n, uint32_t width, const float *y, const float *add, size_t stride,
                                        float *gradient) {
    for (size_t i = dlrm_first(); i < (size_t)n * width; i += dlrm_threads()) {
        size_t at = i / width * stride + i % width;
        float g = add ? gradient[i] + add[at] : gradient[i];
        gradient[i] = y[at] <= 0.0f ? 0.0f : g;
    }
}

/* sum[width] of x[n][width], each row weighted where there are weights. A block has 32 columns, a warp every eighth
 * row. */
static __global__ void dlrm_column_sums_kernel(uint32_t n, uint32_t width, const float *x, const float *weight,
                                               float *sum) {
    FRUGAL_SHARED(float, part, DLRM_BLOCK);
    uint32_t column = blockIdx.x * 32 + threadIdx.x % 32;
    float own = 0;
    for (size_t i = threadIdx.x / 32; i < n && column < width; i += DLRM_WARPS)
        own += weight ? weight[i] * x[i * width + column] : x[i * width + column];
    part[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x >= 32 || column >= width) return;
    float all = 0;
    for (uint32_t i = 0; i < DLRM_WARPS; i++) all += part[i * 32 + threadIdx.x];
    sum[column] = all;
}

/* ---- Pairs ----------------------------------------------------------------------------------------------- */

/* The vectors of a sample that are paired. */
static __device__ const float *dlrm_vector(const dlrm_view *v, size_t sample, uint32_t vector) {
    if (v->has_bottom && !vector) return v->in + sample * v->stride;
    return v->rows + ((size_t)(vector - (uint32_t)v->has_bottom) * v->n + sample) * v->dim;
}

/* Where in the top's input the product of vectors i and j < i stands. */
static __device__ size_t dlrm_pair(const dlrm_view *v, size_t sample, uint32_t i, uint32_t j) {
    return sample * v->stride + v->pairs_at + (size_t)i * (i - 1) / 2 + j;
}

/* The tile of a block: its sample, and its place in a grid of rows by columns of tiles. */
typedef struct dlrm_tile {
    size_t sample;
    uint32_t row, column;
} dlrm_tile;

static __device__ dlrm_tile dlrm_tile_of(uint32_t rows, uint32_t columns) {
    uint32_t down = (rows + DLRM_TILE - 1) / DLRM_TILE, across = (columns + DLRM_TILE - 1) / DLRM_TILE;
    dlrm_tile tile;
    tile.sample = blockIdx.x / (down * across);
    tile.row = blockIdx.x / across % down * DLRM_TILE;
    tile.column = blockIdx.x % across * DLRM_TILE;
    return tile;
}

/* to[DLRM_TILE][DLRM_TILE + 1]: vectors from `first` on, their numbers from k on; zeros beyond. By the whole block. */
template <typename A>
static __device__ void dlrm_load_vectors(const dlrm_view *v, size_t sample, uint32_t first, uint32_t k, A &to) {
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x / 32; i < DLRM_TILE; i += DLRM_WARPS) {
        int there = first + i < v->vectors && k + lane < v->dim;
        to[i * (DLRM_TILE + 1) + lane] = there ? dlrm_vector(v, sample, first + i)[k + lane] : 0.0f;
    }
}

/* The dot products, into the top's input. */
static __global__ void dlrm_pairs_kernel(dlrm_view v) {
    FRUGAL_SHARED(float, a, DLRM_TILE *(DLRM_TILE + 1));
    FRUGAL_SHARED(float, b, DLRM_TILE *(DLRM_TILE + 1));
    dlrm_tile tile = dlrm_tile_of(v.vectors, v.vectors);
    uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * DLRM_TILE_ROWS;
    float sum[DLRM_TILE_ROWS] = {0};
    if (tile.column > tile.row) return; /* the whole block */
    for (uint32_t k = 0; k < v.dim; k += DLRM_TILE) {
        dlrm_load_vectors(&v, tile.sample, tile.row, k, a);
        dlrm_load_vectors(&v, tile.sample, tile.column, k, b);
        __syncthreads();
        for (uint32_t c = 0; c < DLRM_TILE && k + c < v.dim; c++) {
            float y = b[lane * (DLRM_TILE + 1) + c];
            for (uint32_t r = 0; r < DLRM_TILE_ROWS; r++) sum[r] += a[(first + r) * (DLRM_TILE + 1) + c] * y;
        }
        __syncthreads();
    }
    for (uint32_t r = 0; r < DLRM_TILE_ROWS; r++) {
        uint32_t i = tile.row + first + r, j = tile.column + lane;
        if (i < v.vectors && j < i) v.in[dlrm_pair(&v, tile.sample, i, j)] = sum[r];
    }
}

/* to: the products' gradients as a symmetric matrix with zeros on its diagonal, the tile at (row, column). */
template <typename A>
static __device__ void dlrm_load_square(const dlrm_view *v, size_t sample, uint32_t row, uint32_t column, A &to) {
    uint32_t j = column + threadIdx.x % 32;
    for (uint32_t r = threadIdx.x / 32; r < DLRM_TILE; r += DLRM_WARPS) {
        uint32_t i = row + r;
        float x = 0;
        if (i < v->vectors && j < v->vectors && i != j)
            x = v->in_gradient[i > j ? dlrm_pair(v, sample, i, j) : dlrm_pair(v, sample, j, i)];
        to[r * (DLRM_TILE + 1) + threadIdx.x % 32] = x;
    }
}

/* The vectors' gradients: that matrix times the vectors. */
static __global__ void dlrm_pairs_back_kernel(dlrm_view v) {
    FRUGAL_SHARED(float, a, DLRM_TILE *(DLRM_TILE + 1));
    FRUGAL_SHARED(float, b, DLRM_TILE *(DLRM_TILE + 1));
    dlrm_tile tile = dlrm_tile_of(v.vectors, v.dim);
    uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * DLRM_TILE_ROWS, k = tile.column + lane;
    float sum[DLRM_TILE_ROWS] = {0};
    for (uint32_t j = 0; j < v.vectors; j += DLRM_TILE) {
        dlrm_load_square(&v, tile.sample, tile.row, j, a);
        dlrm_load_vectors(&v, tile.sample, j, tile.column, b);
        __syncthreads();
        for (uint32_t c = 0; c < DLRM_TILE && j + c < v.vectors; c++) {
            float y = b[c * (DLRM_TILE + 1) + lane];
            for (uint32_t r = 0; r < DLRM_TILE_ROWS; r++) sum[r] += a[(first + r) * (DLRM_TILE + 1) + c] * y;
        }
        __syncthreads();
    }
    for (uint32_t r = 0; r < DLRM_TILE_ROWS; r++) {
        uint32_t i = tile.row + first + r;
        if (i >= v.vectors || k >= v.dim) continue;
        if (v.has_bottom && !i)
            v.bottom_gradient[tile.sample * v.dim + k] = sum[r];
        else
            v.row_gradients[((size_t)(i - (uint32_t)v.has_bottom) * v.n + tile.sample) * v.dim + k] = sum[r];
    }
}

/* ---- Numbers and rows as the top's input ------------------------------------------------------------------- */

static __global__ void dlrm_gather_kernel(dlrm_view v) {
    for (size_t i = dlrm_first(); i < v.n * v.stride; i += dlrm_threads()) {
        size_t sample = i / v.stride, column = i % v.stride;
        if (column < v.numbers)
            v.in[i] = v.number[sample * v.numbers + column];
        else {
            size_t at = column - v.numbers;
            v.in[i] = v.rows[(at / v.dim * v.n + sample) * v.dim + at % v.dim];
        }
    }
}

static __global__ void dlrm_rows_back_kernel(dlrm_view v) {
    for (size_t i = dlrm_first(); i < (size_t)v.features * v.n * v.dim; i += dlrm_threads()) {
        size_t k = i % v.dim, sample = i / v.dim % v.n, feature = i / v.dim / v.n;
        float g = v.in_gradient[sample * v.stride + v.numbers + feature * v.dim + k];
        if (v.kind == DLRM_DEEPFM) g += v.slope[sample] * (v.sum[sample * v.dim + k] - v.rows[i]);
        v.row_gradients[i] = g;
    }
}

static __global__ void dlrm_linear_back_kernel(dlrm_view v) {
    for (size_t i = dlrm_first(); i < (size_t)v.features * v.n; i += dlrm_threads())
        v.linear_gradients[i] = v.slope[i % v.n];
}

/* ---- Cross layers ---------------------------------------------------------------------------------------- */

/* One of them. Matrices are [n][width of the top's input]. */
typedef struct dlrm_cross_layer {
    const float *x, *weight, *bias;
    float *product, *to; /* product[n]; to NULL: the product alone */
    float *gradient;     /* of what comes out; becomes that of what comes in */
    float *slope;        /* [n]: of the products */
    int first;           /* x is x_0 */
} dlrm_cross_layer;

/* The sum over the lanes, for all of them. */
static __device__ float dlrm_warp_total(float value) {
    return __shfl_sync(PROGRAM_ALL_LANES, program_warp_sum(value), 0);
}

static __global__ void dlrm_cross_kernel(dlrm_view v, dlrm_cross_layer c) {
    size_t sample = dlrm_first() / 32, at = sample * v.stride;
    uint32_t lane = threadIdx.x % 32;
    if (sample >= v.n) return; /* a whole warp */
    float sum = 0;
    for (size_t k = lane; k < v.stride; k += 32) sum += c.x[at + k] * c.weight[k];
    sum = dlrm_warp_total(sum);
    if (!lane) c.product[sample] = sum;
    for (size_t k = lane; k < v.stride && c.to; k += 32) c.to[at + k] = v.in[at + k] * sum + c.bias[k] + c.x[at + k];
}

/* The gradient of the last layer's output. */
static __global__ void dlrm_cross_begin_kernel(dlrm_view v, const float *out, float *gradient) {
    for (size_t i = dlrm_first(); i < v.n * v.stride; i += dlrm_threads())
        gradient[i] = v.slope[i / v.stride] * out[i % v.stride];
}

static __global__ void dlrm_cross_back_kernel(dlrm_view v, dlrm_cross_layer c) {
    size_t sample = dlrm_first() / 32, at = sample * v.stride;
    uint32_t lane = threadIdx.x % 32;
    if (sample >= v.n) return; /* a whole warp */
    float slope = 0, product = c.product[sample];
    for (size_t k = lane; k < v.stride; k += 32) slope += c.gradient[at + k] * v.in[at + k];
    slope = dlrm_warp_total(slope);
    if (!lane) c.slope[sample] = slope;
    for (size_t k = lane; k < v.stride; k += 32) {
        float g = c.gradient[at + k], before = g + slope * c.weight[k];
        c.gradient[at + k] = before;
        v.in_gradient[at + k] += product * g + (c.first ? before : 0.0f);
    }
}

/* ---- Logits and losses ----------------------------------------------------------------------------------- */

/* A lane's share of the linear part and of the factorization machine. weight[numbers]: the linear part's. */
static __device__ float dlrm_wide(const dlrm_view *v, const float *weight, size_t sample, uint32_t lane) {
    float sum = 0, squares = 0;
    for (uint32_t k = lane; k < v->numbers; k += 32) sum += v->number[sample * v->numbers + k] * weight[k];
    for (uint32_t f = lane; f < v->features; f += 32) sum += v->linear[(size_t)f * v->n + sample];
    for (uint32_t k = lane; v->kind == DLRM_DEEPFM && k < v->dim; k += 32) {
        float s = 0, q = 0;
        for (uint32_t f = 0; f < v->features; f++) {
            float x = v->rows[((size_t)f * v->n + sample) * v->dim + k];
            s += x;
            q += x * x;
        }
        v->sum[sample * v->dim + k] = s;
        squares += s * s - q;
    }
    return sum + 0.5f * squares;
}

/* A warp per sample: its logit (with the top's output), its loss, and the slope of the loss. */
static __global__ void dlrm_logits_kernel(dlrm_view v, const float *weight) {
    size_t sample = dlrm_first() / 32;
    uint32_t lane = threadIdx.x % 32;
    if (sample >= v.n) return; /* a whole warp */
    int linear = v.kind == DLRM_WIDE_DEEP || v.kind == DLRM_DEEPFM;
    float wide = linear ? program_warp_sum(dlrm_wide(&v, weight, sample, lane)) : 0.0f;
    if (lane) return;
    float x = v.logit[sample] + (v.kind == DLRM_DCN ? v.cross[sample] : wide), y = v.label[sample];
    float small = expf(-fabsf(x)), inverse = 1.0f / (1.0f + small);
    v.loss[sample] = ((x < 0.0f ? 0.0f : x) - y * x) + log1pf(small);
    v.slope[sample] = v.scale * ((x < 0.0f ? small * inverse : inverse) - y);
}

/* One block: the sum of the losses. */
static __global__ void dlrm_total_kernel(dlrm_view v, double *total) {
    FRUGAL_SHARED(double, part, DLRM_BLOCK);
    double sum = 0;
    for (size_t i = threadIdx.x; i < v.n; i += DLRM_BLOCK) sum += (double)v.loss[i];
    program_block_total<DLRM_BLOCK>(part, sum, total);
}

/* ---- The host's side: memory ----------------------------------------------------------------------------- */

/* What is kept of a step, beside numbers and labels, from the copy until the step is computed. */
typedef struct dlrm_slot {
    uint32_t n;
    cudaEvent_t copied, computed;
} dlrm_slot;

/* An MLP as it runs: at[0] is its input, at[i + 1] what layer i puts out, [samples][stride]. */
typedef struct dlrm_cuda_mlp {
    uint32_t n;
    const dlrm_layer *layer;
    float *at[DLRM_MOST_LAYERS + 2];
    size_t stride[DLRM_MOST_LAYERS + 2];
} dlrm_cuda_mlp;

struct dlrm_cuda {
    program_gpu gpu; /* computes on its stream */
    dlrm_model model;
    dlrm_layers layers;
    cudaStream_t copies, back; /* brings numbers and labels; brings gradients back */
    cublasHandle_t products;
    cudaEvent_t set, returned; /* set: parameters have been copied; returned: gradients have been */
    uint32_t samples, slots;
    dlrm_slot *slot; /* [slots]: step s is at s mod slots; the same for the next two */
    size_t inputs;   /* floats of a slot: labels[samples], numbers[samples][numbers] */
    float *host_inputs, *inputs_at;
    float *host_parameters, *parameters, *host_gradient, *gradient;
    double *host_loss, *loss;
    uint64_t computed; /* next step to compute */
    int outstanding;   /* gradients that have not been waited for */
    dlrm_cuda_mlp bottom, top;
    float *scratch[2]; /* [samples][widest layer] */
    float *rows, *linear;
    /* x_1 and on [n_cross][samples][width], products [n_cross][samples], the others as in dlrm_cross_layer. */
    float *cross_x, *cross_products, *cross_gradient, *cross_slope;
    dlrm_view view; /* what is the same for all steps */
};

dlrm_cuda *dlrm_cuda_new(int ordinal) {
    dlrm_cuda *cuda = (dlrm_cuda *)calloc(1, sizeof *cuda);
    if (!cuda) return NULL;
    cuda->gpu = program_gpu_open(ordinal);
    return cuda;
}

void *dlrm_cuda_stream(const dlrm_cuda *cuda) {
    return cuda->gpu.stream;
}

float *dlrm_cuda_rows(const dlrm_cuda *cuda) {
    return cuda->rows;
}

float *dlrm_cuda_linear(const dlrm_cuda *cuda) {
    return cuda->linear;
}

float *dlrm_cuda_row_gradients(const dlrm_cuda *cuda) {
    return cuda->view.row_gradients;
}

float *dlrm_cuda_linear_gradients(const dlrm_cuda *cuda) {
    return cuda->view.linear_gradients;
}

static int dlrm_cuda_take(dlrm_cuda *cuda, void *to, size_t bytes, int pinned, program_error *error) {
    return program_gpu_memory(&cuda->gpu, to, bytes, pinned, "use a smaller --batch, narrower layers or a lower --dim",
                              error);
}

/* Outputs of the first n layers. */
static int dlrm_cuda_take_mlp(dlrm_cuda *cuda, dlrm_cuda_mlp *mlp, uint32_t n, const dlrm_layer *layer,
                              program_error *error) {
    mlp->n = n;
    mlp->layer = layer;
    for (uint32_t i = 0; i < n; i++) {
        mlp->stride[i + 1] = layer[i].out;
        if (dlrm_cuda_take(cuda, &mlp->at[i + 1], cuda->samples * (size_t)layer[i].out * sizeof(float), 0, error))
            return -1;
    }
    return 0;
}

static int dlrm_cuda_take_mlps(dlrm_cuda *cuda, program_error *error) {
    const dlrm_layers *layers = &cuda->layers;
    dlrm_view *v = &cuda->view;
    size_t floats = cuda->samples * sizeof(float);
    v->stride = layers->top[0].in;
    if (dlrm_cuda_take(cuda, &v->in, v->stride * floats, 0, error) ||
        dlrm_cuda_take(cuda, &v->in_gradient, v->stride * floats, 0, error) ||
        dlrm_cuda_take(cuda, &cuda->scratch[0], dlrm_widest(layers) * floats, 0, error) ||
        dlrm_cuda_take(cuda, &cuda->scratch[1], dlrm_widest(layers) * floats, 0, error) ||
        dlrm_cuda_take_mlp(cuda, &cuda->top, layers->n_top, layers->top, error))
        return -1;
    cuda->top.at[0] = v->in;
    cuda->top.stride[0] = v->stride;
    v->logit = cuda->top.at[layers->n_top];
    if (!layers->n_bottom) return 0;
    if (dlrm_cuda_take(cuda, &v->bottom_gradient, cuda->model.dim * floats, 0, error) ||
        dlrm_cuda_take_mlp(cuda, &cuda->bottom, layers->n_bottom - 1, layers->bottom, error))
        return -1;
    cuda->bottom.n = layers->n_bottom;
    cuda->bottom.stride[0] = cuda->model.numbers;
    cuda->bottom.at[layers->n_bottom] = v->in;
    cuda->bottom.stride[layers->n_bottom] = v->stride;
    return 0;
}

static int dlrm_cuda_take_tables(dlrm_cuda *cuda, program_error *error) {
    dlrm_view *v = &cuda->view;
    const dlrm_model *model = &cuda->model;
    size_t floats = cuda->samples * sizeof(float), rows = (size_t)model->features * model->dim;
    if (dlrm_cuda_take(cuda, &cuda->rows, rows * floats, 0, error) ||
        dlrm_cuda_take(cuda, &v->row_gradients, rows * floats, 0, error) ||
        dlrm_cuda_take(cuda, &v->slope, floats, 0, error) || dlrm_cuda_take(cuda, &v->loss, floats, 0, error))
        return -1;
    if (dlrm_has_linear(model) && (dlrm_cuda_take(cuda, &cuda->linear, model->features * floats, 0, error) ||
                                   dlrm_cuda_take(cuda, &v->linear_gradients, model->features * floats, 0, error)))
        return -1;
    if (model->kind == DLRM_DCN &&
        (dlrm_cuda_take(cuda, &cuda->cross_x, model->n_cross * v->stride * floats, 0, error) ||
         dlrm_cuda_take(cuda, &cuda->cross_products, model->n_cross * floats, 0, error) ||
         dlrm_cuda_take(cuda, &cuda->cross_gradient, v->stride * floats, 0, error) ||
         dlrm_cuda_take(cuda, &cuda->cross_slope, floats, 0, error) ||
         dlrm_cuda_take(cuda, &v->cross, floats, 0, error)))
        return -1;
    return model->kind == DLRM_DEEPFM ? dlrm_cuda_take(cuda, &v->sum, model->dim * floats, 0, error) : 0;
}

static int dlrm_cuda_memory(dlrm_cuda *cuda, program_error *error) {
    size_t parameters = cuda->layers.parameters * sizeof(float), inputs;
    cuda->inputs = (size_t)cuda->samples * (1 + (size_t)cuda->model.numbers);
    inputs = cuda->slots * cuda->inputs * sizeof(float);
    dlrm_view *v = &cuda->view;
    v->kind = cuda->model.kind;
    v->numbers = cuda->model.numbers;
    v->features = cuda->model.features;
    v->dim = cuda->model.dim;
    v->vectors = dlrm_vectors(&cuda->model);
    v->has_bottom = cuda->layers.n_bottom > 0;
    v->pairs_at = v->has_bottom ? v->dim : 0;
    if (dlrm_cuda_take(cuda, &cuda->host_inputs, inputs, 1, error) ||
        dlrm_cuda_take(cuda, &cuda->inputs_at, inputs, 0, error) ||
        dlrm_cuda_take(cuda, &cuda->host_parameters, parameters, 1, error) ||
        dlrm_cuda_take(cuda, &cuda->parameters, parameters, 0, error) ||
        dlrm_cuda_take(cuda, &cuda->host_gradient, parameters, 1, error) ||
        dlrm_cuda_take(cuda, &cuda->gradient, parameters, 0, error) ||
        dlrm_cuda_take(cuda, &cuda->host_loss, sizeof(double), 1, error) ||
        dlrm_cuda_take(cuda, &cuda->loss, sizeof(double), 0, error) || dlrm_cuda_take_mlps(cuda, error) ||
        dlrm_cuda_take_tables(cuda, error))
        return -1;
    v->rows = cuda->rows;
    v->linear = cuda->linear;
    return 0;
}

static uint32_t dlrm_tiles(uint32_t n) {
    return (n + DLRM_TILE - 1) / DLRM_TILE;
}

/* The largest grid over pairs; a GPU has up to 2^31 - 1 blocks in one. */
static uint64_t dlrm_pair_blocks(const dlrm_model *model, uint64_t samples) {
    uint64_t down = dlrm_tiles(dlrm_vectors(model)), across = dlrm_tiles(model->dim);
    return samples * down * (down > across ? down : across);
}

int dlrm_cuda_open(dlrm_cuda *cuda, const dlrm_model *model, uint32_t samples, uint32_t slots, program_error *error) {
    const unsigned plain = cudaEventDisableTiming, blocking = cudaEventDisableTiming | cudaEventBlockingSync;
    if (dlrm_layout(model, &cuda->layers, error)) return -1;
    if (samples > INT32_MAX)
        return program_fail(error, "a batch of %u samples, can have %d: use a smaller batch", samples, INT32_MAX);
    cuda->model = *model;
    if (model->kind == DLRM_DLRM && dlrm_pair_blocks(model, samples) > INT32_MAX)
        return program_fail(error, "cuda:%d: a step of %u samples has too many pairs for a grid: use a smaller batch",
                            cuda->gpu.ordinal, samples);
    cuda->samples = samples;
    cuda->slots = slots;
    cuda->slot = (dlrm_slot *)calloc(slots, sizeof *cuda->slot);
    if (!cuda->slot) return program_fail(error, "out of memory");
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    if (program_gpu_stream(&cuda->gpu, &cuda->copies, error) || program_gpu_stream(&cuda->gpu, &cuda->back, error) ||
        program_gpu_event(&cuda->gpu, &cuda->set, plain, error) ||
        program_gpu_event(&cuda->gpu, &cuda->returned, blocking, error))
        return -1;
    for (uint32_t i = 0; i < slots; i++)
        if (program_gpu_event(&cuda->gpu, &cuda->slot[i].copied, plain, error) ||
            program_gpu_event(&cuda->gpu, &cuda->slot[i].computed, plain, error))
            return -1;
    if (program_gpu_products(&cuda->gpu, &cuda->products, error)) return -1;
    return dlrm_cuda_memory(cuda, error);
}

void dlrm_cuda_close(dlrm_cuda *cuda) {
    if (!cuda) return;
    program_gpu_close(&cuda->gpu);
    free(cuda->slot);
    free(cuda);
}

/* ---- The host's side: products and layers ---------------------------------------------------------------- */

static unsigned dlrm_blocks(size_t n) { /* with a thread for each, or as many as fill any GPU */
    const size_t most = 1 << 16;
    size_t blocks = (n + DLRM_BLOCK - 1) / DLRM_BLOCK;
    return (unsigned)(blocks < most ? blocks : most);
}

/* A row-major matrix as an operand of a product; `turned`: its transpose. */
typedef struct dlrm_operand {
    const float *at;
    size_t stride;
    int turned;
} dlrm_operand;

/* out[m][n] = a[m][k] b[k][n] */
typedef struct dlrm_product {
    uint32_t m, n, k;
    dlrm_operand a, b;
    float *out;
    size_t stride;
} dlrm_product;

/* The operands are swapped, because cuBLAS stores matrices by columns. */
static int dlrm_cuda_product(const dlrm_cuda *cuda, const dlrm_product *p, program_error *error) {
    const float one = 1.0f, zero = 0.0f;
    cublasOperation_t a = p->a.turned ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->b.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasSgemm(cuda->products, b, a, (int)p->n, (int)p->m, (int)p->k, &one, p->b.at,
                                        (int)p->b.stride, p->a.at, (int)p->a.stride, &zero, p->out, (int)p->stride);
    return status == CUBLAS_STATUS_SUCCESS ? 0 : program_cublas_fail(cuda->gpu.ordinal, status, error);
}

static int dlrm_cuda_mlp_forward(const dlrm_cuda *cuda, const dlrm_cuda_mlp *mlp, uint32_t n, int last_relu,
                                 program_error *error) {
    for (uint32_t i = 0; i < mlp->n; i++) {
        const dlrm_layer *l = &mlp->layer[i];
        dlrm_operand in = {mlp->at[i], mlp->stride[i], 0}, weight = {cuda->parameters + l->weight, l->in, 1};
        float *out = mlp->at[i + 1];
        size_t stride = mlp->stride[i + 1];
        dlrm_product product = {n, l->out, l->in, in, weight, out, stride};
        if (dlrm_cuda_product(cuda, &product, error)) return -1;
        FRUGAL_LAUNCH(dlrm_bias_kernel, dlrm_blocks((size_t)n * l->out), DLRM_BLOCK, cuda->gpu.stream, n, l->out,
                      cuda->parameters + l->bias, last_relu || i + 1 < mlp->n, out, stride);
    }
    return 0;
}

static void dlrm_cuda_column_sums(const dlrm_cuda *cuda, uint32_t n, uint32_t width, const float *x,
                                  const float *weight, float *sum) {
    FRUGAL_LAUNCH(dlrm_column_sums_kernel, (width + 31) / 32, DLRM_BLOCK, cuda->gpu.stream, n, width, x, weight, sum);
}

/* As dlrm_mlp_back of model.c. */
static int dlrm_cuda_mlp_back(const dlrm_cuda *cuda, const dlrm_cuda_mlp *mlp, uint32_t n, const float *gradient,
                              float *in_gradient, program_error *error) {
    for (uint32_t i = mlp->n; i-- > 0;) {
        const dlrm_layer *l = &mlp->layer[i];
        float *next = i ? cuda->scratch[gradient == cuda->scratch[0]] : in_gradient;
        dlrm_operand turned = {gradient, l->out, 1}, in = {mlp->at[i], mlp->stride[i], 0};
        dlrm_operand plain = {gradient, l->out, 0}, weight = {cuda->parameters + l->weight, l->in, 0};
        dlrm_product of_weights = {l->out, l->in, n, turned, in, cuda->gradient + l->weight, l->in};
        dlrm_product of_input = {n, l->in, l->out, plain, weight, next, l->in};
        if (dlrm_cuda_product(cuda, &of_weights, error)) return -1;
        dlrm_cuda_column_sums(cuda, n, l->out, gradient, NULL, cuda->gradient + l->bias);
        if (next && dlrm_cuda_product(cuda, &of_input, error)) return -1;
        if (i)
            FRUGAL_LAUNCH(dlrm_mask_kernel, dlrm_blocks((size_t)n * l->in), DLRM_BLOCK, cuda->gpu.stream, n, l->in,
                          (const float *)mlp->at[i], (const float *)NULL, mlp->stride[i], next);
        gradient = next;
    }
    return 0;
}

/* ---- The host's side: a step ----------------------------------------------------------------------------- */

void dlrm_cuda_begin(dlrm_cuda *cuda, uint64_t step) {
    cuda->computed = step;
}

int dlrm_cuda_copy(dlrm_cuda *cuda, uint64_t step, const dlrm_input *input, program_error *error) {
    dlrm_slot *slot = &cuda->slot[step % cuda->slots];
    size_t n = input->n, floats = n * (1 + (size_t)cuda->model.numbers), at = step % cuda->slots * cuda->inputs;
    float *to = cuda->host_inputs + at;
    if (n > cuda->samples)
        return program_fail(error, "cuda:%d: a step of %zu samples, opened for %u", cuda->gpu.ordinal, n,
                            cuda->samples);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    /* Does not wait in fact if the previous step in this slot was waited for. */
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventSynchronize(slot->computed), error);
    slot->n = input->n;
    if (n) memcpy(to, input->labels, n * sizeof *to);
    if (floats > n) memcpy(to + n, input->numbers, (floats - n) * sizeof *to);
    if (n)
        PROGRAM_TRY(
            cuda->gpu.ordinal,
            cudaMemcpyAsync(cuda->inputs_at + at, to, floats * sizeof *to, cudaMemcpyHostToDevice, cuda->copies),
            error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(slot->copied, cuda->copies), error);
    return 0;
}

int dlrm_cuda_set_parameters(dlrm_cuda *cuda, const float *parameters, program_error *error) {
    size_t bytes = cuda->layers.parameters * sizeof(float);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    /* Does not wait in fact if a step with the previous parameters was waited for. */
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventSynchronize(cuda->set), error);
    memcpy(cuda->host_parameters, parameters, bytes);
    PROGRAM_TRY(
        cuda->gpu.ordinal,
        cudaMemcpyAsync(cuda->parameters, cuda->host_parameters, bytes, cudaMemcpyHostToDevice, cuda->gpu.stream),
        error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(cuda->set, cuda->gpu.stream), error);
    return 0;
}

static dlrm_view dlrm_cuda_view(const dlrm_cuda *cuda, uint64_t step, uint32_t batch) {
    dlrm_view v = cuda->view;
    v.n = cuda->slot[step % cuda->slots].n;
    v.scale = 1.0f / (float)batch;
    v.label = cuda->inputs_at + step % cuda->slots * cuda->inputs;
    v.number = v.label + v.n;
    return v;
}

/* Layer l, or behind the last one the product with `out`. */
static dlrm_cross_layer dlrm_cuda_cross_layer(const dlrm_cuda *cuda, const dlrm_view *v, uint32_t l) {
    uint32_t layers = cuda->model.n_cross;
    size_t width = v->stride, matrix = (size_t)cuda->samples * width;
    const float *weights = cuda->parameters + cuda->layers.cross;
    dlrm_cross_layer c;
    c.x = l ? cuda->cross_x + (l - 1) * matrix : v->in;
    c.weight = weights + (l < layers ? l : 2 * (size_t)layers) * width;
    c.bias = weights + (layers + (size_t)l) * width;
    c.product = l < layers ? cuda->cross_products + (size_t)l * cuda->samples : v->cross;
    c.to = l < layers ? cuda->cross_x + l * matrix : NULL;
    c.gradient = cuda->cross_gradient;
    c.slope = cuda->cross_slope;
    c.first = l == 0;
    return c;
}

static void dlrm_cuda_cross_back(const dlrm_cuda *cuda, const dlrm_view *v) {
    uint32_t layers = cuda->model.n_cross, width = (uint32_t)v->stride, blocks = (v->n + DLRM_WARPS - 1) / DLRM_WARPS;
    float *out = cuda->gradient + cuda->layers.cross, *biases = out + layers * v->stride;
    dlrm_cross_layer c = dlrm_cuda_cross_layer(cuda, v, layers);
    dlrm_cuda_column_sums(cuda, v->n, width, c.x, v->slope, biases + layers * v->stride);
    FRUGAL_LAUNCH(dlrm_cross_begin_kernel, dlrm_blocks(v->n * v->stride), DLRM_BLOCK, cuda->gpu.stream, *v, c.weight,
                  cuda->cross_gradient);
    for (uint32_t l = layers; l-- > 0;) {
        c = dlrm_cuda_cross_layer(cuda, v, l);
        dlrm_cuda_column_sums(cuda, v->n, width, c.gradient, NULL, biases + l * v->stride);
        FRUGAL_LAUNCH(dlrm_cross_back_kernel, blocks, DLRM_BLOCK, cuda->gpu.stream, *v, c);
        dlrm_cuda_column_sums(cuda, v->n, width, c.x, c.slope, out + l * v->stride);
    }
}

/* From rows and numbers to the slopes of the losses. */
static int dlrm_cuda_forward(dlrm_cuda *cuda, const dlrm_view *v, program_error *error) {
    cuda->bottom.at[0] = (float *)v->number;
    if (v->has_bottom && dlrm_cuda_mlp_forward(cuda, &cuda->bottom, v->n, 1, error)) return -1;
    if (v->kind == DLRM_DLRM)
        FRUGAL_LAUNCH(dlrm_pairs_kernel, v->n * dlrm_tiles(v->vectors) * dlrm_tiles(v->vectors), DLRM_BLOCK,
                      cuda->gpu.stream, *v);
    else
        FRUGAL_LAUNCH(dlrm_gather_kernel, dlrm_blocks(v->n * v->stride), DLRM_BLOCK, cuda->gpu.stream, *v);
    if (dlrm_cuda_mlp_forward(cuda, &cuda->top, v->n, 0, error)) return -1;
    for (uint32_t l = 0; v->kind == DLRM_DCN && l <= cuda->model.n_cross; l++)
        FRUGAL_LAUNCH(dlrm_cross_kernel, (v->n + DLRM_WARPS - 1) / DLRM_WARPS, DLRM_BLOCK, cuda->gpu.stream, *v,
                      dlrm_cuda_cross_layer(cuda, v, l));
    FRUGAL_LAUNCH(dlrm_logits_kernel, (v->n + DLRM_WARPS - 1) / DLRM_WARPS, DLRM_BLOCK, cuda->gpu.stream, *v,
                  (const float *)cuda->parameters + cuda->layers.linear);
    return 0;
}

static int dlrm_cuda_back(dlrm_cuda *cuda, const dlrm_view *v, program_error *error) {
    if (dlrm_cuda_mlp_back(cuda, &cuda->top, v->n, v->slope, v->in_gradient, error)) return -1;
    if (v->kind == DLRM_DCN) dlrm_cuda_cross_back(cuda, v);
    if (v->kind == DLRM_DLRM)
        FRUGAL_LAUNCH(dlrm_pairs_back_kernel, v->n * dlrm_tiles(v->vectors) * dlrm_tiles(v->dim), DLRM_BLOCK,
                      cuda->gpu.stream, *v);
    else
        FRUGAL_LAUNCH(dlrm_rows_back_kernel, dlrm_blocks((size_t)v->features * v->n * v->dim), DLRM_BLOCK,
                      cuda->gpu.stream, *v);
    if (v->has_bottom) {
        FRUGAL_LAUNCH(dlrm_mask_kernel, dlrm_blocks((size_t)v->n * v->dim), DLRM_BLOCK, cuda->gpu.stream, v->n, v->dim,
                      (const float *)v->in, (const float *)v->in_gradient, v->stride, v->bottom_gradient);
        if (dlrm_cuda_mlp_back(cuda, &cuda->bottom, v->n, v->bottom_gradient, NULL, error)) return -1;
    }
    if (dlrm_has_linear(&cuda->model)) {
        FRUGAL_LAUNCH(dlrm_linear_back_kernel, dlrm_blocks((size_t)v->features * v->n), DLRM_BLOCK, cuda->gpu.stream,
                      *v);
        if (v->numbers)
            dlrm_cuda_column_sums(cuda, v->n, v->numbers, v->number, v->slope, cuda->gradient + cuda->layers.linear);
    }
    return 0;
}

/* What was computed, into pinned memory, while the stream goes on. */
static int dlrm_cuda_return(dlrm_cuda *cuda, const dlrm_slot *slot, program_error *error) {
    size_t bytes = cuda->layers.parameters * sizeof(float);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(slot->computed, cuda->gpu.stream), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaStreamWaitEvent(cuda->back, slot->computed, 0), error);
    PROGRAM_TRY(cuda->gpu.ordinal,
                cudaMemcpyAsync(cuda->host_gradient, cuda->gradient, bytes, cudaMemcpyDeviceToHost, cuda->back), error);
    PROGRAM_TRY(cuda->gpu.ordinal,
                cudaMemcpyAsync(cuda->host_loss, cuda->loss, sizeof(double), cudaMemcpyDeviceToHost, cuda->back),
                error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(cuda->returned, cuda->back), error);
    return 0;
}

int dlrm_cuda_gradients(dlrm_cuda *cuda, uint64_t step, uint32_t batch, program_error *error) {
    const dlrm_slot *slot = &cuda->slot[step % cuda->slots];
    dlrm_view v = dlrm_cuda_view(cuda, step, batch);
    if (step != cuda->computed) return program_fail(error, "cuda:%d: a step out of turn", cuda->gpu.ordinal);
    if (cuda->outstanding) return program_fail(error, "cuda:%d: gradients not waited for", cuda->gpu.ordinal);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaStreamWaitEvent(cuda->gpu.stream, slot->copied, 0), error);
    if (v.n) {
        if (dlrm_cuda_forward(cuda, &v, error) || dlrm_cuda_back(cuda, &v, error)) return -1;
    } else
        PROGRAM_TRY(cuda->gpu.ordinal,
                    cudaMemsetAsync(cuda->gradient, 0, cuda->layers.parameters * sizeof(float), cuda->gpu.stream),
                    error);
    FRUGAL_LAUNCH(dlrm_total_kernel, 1, DLRM_BLOCK, cuda->gpu.stream, v, cuda->loss);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaGetLastError(), error); /* of all launches above */
    if (dlrm_cuda_return(cuda, slot, error)) return -1;
    cuda->outstanding = 1;
    cuda->computed = step + 1;
    return 0;
}

int dlrm_cuda_wait_gradients(dlrm_cuda *cuda, const float **gradient, double *loss, program_error *error) {
    if (!cuda->outstanding) return program_fail(error, "cuda:%d: no gradients to wait for", cuda->gpu.ordinal);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventSynchronize(cuda->returned), error);
    cuda->outstanding = 0;
    *gradient = cuda->host_gradient;
    *loss = *cuda->host_loss;
    return 0;
}
