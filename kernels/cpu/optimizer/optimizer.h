/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h: optimizers, applied in place to rows that have a gradient. Rows without a gradient
 * keep their weights and state (the "lazy" or "sparse" form).
 *
 * An optimizer is one line of EMBTIER_OPTIMIZER_TABLE (base/embtier_types.h) and one function of
 * optimizer_values.h (with its line in optimizer_value()). The line gives the state that a row
 * keeps; the function updates one number. All optimizers share the loops around it. With g the
 * row's gradient:
 *
 * 1. clipping: if clip_norm > 0 and |g| > clip_norm, g = g * (clip_norm / |g|)
 * 2. weight decay: if weight_decay > 0, g = g + weight_decay * w; not for AdamW
 * 3. the optimizer, in f32, like PyTorch's of the same name; momentum is like its SGD without
 *    dampening. Row-wise Adagrad is like FBGEMM's: the row's mean of g² is added to its one state
 *    number.
 * 4. rounding to the table's dtype: f16 and bf16 stochastically, up with a probability equal to the
 *    part cut off, unless the table rounds to nearest. The random bits are a function of (table
 *    seed, row, column, step), so they are the same on every machine.
 *
 * State saturates at the greatest finite number, unless the table allows NaN and infinity. finite.h
 * deals with weights that may overflow.
 *
 * Norm and mean of squares (of g, clipped and decayed) are added up in f64. Column c goes into
 * partial sum c % 8, in order. Then the partial sums are added: 4 to 0 … 7 to 3, 2 to 0, 3 to 1, 1
 * to 0. Only +, -, *, / and square root occur, each rounded on its own, so every processor gives
 * the same bits. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_H

#include <stdint.h>

#include "base/spec/table_spec.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/optimizer/optimizer_numbers.h"
#include "kernels/cpu/reduce/reduce.h"

/* @step counts from 1 (Adam's bias correction needs it) to OPTIMIZER_STEP_MAX; @learning_rate is
 * finite. Numbers beyond f32's range are clamped to its largest. @spec has passed
 * table_spec_check() and has an optimizer. */
void optimizer_prepare(const struct table_spec *spec, double learning_rate, uint64_t step,
                       struct optimizer_push *ret_push);

/* Updates @count different rows. Row i, whole (weights, then state), is at @rows[i], aligned to its
 * numbers (2 or 4 bytes). Its gradient is at @gradients + i * dim, whose content is lost. */
void optimizer_update(const struct optimizer_push *push, const uint64_t *row_ids, void *const *rows,
                      float *gradients, uint32_t count);
void optimizer_update_with(enum kernels_isa isa, const struct optimizer_push *push,
                           const uint64_t *row_ids, void *const *rows, float *gradients,
                           uint32_t count);

/* The same with the gradients of @batch's runs: row i takes the gradient of run i of the batch's
 * chosen runs. It is made right before its use (reduce.h), so only one gradient is in the cache at
 * a time. @batch->rows has room for one. */
void optimizer_update_runs(const struct optimizer_push *push, const uint64_t *row_ids,
                           void *const *rows, const struct reduce_batch *batch);
void optimizer_update_runs_with(enum kernels_isa isa, const struct optimizer_push *push,
                                const uint64_t *row_ids, void *const *rows,
                                const struct reduce_batch *batch);

#endif
