/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_place.h: what the parsers of both formats of tensor_file.h deliver, and share. */
#ifndef EMBTIER_CLIENT_TENSOR_PLACE_H
#define EMBTIER_CLIENT_TENSOR_PLACE_H

#include <stdbool.h>

#include "client/tensor_file.h"

struct tensor_place {
    struct tensor_info info;
    uint64_t offset; /* of its data in the file */
};

/* A piece of a hostile file, for a message: cut short, "?" for what is not printable ASCII. */
struct shown_text {
    char text[68];
};

/* Returns @shown's text. */
const char *show_text(struct shown_text *shown, const char *text, size_t bytes);

/* Has control characters, those of UTF-8's second page too: not to be shown on a terminal. */
bool tensor_name_has_controls(const char *name);

/* Computes rows, row_bytes and bytes from dtype and shape. False: more than 64 bits can say. */
MUST_CHECK bool tensor_info_count(struct tensor_info *info);

#endif
