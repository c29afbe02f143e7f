/* SPDX-License-Identifier: Apache-2.0 */
/* submission_input.h: the layout of an input of fuzz_submission, for it and for its seeds.
 *
 *     offset  bytes       contents
 *          0      1       requests, 1 to SUBMISSION_REQUESTS_MAX; modulo
 *          1      1       SUBMISSION_ flags
 *          2  64 * count  the requests: struct op_submission
 *       then  the rest    the client's part of the region, from its first byte on; then zeros
 *
 * Numbers that no input can know are small numbers there: a segment's table is that of
 * SUBMISSION_TABLES, from 1; a ticket or prefetch is the answer to the request with that number,
 * from 1. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_SUBMISSION_INPUT_H
#define EMBTIER_TESTS_FUZZ_LIB_SUBMISSION_INPUT_H

#define SUBMISSION_REQUESTS_MAX 4
#define SUBMISSION_REGION_BYTES 16384
#define SUBMISSION_AT_ONCE      1 /* the requests do not wait for each other's answers */

/* X(name, rows, dim, dtype, optimizer, home, durability): the tables of small numbers. */
#define SUBMISSION_TABLES(X)                                                                       \
    X("adagrad", 64, 4, F32, ADAGRAD, CACHE, REPLAY)                                               \
    X("odd", 1000, 5, F16, SGD, CACHE, REPLAY)                                                     \
    X("array", 64, 3, F32, MOMENTUM, ARRAY, REPLAY)                                                \
    X("logged", 32, 8, BF16, ADAM, CACHE, ASYNC)                                                   \
    X("large", 50000, 16, F32, ROWWISE_ADAGRAD, CACHE, REPLAY)

#define SUBMISSION_TABLE_ONE(...) +1
#define SUBMISSION_TABLE_COUNT    (0 SUBMISSION_TABLES(SUBMISSION_TABLE_ONE))

#endif
