/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/size/specs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "client/include/embtier.h"
#include "tools/cli/number.h"

#define TABLES_MAX 100000
/* Sums of bytes stay within 64 bits. Overhead of a row is less than the allowance. */
#define BYTES_MAX           1e18
#define ROW_ALLOWANCE_BYTES 128

void specs_clear(struct specs *specs)
{
    free(specs->tables);
    *specs = (struct specs){ NULL, 0, 0 };
}

static enum embtier_err check(const struct table_spec *spec, struct err_msg *msg)
{
    if (!table_name_is_valid(spec->name))
        return err_set(msg, EMBTIER_INVALID,
                       "a table's name is '%s'; allowed: 1 to %d of A-Z a-z 0-9 _ . -",
                       TEXT_SHOWN(spec->name), EMBTIER_TABLE_NAME_MAX);
    if (spec->rows == EMBTIER_UNBOUNDED)
        return err_set(
            msg, EMBTIER_INVALID,
            "table '%s': its rows are unbounded or missing; give the number of rows that "
            "you expect to be written",
            spec->name);
    if (spec->dim < 1 || spec->dim > EMBTIER_DIM_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': dim is missing or %" PRIu32 "; allowed: 1 to %d", spec->name,
                       spec->dim, EMBTIER_DIM_MAX);
    if (spec->home == EMBTIER_HOME_SPLIT)
        return err_set(msg, EMBTIER_INVALID,
                       "table '%s': home split is not worked out here; allowed: cache, array",
                       spec->name);
    return EMBTIER_OK;
}

static enum embtier_err append(struct specs *specs, const struct table_spec *spec,
                               struct err_msg *msg)
{
    struct size_table *tables;

    TRY(check(spec, msg));
    if (specs->count == TABLES_MAX)
        return err_set(msg, EMBTIER_INVALID, "there are more than %d tables", TABLES_MAX);
    specs->bytes += (double)spec->rows * (table_spec_weight_bytes(spec) +
                                          table_spec_state_bytes(spec) + ROW_ALLOWANCE_BYTES);
    if (specs->bytes > BYTES_MAX)
        return err_set(
            msg, EMBTIER_INVALID,
            "table '%s': all tables together have more than 10^18 bytes; give fewer rows",
            spec->name);
    tables = reallocarray(specs->tables, specs->count + 1, sizeof(*tables));
    if (!tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    specs->tables = tables;
    specs->tables[specs->count++] = (struct size_table){ .spec = *spec };
    return EMBTIER_OK;
}

enum embtier_err specs_add(struct specs *specs, const struct embtier_table_options *options,
                           size_t copies, struct err_msg *msg)
{
    struct table_spec spec = {
        .rows = options->rows,
        .dim = options->dim,
        .dtype = options->dtype,
        .optimizer = options->optimizer,
        .durability = options->durability,
        .home = options->home,
    };

    table_spec_set_tier(&spec, options->home_tier);
    for (size_t i = 1; i <= copies; i++) {
        if (copies == 1)
            (void)snprintf(spec.name, sizeof(spec.name), "%s", options->name);
        else
            (void)snprintf(spec.name, sizeof(spec.name), "%.100s-%zu", options->name, i);
        TRY(append(specs, &spec, msg));
    }
    return EMBTIER_OK;
}

/* ---- A file ---- */

/* Takes a word of a table; a missing one keeps the default. @parse returns -1 if it is not known.
 */
static bool take_word(const json_t *table, const char *key, int (*parse)(const char *word),
                      int *value)
{
    const json_t *const word = json_object_get(table, key);

    if (!word)
        return true;
    *value = json_is_string(word) ? parse(json_string_value(word)) : -1;
    return *value >= 0;
}

static bool take_number(const json_t *table, const char *key, uint64_t *ret_value)
{
    const json_t *const value = json_object_get(table, key);

    if (json_is_integer(value) && json_integer_value(value) > 0) {
        *ret_value = (uint64_t)json_integer_value(value);
        return true;
    }
    return json_is_string(value) && number_parse_u64(json_string_value(value), ret_value);
}

/* Returns NULL, or the key whose value is wrong. */
static const char *take_table(const json_t *table, struct table_spec *spec)
{
    const char *const name = json_string_value(json_object_get(table, "name"));
    const char *const tier = json_string_value(json_object_get(table, "tier"));
    int dtype = EMBTIER_DTYPE_F32, optimizer = EMBTIER_OPTIMIZER_NONE;
    int durability = EMBTIER_DURABILITY_REPLAY, home = EMBTIER_HOME_CACHE;
    uint64_t dim = 0;

    if (!name)
        return "name";
    (void)snprintf(spec->name, sizeof(spec->name), "%s", name);
    if (!take_number(table, "rows", &spec->rows))
        return "rows";
    if (!take_number(table, "dim", &dim) || dim > EMBTIER_DIM_MAX)
        return "dim";
    if (!take_word(table, "dtype", dtype_parse, &dtype))
        return "dtype";
    if (!take_word(table, "optimizer", optimizer_parse, &optimizer))
        return "optimizer";
    if (!take_word(table, "durability", durability_parse, &durability))
        return "durability";
    if (!take_word(table, "home", home_parse, &home))
        return "home";
    spec->dim = (uint32_t)dim;
    spec->dtype = (enum embtier_dtype)dtype;
    spec->optimizer = (enum embtier_optimizer)optimizer;
    spec->durability = (enum embtier_durability)durability;
    spec->home = (enum embtier_home)home;
    table_spec_set_tier(spec, tier);
    return NULL;
}

static enum embtier_err add_all(struct specs *specs, const char *path, const json_t *list,
                                struct err_msg *msg)
{
    const json_t *table;
    size_t i;

    json_array_foreach(list, i, table)
    {
        struct table_spec spec = { 0 };
        const char *const wrong = take_table(table, &spec);

        if (wrong)
            return err_set(msg, EMBTIER_INVALID,
                           "%s: table %zu: %s is missing or wrong; `embtier -o json table list` "
                           "prints such a file, and rows must be the number that you expect",
                           TEXT_SHOWN(path), i + 1, wrong);
        TRY(append(specs, &spec, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err read_list(const char *path, json_t **ret_list, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    json_error_t error;
    json_t *list;

    if (fd < 0)
        return err_set_errno(msg, errno, "%s: cannot be opened", TEXT_SHOWN(path));
    errno = 0;
    list = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
    if (!list && errno == EISDIR)
        return err_set_errno(msg, errno, "%s: cannot be read", TEXT_SHOWN(path));
    if (!list)
        return err_set(msg, EMBTIER_INVALID, "%s:%d: %s; a JSON list of tables is needed",
                       TEXT_SHOWN(path), error.line, error.text);
    *ret_list = list;
    return EMBTIER_OK;
}

enum embtier_err specs_read(struct specs *specs, const char *path, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *list = NULL;

    TRY(read_list(path, &list, msg));
    return json_is_array(list) ? add_all(specs, path, list, msg)
                               : err_set(msg, EMBTIER_INVALID,
                                         "%s: a JSON list of tables is needed, as `embtier -o json "
                                         "table list` prints it",
                                         TEXT_SHOWN(path));
}
