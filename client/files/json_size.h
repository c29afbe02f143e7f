/* SPDX-License-Identifier: Apache-2.0 */
/* json_size.h: bounds the size of a hostile text's tree before jansson makes it.
 *
 * A text of some MiB can be millions of empty lists, which are a gigabyte as a tree. It can also be
 * nested as deep as it is long. In a list or an object, each value but the first has a comma before
 * it; in an object, each has a colon too. So the count of separators bounds the number of values.
 * Pure. */
#ifndef EMBTIER_CLIENT_FILES_JSON_SIZE_H
#define EMBTIER_CLIENT_FILES_JSON_SIZE_H

#include <stddef.h>
#include <stdint.h>

struct json_size {
    uint64_t separators; /* commas and colons outside of strings */
    uint32_t depth;      /* nesting of lists and objects */
    size_t too_deep_at;  /* the byte where @most_depth is exceeded */
};

/* Counts until the text ends or is deeper than @most_depth. It does not check that the text is
 * JSON; jansson does. */
struct json_size json_size_of(const char *text, size_t bytes, uint32_t most_depth);

#endif
