/* SPDX-License-Identifier: Apache-2.0 */
/* number.h: numbers in the form that people read and write, and the numbers of a row. */
#ifndef EMBTIER_TOOLS_CLI_NUMBER_H
#define EMBTIER_TOOLS_CLI_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/macros.h"

struct number_text {
    char text[48];
};

/* Write "12,345", "1.5 GiB" or "3.25" into the caller's buffer and return it. */
const char *number_count(struct number_text *buffer, double value);
const char *number_bytes(struct number_text *buffer, double bytes);
const char *number_duration(struct number_text *buffer, double seconds); /* "1h02m", "45s" */
const char *number_time(struct number_text *buffer, double seconds);     /* "1.25 ms", "30 s" */
/* A time like those of the server's log: "2026-11-23T08:16:09Z". */
const char *number_date(struct number_text *buffer, uint64_t since_1970_ms);

/* Parses a decimal number without sign or blanks, and with nothing behind it. */
MUST_CHECK bool number_parse_u64(const char *text, uint64_t *ret_value);
/* Parses a number of MiB, with a fraction if it has one, as bytes; only 0 is 0. */
MUST_CHECK bool number_parse_rate(const char *text, uint64_t *ret_bytes);
/* Parses the decimal number that @text begins with, such as -0.5 or 1e-3, up to *@ret_end. False:
 * there is none, it begins with blanks or is a word such as nan, or a double would turn it into 0
 * or infinity. */
MUST_CHECK bool number_parse_double(const char *text, double *ret_value, const char **ret_end);
/* As number_parse_double(), with nothing behind the number. */
MUST_CHECK bool number_is_double(const char *text, double *ret_value);

/* Decodes one number of a row, exact in every bit of f32, f16 and bf16. */
double number_decode(enum embtier_dtype dtype, const void *bytes);
/* Encodes one number of a row, rounded to nearest, ties to even, like the server. False: a finite
 * number is too large for the dtype, and nothing is written. Infinity and NaN are kept. */
MUST_CHECK bool number_encode(enum embtier_dtype dtype, double value, void *ret_bytes);
/* Parses the number that @text begins with, and returns the text behind it. The number is
 * decimal, as for number_parse_double(), or nan or inf. False: there is none. A finite number
 * beyond f64 becomes the greatest f64. A number that is not 0 but too small for f64 becomes the
 * smallest one. */
MUST_CHECK bool number_parse_f64(const char *text, double *ret_value, char **ret_end);
/* Returns the smallest number above 0, a subnormal. */
double number_min(enum embtier_dtype dtype);
/* Returns the greatest finite number. */
double number_max(enum embtier_dtype dtype);
/* Returns the number of decimal digits that preserve every bit of a number of this dtype. */
int number_digits(enum embtier_dtype dtype);

#endif
