/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_dtype.h: the types of numbers in tensor files.
 *
 * The table has all of safetensors' types that fill whole bytes. F4 and F6 are left out: their rows
 * need not begin at a byte. All types are little-endian in both formats. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_DTYPE_H
#define EMBTIER_CLIENT_FILES_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* X(name and word of safetensors, bytes of one number, NumPy's word). NumPy knows neither BF16 nor
 * 8-bit floating point; these are written as unsigned numbers of the same bits. A NumPy word that
 * is read stands for the first row that has it. So the unsigned types come before those that borrow
 * their words, and reading never guesses beyond the file's content. */
#define TENSOR_DTYPE_TABLE(X)                                                                      \
    X(BOOL, 1, "|b1")                                                                              \
    X(U8, 1, "|u1")                                                                                \
    X(I8, 1, "|i1")                                                                                \
    X(F8_E4M3, 1, "|u1")                                                                           \
    X(F8_E5M2, 1, "|u1")                                                                           \
    X(F8_E8M0, 1, "|u1")                                                                           \
    X(F8_E4M3FNUZ, 1, "|u1")                                                                       \
    X(F8_E5M2FNUZ, 1, "|u1")                                                                       \
    X(U16, 2, "<u2")                                                                               \
    X(I16, 2, "<i2")                                                                               \
    X(F16, 2, "<f2")                                                                               \
    X(BF16, 2, "<u2")                                                                              \
    X(U32, 4, "<u4")                                                                               \
    X(I32, 4, "<i4")                                                                               \
    X(F32, 4, "<f4")                                                                               \
    X(U64, 8, "<u8")                                                                               \
    X(I64, 8, "<i8")                                                                               \
    X(F64, 8, "<f8")                                                                               \
    X(C64, 8, "<c8")

enum tensor_dtype {
    TENSOR_DTYPE_NONE,
#define X(name, bytes, numpy) TENSOR_##name,
    TENSOR_DTYPE_TABLE(X)
#undef X
};

/* Returns 0 for a number outside the enum. */
uint32_t tensor_dtype_bytes(enum tensor_dtype dtype);
/* Return "F32" and "<f4"; "" for a number outside the enum. */
const char *tensor_dtype_word(enum tensor_dtype dtype);
const char *tensor_dtype_numpy(enum tensor_dtype dtype);
/* Return TENSOR_DTYPE_NONE if there is no such word. */
enum tensor_dtype tensor_dtype_from_word(const char *word);
enum tensor_dtype tensor_dtype_from_numpy(const char *word);

#endif
