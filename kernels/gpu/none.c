/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the other files of this folder in a build without CUDA. */
#include "kernels/gpu/gpu.h"

uint32_t gpu_is_there(void)
{
    return 0;
}

enum embtier_err gpu_stream_new(struct gpu_stream **ret_stream)
{
    (void)ret_stream;
    return EMBTIER_UNSUPPORTED;
}

void gpu_stream_free(struct gpu_stream *stream)
{
    (void)stream;
}

enum embtier_err gpu_stream_wait(struct gpu_stream *stream)
{
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_memory_new(uint64_t bytes, void **ret_memory)
{
    (void)bytes;
    (void)ret_memory;
    return EMBTIER_UNSUPPORTED;
}

void gpu_memory_free(void *memory)
{
    (void)memory;
}

enum embtier_err gpu_memory_write(void *device, const void *from, uint64_t bytes,
                                  struct gpu_stream *stream)
{
    (void)device;
    (void)from;
    (void)bytes;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_memory_read(const void *device, uint64_t bytes, struct gpu_stream *stream,
                                 void *ret_bytes)
{
    (void)device;
    (void)bytes;
    (void)stream;
    (void)ret_bytes;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_init_rows(const struct table_spec *spec, const uint64_t *row_ids,
                               uint32_t count, void *const *ret_rows, struct gpu_stream *stream)
{
    (void)spec;
    (void)row_ids;
    (void)count;
    (void)ret_rows;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_pool_rows(const struct pool_batch *batch, struct gpu_stream *stream)
{
    (void)batch;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_pool_divide(float *bags, uint32_t dim, const uint32_t *counts,
                                 uint32_t bag_count, struct gpu_stream *stream)
{
    (void)bags;
    (void)dim;
    (void)counts;
    (void)bag_count;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_cast_scratch_bytes(uint32_t count, uint64_t *ret_bytes)
{
    (void)count;
    (void)ret_bytes;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_cast_sort(struct cast_pair *pairs, uint32_t count, void *scratch,
                               uint64_t scratch_bytes, struct gpu_stream *stream)
{
    (void)pairs;
    (void)count;
    (void)scratch;
    (void)scratch_bytes;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_cast_runs(const struct cast_pair *pairs, uint32_t count, void *scratch,
                               uint64_t scratch_bytes, struct gpu_stream *stream,
                               uint32_t *ret_starts, uint32_t *ret_run_count)
{
    (void)pairs;
    (void)count;
    (void)scratch;
    (void)scratch_bytes;
    (void)stream;
    (void)ret_starts;
    (void)ret_run_count;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_reduce_runs(const struct reduce_batch *batch, struct gpu_stream *stream)
{
    (void)batch;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_reduce_all_finite(const float *numbers, uint64_t count, uint32_t *scratch,
                                       struct gpu_stream *stream, bool *ret_all_finite)
{
    (void)numbers;
    (void)count;
    (void)scratch;
    (void)stream;
    (void)ret_all_finite;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim,
                                             const void *const *rows, const float *const *bags,
                                             const float *divisors, uint32_t count,
                                             struct gpu_stream *stream, float *ret_gradients)
{
    (void)dtype;
    (void)dim;
    (void)rows;
    (void)bags;
    (void)divisors;
    (void)count;
    (void)stream;
    (void)ret_gradients;
    return EMBTIER_UNSUPPORTED;
}

enum embtier_err gpu_optimizer_update(const struct optimizer_push *push, const uint64_t *row_ids,
                                      void *const *rows, float *gradients, uint32_t count,
                                      struct gpu_stream *stream)
{
    (void)push;
    (void)row_ids;
    (void)rows;
    (void)gradients;
    (void)count;
    (void)stream;
    return EMBTIER_UNSUPPORTED;
}
