/* SPDX-License-Identifier: Apache-2.0 */
/* sums.h: puts right checksums into files that a fuzzer has changed, so that what lies behind the
 * check is reached. Without this all inputs but the seeds would end there. An input keeps a wrong
 * checksum whose digits are WRONG_SUM. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_SUMS_H
#define EMBTIER_TESTS_FUZZ_LIB_SUMS_H

#include <inttypes.h>
#include <jansson.h>

#include "store/files/summed_json.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "tests/fuzz/lib/fuzz.h"

#define SUM_DIGITS 8
#define WRONG_SUM  "ffffffff"

/* Returns the CRC-32C of three pieces of text. */
static inline uint32_t sum_of(const char *text, size_t count, const char *middle, const char *end)
{
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();

    rocksdb_ext_sum_add(sum, text, count);
    rocksdb_ext_sum_add(sum, middle, strlen(middle));
    rocksdb_ext_sum_add(sum, end, strlen(end));
    return rocksdb_ext_sum_end(sum);
}

static inline void sum_put(char *digits, uint32_t sum)
{
    char text[SUM_DIGITS + 1];

    if (memcmp(digits, WRONG_SUM, SUM_DIGITS) == 0)
        return;
    snprintf(text, sizeof(text), "%08" PRIx32, sum);
    memcpy(digits, text, SUM_DIGITS);
}

/* Repairs a text of JSON whose first member is its checksum (store/files/summed_json.h). Other
 * texts stay as they are. */
static inline void sum_repair_json(char *text)
{
    static const char before[] = "\"" SUMMED_JSON_KEY "\": \"";
    char *digits = text + strspn(text, "{ \n");

    if (strncmp(digits, before, strlen(before)) != 0)
        return;
    digits += strlen(before);
    if (strlen(digits) >= SUM_DIGITS)
        sum_put(digits,
                sum_of(text, (size_t)(digits - text), SUMMED_JSON_NONE, digits + SUM_DIGITS));
}

/* Repairs each line of a file of such texts. */
static inline void sum_repair_lines(char *text)
{
    while (*text) {
        char *const newline = strchr(text, '\n');

        if (newline)
            *newline = '\0';
        sum_repair_json(text);
        if (!newline)
            return;
        *newline = '\n';
        text = newline + 1;
    }
}

#endif
