/* SPDX-License-Identifier: Apache-2.0 */
/* json_size.h: how large a hostile text's tree would be, before jansson makes it.
 *
 * A text of some MiB can be millions of empty lists, a gigabyte as a tree; and it can be nested as
 * deep as it is long. Each value but the first of a list or an object has a comma before it, those
 * of an object a colon too, and so the separators bound the values. Pure. */
#ifndef EMBTIER_CLIENT_FILES_JSON_SIZE_H
#define EMBTIER_CLIENT_FILES_JSON_SIZE_H

#include <stddef.h>
#include <stdint.h>

struct json_size {
    uint64_t separators; /* commas and colons outside of strings */
    uint32_t depth;      /* of lists and objects in each other */
    size_t too_deep_at;  /* the byte where it is more than was asked for */
};

/* Counts no further than to where it is deeper than @most_depth. Whether it is JSON at all is
 * jansson's to say. */
struct json_size json_size_of(const char *text, size_t bytes, uint32_t most_depth);

#endif
