/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_types.h: the words that describe a table. Installed beside embtier.h.
 *
 * The numbers go over the wire and to disk, so they are never changed or reused. Each table
 * below is the only list of its words; parsing, checks, help texts and man pages are generated
 * from it. */
#ifndef EMBTIER_TYPES_H
#define EMBTIER_TYPES_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, word, bytes of one number) */
#define EMBTIER_DTYPE_TABLE(X)                                                                     \
    X(F32, 1, "f32", 4)                                                                            \
    X(F16, 2, "f16", 2)                                                                            \
    X(BF16, 3, "bf16", 2)

/* X(name, field, lowest, highest, default, description): constants of an optimizer, fixed when
 * the table is created. The learning rate and the step come with each push. The bounds are
 * inclusive. */
#define EMBTIER_HYPERPARAMETER_TABLE(X)                                                            \
    X(EPS, eps, 0, 1, 0, "added to the root that divides gradients")                               \
    X(ALPHA, alpha, 0, 1, 0.99, "decay of the moving mean of squared gradients")                   \
    X(BETA1, beta1, 0, 0.9999999, 0.9, "decay of the first moment")                                \
    X(BETA2, beta2, 0, 0.9999999, 0.999, "decay of the second moment")                             \
    X(MOMENTUM, momentum, 0, 0.9999999, 0.9, "decay of the velocity")                              \
    X(WEIGHT_DECAY, weight_decay, 0, 1e30, 0,                                                      \
      "share of the weights added to the gradient; adamw: subtracted from the weights")            \
    X(CLIP_NORM, clip_norm, 0, 1e30, 0, "largest Euclidean norm of a row's gradient; 0: no limit")

/* X(name, number, word, f32 state numbers per weight, and per row, hyperparameters of its own,
 * default of eps, default of weight_decay, description). All but `none` also have weight_decay and
 * clip_norm. The state follows the row's weights: the per-weight arrays of dim numbers first, then
 * the per-row numbers. */
#define EMBTIER_OPTIMIZER_TABLE(X)                                                                 \
    X(NONE, 0, "none", 0, 0, (0), 0, 0, "no optimizer: rows are only set")                         \
    X(SGD, 1, "sgd", 0, 0, (0), 0, 0, "stochastic gradient descent, no state")                     \
    X(ADAGRAD, 2, "adagrad", 1, 0, (1 << EMBTIER_EPS), 1e-10, 0,                                   \
      "sum of squared gradients per weight")                                                       \
    X(ROWWISE_ADAGRAD, 3, "rowwise_adagrad", 0, 1, (1 << EMBTIER_EPS), 1e-10, 0,                   \
      "sum of mean squared gradients, one per row")                                                \
    X(RMSPROP, 4, "rmsprop", 1, 0, (1 << EMBTIER_EPS | 1 << EMBTIER_ALPHA), 1e-8, 0,               \
      "moving mean of squared gradients per weight")                                               \
    X(ADAM, 5, "adam", 2, 0, (1 << EMBTIER_EPS | 1 << EMBTIER_BETA1 | 1 << EMBTIER_BETA2), 1e-8,   \
      0, "first and second moments per weight")                                                    \
    X(MOMENTUM, 6, "momentum", 1, 0, (1 << EMBTIER_MOMENTUM), 0, 0,                                \
      "stochastic gradient descent with a velocity per weight")                                    \
    X(ADAMW, 7, "adamw", 2, 0, (1 << EMBTIER_EPS | 1 << EMBTIER_BETA1 | 1 << EMBTIER_BETA2), 1e-8, \
      0.01, "adam, with weight decay separate from the gradient")                                  \
    X(SPARSE_ADAM, 8, "sparse_adam", 2, 0,                                                         \
      (1 << EMBTIER_EPS | 1 << EMBTIER_BETA1 | 1 << EMBTIER_BETA2), 1e-8, 0,                       \
      "adam, with eps added before the second moment is corrected")

/* X(name, number, word, description): how the rows of a bag are reduced. */
#define EMBTIER_POOL_TABLE(X)                                                                      \
    X(SUM, 1, "sum", "sum of the rows, each times its weight if there are weights")                \
    X(MEAN, 2, "mean", "that sum divided by the number of rows")                                   \
    X(MAX, 3, "max", "largest number of each column; takes no weights")

/* X(name, number, word, first parameter, second parameter, description); "" means no such
 * parameter. */
#define EMBTIER_INIT_TABLE(X)                                                                      \
    X(ZEROS, 0, "zeros", "", "", "all zeros")                                                      \
    X(CONSTANT, 1, "constant", "value", "", "every weight the same")                               \
    X(UNIFORM, 2, "uniform", "low", "high", "uniform in [low, high)")                              \
    X(NORMAL, 3, "normal", "mean", "stddev", "normal distribution")

/* X(name, number, word, failures that an acknowledged update survives) */
#define EMBTIER_DURABILITY_TABLE(X)                                                                \
    X(REPLAY, 0, "replay", "a clean stop of the server, a crash once a checkpoint has it")         \
    X(ASYNC, 1, "async", "the death of the server's process")                                      \
    X(SYNC, 2, "sync", "loss of power")

/* X(name, number, word, where a table's rows lie while they are in memory) */
#define EMBTIER_HOME_TABLE(X)                                                                      \
    X(CACHE, 0, "cache", "the warm ones in the row cache, those used last in the fastest tier")    \
    X(ARRAY, 1, "array", "all of them in an array in one tier, each found by its id alone")        \
    X(SPLIT, 2, "split",                                                                           \
      "hot rows that the user names in an array in one tier, others in the cache")

enum embtier_dtype {
#define X(name, number, word, bytes) EMBTIER_DTYPE_##name = number,
    EMBTIER_DTYPE_TABLE(X)
#undef X
};

enum embtier_hyperparameter {
#define X(name, field, lowest, highest, standard, text) EMBTIER_##name,
    EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
};

enum embtier_optimizer {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    EMBTIER_OPTIMIZER_##name = number,
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
};

enum embtier_pool {
#define X(name, number, word, text) EMBTIER_POOL_##name = number,
    EMBTIER_POOL_TABLE(X)
#undef X
};

enum embtier_init {
#define X(name, number, word, first, second, text) EMBTIER_INIT_##name = number,
    EMBTIER_INIT_TABLE(X)
#undef X
};

enum embtier_durability {
#define X(name, number, word, text) EMBTIER_DURABILITY_##name = number,
    EMBTIER_DURABILITY_TABLE(X)
#undef X
};

enum embtier_home {
#define X(name, number, word, text) EMBTIER_HOME_##name = number,
    EMBTIER_HOME_TABLE(X)
#undef X
};

/* Stands for a hyperparameter that is not given: the optimizer's default, or 0 if the optimizer
 * lacks it. No other number means that; NaN and all other negative numbers are mistakes. */
#define EMBTIER_DEFAULT (-1e300)

#define EMBTIER_DIM_MAX        8192
#define EMBTIER_TABLE_NAME_MAX 127
#define EMBTIER_STEP_MAX       ((UINT64_C(1) << 53) - 1) /* of a training run */
/* Limits of a group of trainers: bytes of its name, which follows the rules of table names, and
 * members. */
#define EMBTIER_GROUP_NAME_MAX    127
#define EMBTIER_GROUP_MEMBERS_MAX 256
/* The most bytes that a user may attach to a checkpoint. */
#define EMBTIER_METADATA_MAX 4096
/* The row count of a table that accepts any 64-bit id. */
#define EMBTIER_UNBOUNDED 0

#ifdef __cplusplus
}
#endif
#endif
