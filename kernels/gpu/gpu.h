/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: the kernels on a GPU, through CUDA: twins of init_rows.h, pool.h, cast.h, reduce.h and
 * optimizer.h, whose contracts hold here too. The same input gives the same bits on a processor and
 * on a GPU. Only a NaN may differ, because a GPU's arithmetic makes just one kind of NaN.
 *
 * Structs lie in the caller's memory and may be reused when the function returns. Their pointers,
 * and the arguments marked "device", name memory that the GPU can reach. It is aligned as for the C
 * twins, and must not change until the work is done. Functions queue the work on a stream, where it
 * runs in order, and return before it is done unless they say that they wait. An error may come
 * from earlier work on the stream.
 *
 * NO_MEMORY: the GPU has no room. UNSUPPORTED: there is no GPU, or none that this was built for. In
 * a build without CUDA, none.c takes the place of this code: there is no GPU. Thread: any; only one
 * at a time may use a stream. */
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

/* Returns the number of GPUs that can run these kernels; 0 without a driver. Work goes to the
 * calling thread's current GPU, by default the first. */
uint32_t gpu_is_there(void);

/* ---- Streams and memory ---- */

struct gpu_stream; /* NULL stands for the GPU's default stream, wherever one is taken */

MUST_CHECK enum embtier_err gpu_stream_new(struct gpu_stream **ret_stream);
void gpu_stream_free(struct gpu_stream *stream);
/* Waits until all work on the stream is done. */
MUST_CHECK enum embtier_err gpu_stream_wait(struct gpu_stream *stream);

/* Allocates device memory at a multiple of 256 bytes; @bytes is not 0. Freeing waits for the
 * GPU. */
MUST_CHECK enum embtier_err gpu_memory_new(uint64_t bytes, void **ret_memory);
void gpu_memory_free(void *memory);
/* Copy to and from device memory. Both wait. */
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

/* pool_rows() and pool_divide(); device: everything that @batch points to, including the rows;
 * @bags, @counts. */
MUST_CHECK enum embtier_err gpu_pool_rows(const struct pool_batch *batch,
                                          struct gpu_stream *stream);
MUST_CHECK enum embtier_err gpu_pool_divide(float *bags, uint32_t dim, const uint32_t *counts,
                                            uint32_t bag_count, struct gpu_stream *stream);

/* Returns the bytes of device memory needed to sort @count pairs and find their runs, at a multiple
 * of 256 bytes. */
MUST_CHECK enum embtier_err gpu_cast_scratch_bytes(uint32_t count, uint64_t *ret_bytes);
/* cast_sort(), in place; device: @pairs, @scratch. */
MUST_CHECK enum embtier_err gpu_cast_sort(struct cast_pair *pairs, uint32_t count, void *scratch,
                                          uint64_t scratch_bytes, struct gpu_stream *stream);
/* cast_runs(); device: @pairs, @scratch, @ret_starts. Waits for the number of runs, which is known
 * before there are gradients, and which sizes the work on them. */
MUST_CHECK enum embtier_err gpu_cast_runs(const struct cast_pair *pairs, uint32_t count,
                                          void *scratch, uint64_t scratch_bytes,
                                          struct gpu_stream *stream, uint32_t *ret_starts,
                                          uint32_t *ret_run_count);

/* reduce_runs(); device: everything that @batch points to. */
MUST_CHECK enum embtier_err gpu_reduce_runs(const struct reduce_batch *batch,
                                            struct gpu_stream *stream);
/* reduce_all_finite(); device: @numbers and @scratch, one number. Waits. */
MUST_CHECK enum embtier_err gpu_reduce_all_finite(const float *numbers, uint64_t count,
                                                  uint32_t *scratch, struct gpu_stream *stream,
                                                  bool *ret_all_finite);
/* reduce_weight_gradients(); device: all pointers, and the memory that @rows and @bags point to. */
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
