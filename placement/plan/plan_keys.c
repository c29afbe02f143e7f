/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/plan/plan_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "base/text/bytes.h"

static const char *const home_words[] = {
    [PLAN_HBM] = "hbm", [PLAN_ARRAY] = "array", [PLAN_CACHE] = "cache"
};

#define KEY_OF(section, key, type, where)                                                          \
    { #key,                                                                                        \
      PLAN_KEY_##type,                                                                             \
      (where),                                                                                     \
      offsetof(struct section, key),                                                               \
      sizeof(((struct section *)NULL)->key),                                                       \
      offsetof(struct raw_##section, key) },
#define X(section, keys)                                                                           \
    const struct plan_key section##_keys[] = { keys(KEY_OF){ NULL, 0, 0, 0, 0, 0 } };
PLAN_SECTIONS(X)
#undef X

/* ---- The schema ---- */

/* Texts are optional for libcyaml, as our own messages tell what is missing. A table may be named
 * "null", so no word stands for a missing text. */
#define FLAGS (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

static const cyaml_schema_value_t text_schema = { CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0,
                                                                     CYAML_UNLIMITED) };

#define FIELD_COUNT(section, key)                                                                  \
    CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_##section, key, 0, CYAML_UNLIMITED),
#define FIELD_REALS(section, key)                                                                  \
    CYAML_FIELD_SEQUENCE(#key, FLAGS, struct raw_##section, key.items, &text_schema, 0,            \
                         PLAN_TIERS_MAX),
#define FIELD_NUMBER    FIELD_COUNT
#define FIELD_BYTES     FIELD_COUNT
#define FIELD_ROWS      FIELD_COUNT
#define FIELD_REST      FIELD_COUNT
#define FIELD_REAL      FIELD_COUNT
#define FIELD_TEXT      FIELD_COUNT
#define FIELD_HASH      FIELD_COUNT
#define FIELD_GPU       FIELD_COUNT
#define FIELD_FLAG      FIELD_COUNT
#define FIELD_HOME      FIELD_COUNT
#define FIELD_DTYPE     FIELD_COUNT
#define FIELD_OPTIMIZER FIELD_COUNT

#define FIELD_OF(section, key, type, where) FIELD_##type(section, key)

static const cyaml_schema_field_t part_fields[] = { PLAN_PART_KEYS(FIELD_OF) CYAML_FIELD_END };
static const cyaml_schema_value_t part_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_plan_part, part_fields) };

static const cyaml_schema_field_t table_fields[] = { PLAN_TABLE_KEYS(FIELD_OF) CYAML_FIELD_SEQUENCE(
                                                         "parts", FLAGS, struct raw_plan_table,
                                                         parts, &part_schema, 1, PLAN_PARTS_MAX),
                                                     CYAML_FIELD_END };
static const cyaml_schema_value_t table_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_POINTER, struct raw_plan_table, table_fields) };

static const cyaml_schema_field_t memory_fields[] = { PLAN_MEMORY_KEYS(FIELD_OF) CYAML_FIELD_END };
static const cyaml_schema_value_t memory_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_plan_memory, memory_fields) };

static const cyaml_schema_field_t input_fields[] = { PLAN_INPUT_KEYS(FIELD_OF) CYAML_FIELD_END };
static const cyaml_schema_value_t input_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_plan_input, input_fields) };

static const cyaml_schema_field_t plan_fields[] = {
    FIELD_COUNT(plan, format) FIELD_COUNT(plan, version) PLAN_HEADER_KEYS(FIELD_OF)
        CYAML_FIELD_SEQUENCE("inputs", FLAGS, struct raw_plan, inputs, &input_schema, 0,
                             PLAN_INPUTS_MAX),
    CYAML_FIELD_SEQUENCE("memories", FLAGS, struct raw_plan, memories, &memory_schema, 1,
                         PLAN_MEMORIES_MAX),
    CYAML_FIELD_SEQUENCE("tables", FLAGS, struct raw_plan, tables, &table_schema, 1,
                         PLAN_TABLES_MAX),
    CYAML_FIELD_END
};
const struct cyaml_schema_value plan_schema = { CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER,
                                                                    struct raw_plan, plan_fields) };

/* ---- Writing ---- */

static const void *member(const struct plan_key *key, const void *from)
{
    return (const char *)from + key->offset;
}

static uint64_t get_u64(const struct plan_key *key, const void *from)
{
    return *(const uint64_t *)member(key, from);
}

static uint32_t get_u32(const struct plan_key *key, const void *from)
{
    return *(const uint32_t *)member(key, from);
}

bool plan_key_is_set(const struct plan_key *key, const void *from, enum plan_home home)
{
    if (key->where != KEY_IF_SET)
        return (key->where & KEY_IN(home)) != 0;
    switch (key->type) {
    case PLAN_KEY_GPU:
        return get_u32(key, from) != PLAN_NO_GPU;
    case PLAN_KEY_TEXT:
        return *(const char *)member(key, from) != '\0';
    case PLAN_KEY_FLAG:
        return *(const bool *)member(key, from);
    default:
        return *(const double *)member(key, from) != 0;
    }
}

/* Writes the fewest of 6, 9, 15, 16 or 17 digits that give the same bits when read. */
static void write_real(double number, FILE *file)
{
    static const int digits[] = { 6, 9, 15, 16, 17 };
    char text[32];

    for (size_t i = 0; i < ARRAY_LEN(digits); i++) {
        snprintf(text, sizeof(text), "%.*g", digits[i], number);
        if (strtod(text, NULL) == number)
            break;
    }
    fputs(text, file);
}

static void write_reals(const double *numbers, uint32_t count, FILE *file)
{
    fputc('[', file);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", file);
        write_real(numbers[i], file);
    }
    fputc(']', file);
}

/* In quotes, all texts are text: 1e5 and null are names of tables. */
static void write_text(const char *text, FILE *file)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

static void write_rows(uint64_t rows, const char *none, FILE *file)
{
    if (rows == 0)
        fputs(none, file);
    else
        fprintf(file, "%" PRIu64, rows);
}

void plan_key_write(const struct plan_key *key, const void *from, uint32_t list_count, FILE *file)
{
    fprintf(file, "%s: ", key->name);
    switch (key->type) {
    case PLAN_KEY_COUNT:
    case PLAN_KEY_BYTES:
        fprintf(file, "%" PRIu64, get_u64(key, from));
        return;
    case PLAN_KEY_NUMBER:
    case PLAN_KEY_GPU:
        fprintf(file, "%" PRIu32, get_u32(key, from));
        return;
    case PLAN_KEY_ROWS:
        write_rows(get_u64(key, from), "unbounded", file);
        return;
    case PLAN_KEY_REST:
        write_rows(get_u64(key, from), "rest", file);
        return;
    case PLAN_KEY_REAL:
        write_real(*(const double *)member(key, from), file);
        return;
    case PLAN_KEY_REALS:
        write_reals(member(key, from), list_count, file);
        return;
    case PLAN_KEY_TEXT:
        write_text(member(key, from), file);
        return;
    case PLAN_KEY_HASH:
        fprintf(file, "\"%016" PRIx64 "\"", get_u64(key, from));
        return;
    case PLAN_KEY_FLAG:
        fputs(*(const bool *)member(key, from) ? "true" : "false", file);
        return;
    case PLAN_KEY_HOME:
        fputs(home_words[*(const enum plan_home *)member(key, from)], file);
        return;
    case PLAN_KEY_DTYPE:
        fputs(dtype_word(*(const int *)member(key, from)), file);
        return;
    case PLAN_KEY_OPTIMIZER:
        fputs(optimizer_word(*(const int *)member(key, from)), file);
        return;
    }
}

/* ---- Reading ---- */

static enum embtier_err parse_count(const char *text, uint64_t most, uint64_t *ret_count)
{
    char *end;

    if (text[0] < '0' || text[0] > '9') /* strtoull() takes signs and blanks */
        return EMBTIER_INVALID;
    errno = 0;
    *ret_count = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *ret_count <= most ? EMBTIER_OK : EMBTIER_INVALID;
}

static enum embtier_err parse_number(const char *text, uint32_t *ret_number)
{
    uint64_t number = 0;

    TRY(parse_count(text, UINT32_MAX - 1, &number));
    *ret_number = (uint32_t)number;
    return EMBTIER_OK;
}

static enum embtier_err parse_rows(const char *text, const char *none, uint64_t *ret_rows)
{
    uint64_t rows = 0;

    if (strcmp(text, none) != 0) {
        TRY(parse_count(text, UINT64_MAX, &rows));
        if (rows == 0)
            return EMBTIER_INVALID;
    }
    *ret_rows = rows;
    return EMBTIER_OK;
}

static enum embtier_err parse_real(const char *text, double *ret_number)
{
    double number;
    char *end;

    if (text[strspn(text, "0123456789.eE+-")] != '\0') /* strtod() takes blanks, nan, 0x1p3 */
        return EMBTIER_INVALID;
    number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number))
        return EMBTIER_INVALID;
    *ret_number = number;
    return EMBTIER_OK;
}

static enum embtier_err parse_text(const char *text, char *into, size_t room)
{
    const size_t bytes = strlen(text);

    if (bytes >= room)
        return EMBTIER_INVALID;
    memcpy(into, text, bytes + 1);
    return EMBTIER_OK;
}

static enum embtier_err parse_hash(const char *text, uint64_t *ret_hash)
{
    if (strlen(text) != 16 || text[strspn(text, "0123456789abcdef")] != '\0')
        return EMBTIER_INVALID;
    *ret_hash = strtoull(text, NULL, 16);
    return EMBTIER_OK;
}

static enum embtier_err parse_flag(const char *text, bool *ret_flag)
{
    *ret_flag = strcmp(text, "true") == 0;
    return *ret_flag || strcmp(text, "false") == 0 ? EMBTIER_OK : EMBTIER_INVALID;
}

static enum embtier_err parse_home(const char *text, enum plan_home *ret_home)
{
    for (size_t i = 0; i < ARRAY_LEN(home_words); i++)
        if (strcmp(text, home_words[i]) == 0) {
            *ret_home = (enum plan_home)i;
            return EMBTIER_OK;
        }
    return EMBTIER_INVALID;
}

/* @number: of a word, negative for an unknown one. */
static enum embtier_err take_word(int number, int *ret_number)
{
    if (number < 0)
        return EMBTIER_INVALID;
    *ret_number = number;
    return EMBTIER_OK;
}

enum embtier_err plan_key_parse(const struct plan_key *key, const char *text, uint32_t item,
                                void *into)
{
    void *const member = (char *)into + key->offset;

    switch (key->type) {
    case PLAN_KEY_COUNT:
        return parse_count(text, UINT64_MAX, member);
    case PLAN_KEY_NUMBER:
    case PLAN_KEY_GPU:
        return parse_number(text, member);
    case PLAN_KEY_BYTES:
        return parse_bytes(text, member);
    case PLAN_KEY_ROWS:
        return parse_rows(text, "unbounded", member);
    case PLAN_KEY_REST:
        return parse_rows(text, "rest", member);
    case PLAN_KEY_REAL:
        return parse_real(text, member);
    case PLAN_KEY_REALS:
        return parse_real(text, (double *)member + item);
    case PLAN_KEY_TEXT:
        return parse_text(text, member, key->room);
    case PLAN_KEY_HASH:
        return parse_hash(text, member);
    case PLAN_KEY_FLAG:
        return parse_flag(text, member);
    case PLAN_KEY_HOME:
        return parse_home(text, member);
    case PLAN_KEY_DTYPE:
        return take_word(dtype_parse(text), member);
    case PLAN_KEY_OPTIMIZER:
        return take_word(optimizer_parse(text), member);
    }
    return EMBTIER_INVALID;
}

const char *plan_key_allowed(const struct plan_key *key)
{
    switch (key->type) {
    case PLAN_KEY_COUNT:
    case PLAN_KEY_NUMBER:
    case PLAN_KEY_GPU:
        return "a whole number, 0 or more";
    case PLAN_KEY_BYTES:
        return "bytes, such as 4096 or 192GiB";
    case PLAN_KEY_ROWS:
        return "a number of rows above 0, or unbounded";
    case PLAN_KEY_REST:
        return "a number of rows above 0, or rest in an unbounded table";
    case PLAN_KEY_REAL:
    case PLAN_KEY_REALS:
        return "a number, such as 0.5 or 1e-3";
    case PLAN_KEY_TEXT:
        return "a text, as `embtier plan make` writes it";
    case PLAN_KEY_HASH:
        return "16 digits of 0-9a-f";
    case PLAN_KEY_FLAG:
        return "true, false";
    case PLAN_KEY_HOME:
        return "hbm, array, cache";
    case PLAN_KEY_DTYPE:
        return "f32, f16, bf16";
    case PLAN_KEY_OPTIMIZER:
        return "those of `embtier table create --help`";
    }
    return "";
}
