/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: the kernels on a GPU, through CUDA: twins of init_rows.h, pool.h, cast.h, reduce.h and
 * optimizer.h, whose contracts hold here too. The same input gives the same bits, on a processor
 * and on a GPU; only a NaN may be another NaN, as a GPU's arithmetic knows one alone.
 *
 * Structs lie in the caller's memory and are used up when the function returns. What their pointers
 * and the arguments marked "device" name is memory that the GPU reaches, aligned as the C twins
 * have it, and stays as it is until the work is done: functions queue it on a stream, where it runs
 * in order, and return before it is done unless they say that they wait. An error may be of earlier
 * work on the stream.
 *
 * NO_MEMORY: the GPU has no room. UNSUPPORTED: there is no GPU, or none that this was built for.
 * Built without CUDA, none.c stands here: there is no GPU. Thread: any; a stream is used by one
 * at a time. */
#ifndef EMBTIER_KERNELS_GPU_GPU_H
#define EMBTIER_KERNELS_GPU_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_err.h"
#include "base/macros.h"
#include "base/spec/table_spec.h"
#include "kernels/cpu/cast/cast.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/pool/pool.h"
#include "kernels/cpu/reduce/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many GPUs there are that these kernels run on; 0 without a driver. Work goes to the calling
 * thread's current one, which is the first if nobody chose another. */
uint32_t gpu_is_there(void);

/* ---- Streams and memory ---- */

struct gpu_stream; /* NULL, wherever one is taken, is the GPU's default stream */

MUST_CHECK enum embtier_err gpu_stream_new(struct gpu_stream **ret_stream);
void gpu_stream_free(struct gpu_stream *stream);
/* Waits until all work on it is done. */
MUST_CHECK enum embtier_err gpu_stream_wait(struct gpu_stream *stream);

/* Device memory, at a multiple of 256 bytes; @bytes is not 0. Freeing waits for the GPU. */
MUST_CHECK enum embtier_err gpu_memory_new(uint64_t bytes, void **ret_memory);
void gpu_memory_free(void *memory);
/* To and from device memory. Both wait. */
MUST_CHECK enum embtier_err gpu_memory_write(void *device, const void *from, uint64_t bytes,
                                             struct gpu_stream *stream);
MUST_CHECK enum embtier_err gpu_memory_read(const void *device, uint64_t bytes,
                                            struct gpu_stream *stream, void *ret_bytes);

#ifndef __cplusplus
DEFINE_CLEANUP(struct gpu_stream, gpu_stream_free)
#endif

/* ---- Twins ---- */

/* init_rows(); device: @row_ids, @ret_rows and the rows. */
MUST_CHECK enum embtier_err gpu_init_rows(const struct table_spec *spec, const uint64_t *row_ids,
                                          uint32_t count, void *const *ret_rows,
                                          struct gpu_stream *stream);

/* pool_rows() and pool_divide(); device: all that @batch points to, the rows too; @bags, @counts.
 */
MUST_CHECK enum embtier_err gpu_pool_rows(const struct pool_batch *batch,
                                          struct gpu_stream *stream);
MUST_CHECK enum embtier_err gpu_pool_divide(float *bags, uint32_t dim, const uint32_t *counts,
                                            uint32_t bag_count, struct gpu_stream *stream);

/* Device memory that sorting and finding runs of @count pairs take, at a multiple of 256 bytes. */
MUST_CHECK enum embtier_err gpu_cast_scratch_bytes(uint32_t count, uint64_t *ret_bytes);
/* cast_sort(), in place; device: @pairs, @scratch. */
MUST_CHECK enum embtier_err gpu_cast_sort(struct cast_pair *pairs, uint32_t count, void *scratch,
                                          uint64_t scratch_bytes, struct gpu_stream *stream);
/* cast_runs(); device: @pairs, @scratch, @ret_starts. Waits, for the number of runs: that is known
 * before gradients are there, and is what the work on them is laid out by. */
MUST_CHECK enum embtier_err gpu_cast_runs(const struct cast_pair *pairs, uint32_t count,
                                          void *scratch, uint64_t scratch_bytes,
                                          struct gpu_stream *stream, uint32_t *ret_starts,
                                          uint32_t *ret_run_count);

/* reduce_runs(); device: all that @batch points to. */
MUST_CHECK enum embtier_err gpu_reduce_runs(const struct reduce_batch *batch,
                                            struct gpu_stream *stream);
/* reduce_all_finite(); device: @numbers and @scratch, one number. Waits. */
MUST_CHECK enum embtier_err gpu_reduce_all_finite(const float *numbers, uint64_t count,
                                                  uint32_t *scratch, struct gpu_stream *stream,
                                                  bool *ret_all_finite);
/* reduce_weight_gradients(); device: all pointers, and what @rows and @bags point to. */
MUST_CHECK enum embtier_err
gpu_reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                            const float *const *bags, const float *divisors, uint32_t count,
                            struct gpu_stream *stream, float *ret_gradients);

/* optimizer_update(); device: @row_ids, @rows and the rows, @gradients. */
MUST_CHECK enum embtier_err gpu_optimizer_update(const struct optimizer_push *push,
                                                 const uint64_t *row_ids, void *const *rows,
                                                 float *gradients, uint32_t count,
                                                 struct gpu_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
