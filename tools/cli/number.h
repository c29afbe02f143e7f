/* SPDX-License-Identifier: Apache-2.0 */
/* number.h: numbers as people read and write them, and the numbers in a row. */
#ifndef EMBTIER_TOOLS_CLI_NUMBER_H
#define EMBTIER_TOOLS_CLI_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/macros.h"

struct number_text {
    char text[48];
};

/* "12,345", "1.5 GiB", "3.25": each in the caller's buffer, which is also returned. */
const char *number_count(struct number_text *buffer, double value);
const char *number_bytes(struct number_text *buffer, double bytes);
const char *number_duration(struct number_text *buffer, double seconds); /* "1h02m", "45s" */

/* A decimal number without sign, blanks or anything behind it. */
MUST_CHECK bool number_parse_u64(const char *text, uint64_t *ret_value);
/* The decimal number that @text begins with, such as -0.5 or 1e-3, up to *@ret_end: no blanks, no
 * words such as nan, and none that a double cannot tell from 0 or from infinity. */
MUST_CHECK bool number_parse_double(const char *text, double *ret_value, const char **ret_end);
/* The same with nothing behind it. */
MUST_CHECK bool number_is_double(const char *text, double *ret_value);

/* One number of a row, exact in every bit of f32, f16 and bf16. */
double number_decode(enum embtier_dtype dtype, const void *bytes);
/* Rounds to nearest, ties to even, as the server does it. False: a finite number is too large for
 * the dtype, and nothing is written. Infinity and NaN stay what they are. */
MUST_CHECK bool number_encode(enum embtier_dtype dtype, double value, void *ret_bytes);
/* The number that @text begins with, and what is behind it: decimal, as number_parse_double(), or
 * nan or inf. False: there is none. A finite number beyond f64 becomes the greatest there, and one
 * that is not 0 and too small the least. */
MUST_CHECK bool number_parse_f64(const char *text, double *ret_value, char **ret_end);
/* The least number above 0, a subnormal. */
double number_min(enum embtier_dtype dtype);
/* The greatest finite number. */
double number_max(enum embtier_dtype dtype);
/* Decimal digits that bring a number of this dtype back to the bit. */
int number_digits(enum embtier_dtype dtype);

#endif
