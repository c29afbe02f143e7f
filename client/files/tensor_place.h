/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_place.h: the result of parsing a header, and helpers that the parsers of both formats in
 * tensor_file.h share. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_PLACE_H
#define EMBTIER_CLIENT_FILES_TENSOR_PLACE_H

#include <stdbool.h>

#include "client/files/tensor_file.h"

struct tensor_place {
    struct tensor_info info;
    uint64_t offset; /* of its data in the file */
};

/* True if @name is fit for messages and names a file in the folder of the file that mentions it.
 * @name may be NULL. */
bool tensor_file_name_is_plain(const char *name);
/* Computes rows, row_bytes and bytes from dtype and shape. False: one of them exceeds 64 bits. */
MUST_CHECK bool tensor_info_count(struct tensor_info *info);

#endif
