/* SPDX-License-Identifier: Apache-2.0 */
/* With the pairs sorted, a sum's backward pass is the forward pass once more: a run is a bag, its
 * rows are gradients of bags, its weights the scales. So pool.h does it; what is left here is to
 * write down where a chunk's gradients lie. Only a maximum, where each column is of its own row,
 * has loops of its own. */
#include "kernels/reduce.h"

#include "base/macros.h"
#include "kernels/pool.h"
#include "kernels/reduce_loops.h"

/* Pairs and runs in a chunk: what is written down stays in the first-level cache. */
#define CHUNK 512

static const struct reduce_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &reduce_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

struct chunk {
    const void *rows[CHUNK];
    float weights[CHUNK];
    uint32_t offsets[CHUNK + 1];
};

/* Where the walk over the pairs stands. */
struct position {
    uint32_t run;  /* of those asked for */
    uint32_t done; /* of its pairs */
};

/* Writes down @count pairs from @pair on, as the chunk's from @at on. */
static void write_down(const struct reduce_batch *batch, const struct cast_pair *pair,
                       uint32_t count, struct chunk *chunk, uint32_t at)
{
    for (uint32_t i = at; i < at + count; i++, pair++) {
        chunk->rows[i] = batch->bag_places ? batch->bag_places[pair->bag]
                                           : batch->bags + (size_t)pair->bag * batch->dim;
        chunk->weights[i] = batch->scales ? batch->scales[pair->position] : 1.0f;
    }
}

/* Cuts the next pairs from @at on into a chunk, and moves it past them. A chunk may begin and end
 * within a run. Returns how many runs have pairs in it. */
static uint32_t next_chunk(const struct reduce_batch *batch, struct position *at,
                           struct chunk *chunk)
{
    uint32_t run_count = 0;
    uint32_t filled = 0;

    chunk->offsets[0] = 0;
    while (filled < CHUNK && at->run < batch->run_count) {
        const uint32_t run = batch->runs ? batch->runs[at->run] : at->run;
        const uint32_t first = batch->starts[run] + at->done;
        const uint32_t left = batch->starts[run + 1] - first;
        const uint32_t count = MIN(left, CHUNK - filled);

        write_down(batch, batch->pairs + first, count, chunk, filled);
        filled += count;
        chunk->offsets[++run_count] = filled;
        at->done += count;
        if (count == left) {
            at->run++;
            at->done = 0;
        }
    }
    return run_count;
}

void reduce_runs_with(enum kernels_isa isa, const struct reduce_batch *batch)
{
    struct chunk chunk;
    struct pool_batch pool = {
        .dtype = EMBTIER_DTYPE_F32,
        .dim = batch->dim,
        .mode = EMBTIER_POOL_SUM,
        .rows = chunk.rows,
        .weights = chunk.weights,
        .offsets = chunk.offsets,
    };
    struct position at = { 0 };

    if (batch->winners) {
        loops_by_isa[isa]->won(batch);
        return;
    }
    while (at.run < batch->run_count) {
        pool.begun = at.done;
        pool.bags = batch->rows + (size_t)at.run * batch->dim;
        pool.bag_count = next_chunk(batch, &at, &chunk);
        pool_rows_with(isa, &pool);
    }
}

void reduce_runs(const struct reduce_batch *batch)
{
    reduce_runs_with(kernels_isa_best(), batch);
}

void reduce_add(float *restrict sums, const float *restrict more, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sums[i] += more[i];
}

bool reduce_all_finite_with(enum kernels_isa isa, const float *numbers, uint64_t count)
{
    return loops_by_isa[isa]->all_finite(numbers, count);
}

bool reduce_all_finite(const float *numbers, uint64_t count)
{
    return reduce_all_finite_with(kernels_isa_best(), numbers, count);
}

void reduce_weight_gradients_with(enum kernels_isa isa, enum embtier_dtype dtype, uint32_t dim,
                                  const void *const *rows, const float *const *bags,
                                  const float *divisors, uint32_t count, float *ret_gradients)
{
    loops_by_isa[isa]->weight_gradients(dtype, dim, rows, bags, divisors, count, ret_gradients);
}

void reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients)
{
    reduce_weight_gradients_with(kernels_isa_best(), dtype, dim, rows, bags, divisors, count,
                                 ret_gradients);
}
