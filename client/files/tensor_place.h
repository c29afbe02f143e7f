/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_place.h: what the parsers of both formats of tensor_file.h deliver, and share. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_PLACE_H
#define EMBTIER_CLIENT_FILES_TENSOR_PLACE_H

#include <stdbool.h>

#include "client/files/tensor_file.h"

struct tensor_place {
    struct tensor_info info;
    uint64_t offset; /* of its data in the file */
};

/* Whether @name (may be NULL) is that of a file in the folder that names it, and fit to be shown in
 * a message. */
bool tensor_file_name_is_plain(const char *name);
/* Computes rows, row_bytes and bytes from dtype and shape. False: more than 64 bits can say. */
MUST_CHECK bool tensor_info_count(struct tensor_info *info);

#endif
