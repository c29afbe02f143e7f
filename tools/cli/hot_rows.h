/* SPDX-License-Identifier: Apache-2.0 */
/* hot_rows.h: the ids of hot rows in a file, as `embtier trace hottest --save` writes it. Thread:
 * one. */
#ifndef EMBTIER_TOOLS_CLI_HOT_ROWS_H
#define EMBTIER_TOOLS_CLI_HOT_ROWS_H

#include <stdint.h>

#include "base/err.h"

/* Returns the arena of a client that names so many hot rows in a move; 0 for none. */
uint64_t hot_rows_arena_bytes(uint64_t count);

/* Reads the tensor "ids" of a safetensors file, or the one of a .npy file: 64-bit integers in one
 * dimension, at least one. @ret_ids is malloced. INVALID, and the errors of tensor_reader_open().
 */
MUST_CHECK enum embtier_err hot_rows_read_file(const char *path, uint64_t **ret_ids,
                                               uint64_t *ret_count, struct err_msg *msg);

#endif
