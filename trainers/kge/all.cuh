/* Questions scored against all entities, on a GPU: part of kge_cuda.cu, whose kernels do the rest. See all.h for the
 * scheme, all.c for the same on host cores.
 *
 * A chunk is a group of one, whose negatives are all entities. Its own kernels:
 *
 *   loss    a block a question: scores to their gradients, in place
 *   back    a warp a triple: from dQ to relations, and to what the given ends get
 *   ends    a warp an entity: adds what it gets as a given end of the chunk, in the order of the triples
 */
#ifndef KGE_ALL_CUH
#define KGE_ALL_CUH

/* The right answers of a question, *answers of them. */
static __device__ const uint32_t *kge_right_answers(const kge_view *v, const kge_question *q, uint32_t *answers) {
    const uint32_t *right = (q->heads ? v->head : v->tail) + q->triple;
    *answers = v->answer ? (uint32_t)(v->first_answer[*right + 1] - v->first_answer[*right]) : 1;
    return v->answer ? v->answer + v->first_answer[*right] : right;
}

/* Scores become their gradients as if all entities were wrong; then the right ones are taken back. Each thread reads
 * only the scores that it wrote itself. With distances there is one right answer, because KvsAll has none. */
static __global__ void kge_all_loss_kernel(kge_view v) {
    FRUGAL_SHARED(float, lanes, KGE_BLOCK / 32);
    size_t query = blockIdx.x;
    kge_question q = kge_question_at(&v, query);
    float *score = v.score + query * v.negatives, top = 0, sum = 1, own = 0, loss = 0, weights = 0, slope;
    int distances = KGE_HAS_L2(v.model.kind), several = v.model.scoring == KGE_KVSALL;
    float margin = several ? v.model.margin : 0.0f;
    float own_weight = kge_weight_of(&v, &q), scale = v.scale * own_weight;
    uint32_t answers;
    const uint32_t *right = kge_right_answers(&v, &q, &answers);
    for (uint32_t j = threadIdx.x; distances && j < v.negatives; j += blockDim.x)
        score[j] = -sqrtf(fmaxf(v.query_norm[query] + v.negative_norm[j] - 2.0f * score[j], KGE_SMALLEST_SQUARE));
    for (uint32_t a = 0; a < answers; a++)
        if (right[a] % blockDim.x == threadIdx.x) own += score[right[a]] + margin;
    own = kge_block_all(own, 0, lanes);
    if (!several) sum = kge_soft_sum(&v, score, 1, NULL, &top, lanes);
    for (uint32_t j = threadIdx.x; j < v.negatives; j += blockDim.x) {
        float s = score[j], weight;
        if (several) {
            loss += kge_softplus(s + margin, &slope);
            weight = slope * scale;
        } else
            weight = expf(s - top) / sum * scale;
        score[j] = distances ? weight / -s : weight;
    }
    for (uint32_t a = 0; a < answers; a++)
        if (right[a] % blockDim.x == threadIdx.x) score[right[a]] -= distances ? scale / -own : scale;
    for (uint32_t j = threadIdx.x; j < v.negatives; j += blockDim.x) weights += score[j];
    loss = kge_block_all(loss, 0, lanes);
    weights = kge_block_all(weights, 0, lanes);
    if (threadIdx.x) return;
    v.weight_sum[query] = weights;
    v.loss[(size_t)v.from * v.sides + query] = own_weight * ((several ? loss : top + logf(sum)) - own);
}

static __global__ void kge_all_back_kernel(kge_view v) {
    size_t of_chunk = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, dim = v.model.dim;
    uint32_t lane = threadIdx.x % 32, triple = v.from + (uint32_t)of_chunk;
    if (of_chunk >= v.chunk) return; /* a whole warp */
    int two_relations = v.relation_at[0] != v.relation_at[1];
    float cubes = 0;
    for (uint32_t k = lane; k < dim; k += 32) {
        float relation[2] = {0, 0};
        for (uint32_t s = 0; s < v.sides; s++) {
            size_t query = s * v.chunk + of_chunk;
            kge_question q = kge_question_of(&v, triple, (int)s);
            kge_slopes slopes = kge_slopes_of(&v, &q, query, k);
            v.given_gradient[query * dim + k] = slopes.anchor;
            relation[two_relations && s] += slopes.relation;
        }
        for (int i = 0; i < (two_relations ? 2 : 1); i++) {
            size_t row = v.relation_at[i] + triple;
            if (v.relation_n3 > 0) relation[i] += kge_cube_slope(&v, v.rows + row * dim, k, v.relation_n3, &cubes);
            v.grads[row * dim + k] = relation[i];
        }
    }
    cubes = program_warp_sum(cubes);
    if (!lane) v.cubes[v.entities + (size_t)triple] = cubes;
}

/* N3 is over both ends of a triple, and with KvsAll over the given end alone. */
static __global__ void kge_all_ends_kernel(kge_view v) {
    size_t entity = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, dim = v.model.dim;
    uint32_t lane = threadIdx.x % 32, uses = 0;
    if (entity >= v.entities) return; /* a whole warp */
    float *grads = v.grads + entity * dim, cubes = 0;
    for (uint32_t s = 0; s < v.sides; s++) {
        const uint32_t *given = (s ? v.tail : v.head) + v.from;
        for (uint32_t i = 0; i < v.chunk; i++)
            for (uint32_t k = lane; given[i] == entity && k < dim; k += 32)
                grads[k] += v.given_gradient[((size_t)s * v.chunk + i) * dim + k];
    }
    for (uint32_t i = v.from; i < v.from + v.chunk; i++)
        uses += (v.head[i] == entity) + (!v.answer && v.tail[i] == entity);
    if (v.n3 > 0 && uses)
        for (uint32_t k = lane; k < dim; k += 32)
            grads[k] += kge_cube_slope(&v, v.rows + entity * dim, k, v.n3 * (float)uses, &cubes);
    cubes = program_warp_sum(cubes);
    if (!lane) v.cubes[entity] = (v.from ? v.cubes[entity] : 0) + cubes;
}

#endif
