/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h: byte counts as people write them. Thread: any. */
#ifndef EMBTIER_BASE_TEXT_BYTES_H
#define EMBTIER_BASE_TEXT_BYTES_H

#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

/* Parses "192GiB", "4096", "1.5MiB" and such; units B KiB MiB GiB TiB (powers of 1024) and kB MB GB
 * TB (powers of 1000). */
MUST_CHECK enum embtier_err parse_bytes(const char *text, uint64_t *ret_bytes);

/* Formats @bytes: "192GiB" where that is exact, else rounded, "23.41GiB". Returns @buffer's
 * text. */
struct bytes_text {
    char text[32];
};
const char *format_bytes(struct bytes_text *buffer, uint64_t bytes);
/* Formats @bytes as tables for people show them, rounded: "7.3 MiB". */
const char *format_bytes_rounded(struct bytes_text *buffer, double bytes);
#define BYTES_TEXT(bytes) format_bytes(&(struct bytes_text){ { 0 } }, (bytes))

#endif
