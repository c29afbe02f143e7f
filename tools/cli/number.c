/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/number.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/text/bytes.h"

#define EXACT_INTEGERS 9007199254740992.0 /* 2^53 */

const char *number_count(struct number_text *buffer, double value)
{
    char digits[32];
    char *out = buffer->text;

    if (!(fabs(value) < EXACT_INTEGERS) || value != floor(value)) {
        snprintf(buffer->text, sizeof(buffer->text), "%.6g", value);
        return buffer->text;
    }
    snprintf(digits, sizeof(digits), "%.0f", fabs(value));
    if (value < 0)
        *out++ = '-';
    for (size_t left = strlen(digits), i = 0; left > 0; left--, i++) {
        *out++ = digits[i];
        if (left > 1 && left % 3 == 1)
            *out++ = ',';
    }
    *out = '\0';
    return buffer->text;
}

const char *number_bytes(struct number_text *buffer, double bytes)
{
    struct bytes_text text;

    snprintf(buffer->text, sizeof(buffer->text), "%s", format_bytes_rounded(&text, bytes));
    return buffer->text;
}

const char *number_duration(struct number_text *buffer, double seconds)
{
    const uint64_t whole = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;

    if (whole < 60)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "s", whole);
    else if (whole < 3600)
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "m%02" PRIu64 "s", whole / 60,
                 whole % 60);
    else if (whole < UINT64_C(86400))
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "h%02" PRIu64 "m", whole / 3600,
                 whole / 60 % 60);
    else
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "d%02" PRIu64 "h", whole / 86400,
                 whole / 3600 % 24);
    return buffer->text;
}

const char *number_time(struct number_text *buffer, double seconds)
{
    static const char *const units[] = { "s", "ms", "us", "ns" };
    size_t unit = 0;

    /* 0.9996 s has the digits 1 s, not 1e+03 ms. */
    while (seconds != 0 && fabs(seconds) < 0.9995 && unit + 1 < ARRAY_LEN(units)) {
        seconds *= 1000;
        unit++;
    }
    snprintf(buffer->text, sizeof(buffer->text), "%.3g %s", seconds, units[unit]);
    return buffer->text;
}

const char *number_date(struct number_text *buffer, uint64_t since_1970_ms)
{
    const time_t seconds = (time_t)(since_1970_ms / 1000);
    struct tm utc;

    if (!gmtime_r(&seconds, &utc) ||
        strftime(buffer->text, sizeof(buffer->text), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(buffer->text, sizeof(buffer->text), "?");
    return buffer->text;
}

bool number_parse_u64(const char *text, uint64_t *ret_value)
{
    unsigned long long value;
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *ret_value = value;
    return true;
}

/* strtod() alone would accept blanks, words and 0x. @digits: the text behind a sign. */
static bool begins_decimal(const char *digits)
{
    return isdigit((unsigned char)digits[digits[0] == '.']) && digits[1] != 'x' && digits[1] != 'X';
}

bool number_parse_double(const char *text, double *ret_value, const char **ret_end)
{
    const char *const digits = text + (text[0] == '-' || text[0] == '+');
    double value;
    char *end;

    if (!begins_decimal(digits))
        return false;
    errno = 0;
    value = strtod(text, &end);
    if (errno == ERANGE && (value == 0 || isinf(value)))
        return false;
    *ret_value = value;
    *ret_end = end;
    return true;
}

bool number_is_double(const char *text, double *ret_value)
{
    const char *end;

    return number_parse_double(text, ret_value, &end) && *end == '\0';
}

bool number_parse_rate(const char *text, uint64_t *ret_bytes)
{
    const double most = (double)(UINT64_C(1) << 62);
    double mib;

    if (!number_is_double(text, &mib) || !(mib >= 0) || mib * MIB > most)
        return false;
    *ret_bytes = mib > 0 ? MAX((uint64_t)(mib * MIB), UINT64_C(1)) : 0;
    return true;
}

/* IEEE 754 interchange formats differ only in two widths. */
struct float_format {
    int bytes;
    int exponent_bits;
    int mantissa_bits;
    int digits;
};

static struct float_format format_of(enum embtier_dtype dtype)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return (struct float_format){ 2, 5, 10, 5 };
    case EMBTIER_DTYPE_BF16:
        return (struct float_format){ 2, 8, 7, 4 };
    case EMBTIER_DTYPE_F32:
        break;
    }
    return (struct float_format){ 4, 8, 23, 9 };
}

int number_digits(enum embtier_dtype dtype)
{
    return format_of(dtype).digits;
}

static uint32_t read_bits(const void *bytes, int count)
{
    uint32_t four;
    uint16_t two;

    if (count == 4) {
        memcpy(&four, bytes, sizeof(four));
        return four;
    }
    memcpy(&two, bytes, sizeof(two));
    return two;
}

double number_decode(enum embtier_dtype dtype, const void *bytes)
{
    const struct float_format format = format_of(dtype);
    const uint32_t bits = read_bits(bytes, format.bytes);
    const int exponent_max = (1 << format.exponent_bits) - 1;
    const int exponent = (int)(bits >> format.mantissa_bits) & exponent_max;
    const uint32_t hidden = UINT32_C(1) << format.mantissa_bits;
    const uint32_t mantissa = bits & (hidden - 1);
    const double sign = bits >> (8 * format.bytes - 1) ? -1.0 : 1.0;

    if (exponent == exponent_max)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(exponent ? mantissa + hidden : mantissa,
                        MAX(exponent, 1) - exponent_max / 2 - format.mantissa_bits);
}

static uint32_t encode_bits(struct float_format format, double value)
{
    const uint32_t infinity = ((UINT32_C(1) << format.exponent_bits) - 1) << format.mantissa_bits;
    const int exponent_min = 2 - (1 << (format.exponent_bits - 1)); /* of a normal number */
    uint32_t bits;
    int exponent;

    if (isnan(value))
        return infinity | UINT32_C(1) << (format.mantissa_bits - 1);
    if (isinf(value))
        return infinity;
    if (value == 0)
        return 0;
    (void)frexp(value, &exponent);
    exponent = MAX(exponent - 1, exponent_min);
    if (exponent > -exponent_min + 1)
        return infinity;
    /* The hidden bit of a normal number, and rounding up to the next power, carry into the
     * exponent. */
    bits = (uint32_t)nearbyint(ldexp(value, format.mantissa_bits - exponent));
    bits += (uint32_t)(exponent - exponent_min) << format.mantissa_bits;
    return MIN(bits, infinity);
}

double number_min(enum embtier_dtype dtype)
{
    const struct float_format format = format_of(dtype);

    return ldexp(1.0, 3 - (1 << (format.exponent_bits - 1)) - format.mantissa_bits - 1);
}

double number_max(enum embtier_dtype dtype)
{
    const struct float_format format = format_of(dtype);

    return ldexp(2.0 - ldexp(1.0, -format.mantissa_bits), (1 << (format.exponent_bits - 1)) - 1);
}

/* Parses "nan" or "-inf", in the form that `embtier get` prints. */
static bool parse_word(const char *text, double *ret_value, char **ret_end)
{
    const char *const word = text + (text[0] == '-' || text[0] == '+');
    const bool is_nan = strncasecmp(word, "nan", 3) == 0;

    if ((!is_nan && strncasecmp(word, "inf", 3) != 0) || isalnum((unsigned char)word[3]) ||
        word[3] == '(')
        return false;
    *ret_value = copysign(is_nan ? (double)NAN : (double)INFINITY, text[0] == '-' ? -1.0 : 1.0);
    *ret_end = (char *)word + 3;
    return true;
}

bool number_parse_f64(const char *text, double *ret_value, char **ret_end)
{
    const char *const digits = text + (text[0] == '-' || text[0] == '+');

    if (parse_word(text, ret_value, ret_end))
        return true;
    if (!begins_decimal(digits))
        return false;
    errno = 0;
    *ret_value = strtod(text, ret_end);
    if (errno == ERANGE && isinf(*ret_value))
        *ret_value = copysign(DBL_MAX, *ret_value);
    if (errno == ERANGE && *ret_value == 0)
        *ret_value = copysign(DBL_TRUE_MIN, *ret_value);
    return true;
}

bool number_encode(enum embtier_dtype dtype, double value, void *ret_bytes)
{
    const struct float_format format = format_of(dtype);
    const uint32_t infinity = encode_bits(format, (double)INFINITY);
    const uint32_t sign = signbit(value) ? UINT32_C(1) << (8 * format.bytes - 1) : 0;
    const uint32_t four = encode_bits(format, fabs(value)) | sign;
    const uint16_t two = (uint16_t)four;

    if (isfinite(value) && encode_bits(format, fabs(value)) == infinity)
        return false;
    if (format.bytes == 4)
        memcpy(ret_bytes, &four, sizeof(four));
    else
        memcpy(ret_bytes, &two, sizeof(two));
    return true;
}
