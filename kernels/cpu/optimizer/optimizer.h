/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h: optimizers, each applied to rows that have a gradient, in place; rows that have none
 * stay as they are, state and all (the "lazy" or "sparse" form).
 *
 * An optimizer is one line of EMBTIER_OPTIMIZER_TABLE (base/embtier_types.h), which says what state
 * a row keeps, and one function of optimizer_values.h (and its line in optimizer_value()), which
 * says what becomes of one number. The loops around it are the same for all. With g the row's
 * gradient:
 *
 *   1. clipping: if clip_norm > 0 and |g| > clip_norm, g = g * (clip_norm / |g|)
 *   2. weight decay: if weight_decay > 0, g = g + weight_decay * w; not for AdamW
 *   3. the optimizer, in f32, as PyTorch's of the same name, momentum as its SGD without dampening;
 *      row-wise Adagrad as in FBGEMM: the row's mean of g² is added to its one state number
 *   4. rounding to the table's dtype: f16 and bf16 stochastically, up with a probability of the
 *      part cut off, unless the table rounds to nearest. The random bits are a function of (table
 *      seed, row, column, step) and so the same whoever computes them
 *
 * State saturates at the greatest finite number, unless the table allows NaN and infinity. When
 * weights may overflow, and what is done about it, is finite.h's matter.
 *
 * Norm and mean of squares (of g clipped and decayed) are added up in f64, column c into partial
 * sum c % 8 in order, then 4 to 0 … 7 to 3, 2 to 0, 3 to 1, 1 to 0. Only +, -, *, / and square
 * root, each rounded on its own: the same bits on every processor. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_H

#include <stdint.h>

#include "base/spec/table_spec.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/optimizer/optimizer_numbers.h"
#include "kernels/cpu/reduce/reduce.h"

/* @step counts from 1 (Adam's bias correction needs it), to OPTIMIZER_STEP_MAX; @learning_rate is
 * finite. Numbers beyond f32's range are cut at its largest. @spec has passed table_spec_check()
 * and has an optimizer. */
void optimizer_prepare(const struct table_spec *spec, double learning_rate, uint64_t step,
                       struct optimizer_push *ret_push);

/* Updates @count different rows: row i, whole (weights, then state), at @rows[i], aligned to its
 * numbers (2 or 4 bytes); its gradient at @gradients + i * dim, which is used up: its content is
 * lost. */
void optimizer_update(const struct optimizer_push *push, const uint64_t *row_ids, void *const *rows,
                      float *gradients, uint32_t count);
void optimizer_update_with(enum kernels_isa isa, const struct optimizer_push *push,
                           const uint64_t *row_ids, void *const *rows, float *gradients,
                           uint32_t count);

/* The same with the gradients of @batch's runs: row i's is that of run i of those asked for, made
 * right before it is used (reduce.h), so that of all gradients only one is in the cache.
 * @batch->rows has room for one. */
void optimizer_update_runs(const struct optimizer_push *push, const uint64_t *row_ids,
                           void *const *rows, const struct reduce_batch *batch);
void optimizer_update_runs_with(enum kernels_isa isa, const struct optimizer_push *push,
                                const uint64_t *row_ids, void *const *rows,
                                const struct reduce_batch *batch);

#endif
