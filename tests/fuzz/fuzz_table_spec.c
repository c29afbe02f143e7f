/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of tables in their three forms: a message, JSON, and words on a command line. One
 * that is accepted stays the same when it is written and read again. */
#include "tests/fuzz/lib/fuzz.h"

#include <jansson.h>

#include "base/spec/table_spec_json.h"
#include "base/text/bytes.h"
#include "proto/control.pb-c.h"
#include "proto/table_spec_wire.h"
#include "tools/cli/number.h"

enum form { FORM_MESSAGE, FORM_JSON, FORM_WORD, FORMS };

static void check_wire(const struct table_spec *spec)
{
    Embtier__TableSpec wire = EMBTIER__TABLE_SPEC__INIT;
    struct err_msg msg = { { 0 } };
    struct table_spec again;

    table_spec_to_wire(spec, &wire);
    FUZZ_CHECK(table_spec_from_wire(&wire, &again, &msg) == EMBTIER_OK);
    FUZZ_CHECK(strcmp(spec->name, again.name) == 0 && spec->rows == again.rows);
    FUZZ_CHECK(table_spec_weight_bytes(spec) == table_spec_weight_bytes(&again));
    FUZZ_CHECK(table_spec_state_bytes(spec) == table_spec_state_bytes(&again));
}

static void check_json(const struct table_spec *spec)
{
    json_t *const json = table_spec_to_json(spec);
    struct err_msg msg = { { 0 } };
    struct table_spec again;

    FUZZ_CHECK(json && table_spec_from_json(json, TABLE_SPEC_JSON_VERSION, &again));
    FUZZ_CHECK(table_spec_check(&again, &msg) == EMBTIER_OK);
    FUZZ_CHECK(strcmp(spec->name, again.name) == 0 && spec->rows == again.rows);
    json_decref(json);
}

static void check(const struct table_spec *spec)
{
    struct hyperparameters_text text;
    struct err_msg msg = { { 0 } };

    (void)table_spec_hyperparameters(spec, &text);
    (void)!table_spec_check_new(spec, &msg);
    (void)!table_spec_check_loaded(spec, &msg);
    check_wire(spec);
    check_json(spec);
}

static void read_message(const uint8_t *data, size_t bytes)
{
    Embtier__TableSpec *const wire = embtier__table_spec__unpack(NULL, bytes, data);
    struct err_msg msg = { { 0 } };
    struct table_spec spec;

    if (!wire)
        return;
    if (table_spec_from_wire(wire, &spec, &msg) == EMBTIER_OK)
        check(&spec);
    embtier__table_spec__free_unpacked(wire, NULL);
}

static void read_json(const uint8_t *data, size_t bytes)
{
    json_t *const json = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    struct err_msg msg = { { 0 } };
    struct table_spec spec;

    for (uint32_t version = 1; json && version <= TABLE_SPEC_JSON_VERSION; version++)
        if (table_spec_from_json(json, version, &spec) &&
            table_spec_check(&spec, &msg) == EMBTIER_OK)
            check(&spec);
    json_decref(json);
}

/* A word that means a number is that number's word. */
#define CHECK_WORD(kind, text)                                                                     \
    do {                                                                                           \
        const int word_of = kind##_parse(text);                                                    \
                                                                                                   \
        FUZZ_CHECK(word_of < 0 || strcmp(kind##_word(word_of), (text)) == 0);                      \
    } while (0)

static void read_word(const uint8_t *data, size_t bytes)
{
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    const char *end = NULL;
    char *number_end = NULL;
    uint64_t count;
    double number;

    CHECK_WORD(dtype, text);
    CHECK_WORD(optimizer, text);
    CHECK_WORD(init, text);
    CHECK_WORD(durability, text);
    CHECK_WORD(home, text);
    CHECK_WORD(rounding, text);
    (void)!parse_bytes(text, &count);
    (void)!number_parse_u64(text, &count);
    if (number_parse_double(text, &number, &end))
        FUZZ_CHECK(end > text && end <= text + strlen(text));
    if (number_parse_f64(text, &number, &number_end))
        FUZZ_CHECK(number_end > text && number_end <= text + strlen(text));
    (void)table_name_is_valid(text);
    (void)tier_name_is_valid(text);
    (void)table_uuid_is_valid(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const enum form form = bytes > 0 ? (enum form)(data[0] % FORMS) : FORM_WORD;
    const size_t left = bytes > 0 ? bytes - 1 : 0;
    _cleanup_(freep) uint8_t *copy = fuzz_copy(data + (bytes > 0), left);

    if (form == FORM_MESSAGE)
        read_message(copy, left);
    else if (form == FORM_JSON)
        read_json(copy, left);
    else
        read_word(copy, left);
    return 0;
}
