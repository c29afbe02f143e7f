/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_types.h: the words a table is described with. Installed beside embtier.h.
 *
 * Numbers go over the wire and to disk: never changed or used again. Each table below is the only
 * place that lists its words; parsing, checking, help texts and man pages are generated from it. */
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

/* X(name, number, word, f32 state numbers per row as a function of dim, what it is). The state lies
 * behind the weights of its row. Row-wise Adagrad keeps one number for a whole row. */
#define EMBTIER_OPTIMIZER_TABLE(X)                                                                 \
    X(NONE, 0, "none", 0, "no optimizer: rows are only set")                                       \
    X(SGD, 1, "sgd", 0, "stochastic gradient descent, no state")                                   \
    X(ADAGRAD, 2, "adagrad", dim, "sum of squared gradients per weight")                           \
    X(ROWWISE_ADAGRAD, 3, "rowwise_adagrad", 1, "mean squared gradient summed, one per row")       \
    X(RMSPROP, 4, "rmsprop", dim, "moving mean of squared gradients per weight")                   \
    X(ADAM, 5, "adam", 2 * dim, "first and second moments per weight")

/* X(name, number, word, first parameter, second parameter, what it is); "" is: no such parameter */
#define EMBTIER_INIT_TABLE(X)                                                                      \
    X(ZEROS, 0, "zeros", "", "", "all zeros")                                                      \
    X(CONSTANT, 1, "constant", "value", "", "every weight the same")                               \
    X(UNIFORM, 2, "uniform", "low", "high", "uniform in [low, high)")                              \
    X(NORMAL, 3, "normal", "mean", "stddev", "normal distribution")

enum embtier_dtype {
#define X(name, number, word, bytes) EMBTIER_DTYPE_##name = number,
    EMBTIER_DTYPE_TABLE(X)
#undef X
};

enum embtier_optimizer {
#define X(name, number, word, state, text) EMBTIER_OPTIMIZER_##name = number,
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
};

enum embtier_init {
#define X(name, number, word, first, second, text) EMBTIER_INIT_##name = number,
    EMBTIER_INIT_TABLE(X)
#undef X
};

#define EMBTIER_DIM_MAX        8192
#define EMBTIER_TABLE_NAME_MAX 127
/* The row count of a table in which any 64-bit id is a row. */
#define EMBTIER_UNBOUNDED 0

#ifdef __cplusplus
}
#endif
#endif
