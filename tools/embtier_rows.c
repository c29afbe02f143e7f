/* SPDX-License-Identifier: Apache-2.0 */
/* embtier get, embtier set: rows by hand, in batches that fit a small arena. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/embtier_cli.h"
#include "tools/number.h"

#define ARENA_BYTES    (UINT64_C(4) << 20)
#define BATCH_BYTES    (UINT64_C(2) << 20)
#define BATCH_ROWS_MAX 1024

/* What the command line or standard input asks for. */
struct row_set {
    const struct embtier_table_info *info;
    uint64_t *ids;
    uint8_t *weights; /* count x weight_bytes; set only */
    size_t count;
    size_t capacity;
};

static void row_set_done(struct row_set *rows)
{
    free(rows->ids);
    free(rows->weights);
}

static bool row_set_grow(struct row_set *rows, bool with_weights)
{
    const size_t capacity = rows->capacity * 2 + 256;
    uint64_t *ids;
    uint8_t *weights;

    if (rows->count < rows->capacity)
        return true;
    ids = reallocarray(rows->ids, capacity, sizeof(*ids));
    if (!ids)
        return false;
    rows->ids = ids;
    if (with_weights) {
        weights = reallocarray(rows->weights, capacity, rows->info->weight_bytes);
        if (!weights)
            return false;
        rows->weights = weights;
    }
    rows->capacity = capacity;
    return true;
}

typedef int add_fn(const struct cli *cli, struct row_set *rows, char *text);

static int add_id(const struct cli *cli, struct row_set *rows, char *text)
{
    if (!row_set_grow(rows, false))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (!number_parse_u64(text, &rows->ids[rows->count]))
        return cli_usage(cli, "'%s' is not a row id; allowed: 0 to %" PRIu64, text, UINT64_MAX);
    rows->count++;
    return 0;
}

/* "7=0.5,-1". */
static int add_row(const struct cli *cli, struct row_set *rows, char *text)
{
    const uint32_t dim = rows->info->dim;
    const uint32_t number_bytes = rows->info->weight_bytes / dim;
    char *at = strchr(text, '=');
    uint8_t *out;

    if (!row_set_grow(rows, true))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (at)
        *at = '\0';
    if (!at || !number_parse_u64(text, &rows->ids[rows->count]))
        return cli_usage(cli, "'%.40s' is not a row; expected: ID=NUMBER,NUMBER,...", text);
    out = rows->weights + rows->count * rows->info->weight_bytes;
    for (uint32_t i = 0; i < dim; i++) {
        char *const begin = at + 1;
        const double value = strtod(begin, &at);

        if (at == begin || (*at != ',' && *at != '\0'))
            return cli_usage(cli, "row %s: '%.20s' is not a number", text, begin);
        if ((*at == '\0') != (i + 1 == dim))
            return cli_usage(cli, "row %s has %s than %u numbers", text,
                             *at == '\0' ? "fewer" : "more", dim);
        number_encode(rows->info->dtype, value, out + (size_t)i * number_bytes);
    }
    rows->count++;
    return 0;
}

static int read_input(const struct cli *cli, struct row_set *rows, add_fn *add)
{
    _cleanup_(freep) char *line = NULL;
    size_t capacity = 0;

    while (getline(&line, &capacity, stdin) >= 0) {
        char *rest = line;
        char *word;

        while ((word = strsep(&rest, " \t\r\n"))) {
            const int exit_code = *word ? add(cli, rows, word) : 0;

            if (exit_code)
                return exit_code;
        }
    }
    return ferror(stdin) ? cli_fail(EMBTIER_IO, "cannot read standard input") : 0;
}

static int read_rows(const struct cli *cli, struct row_set *rows, char **words, int count,
                     add_fn *add)
{
    for (int i = 0; i < count; i++) {
        const int exit_code =
            strcmp(words[i], "-") == 0 ? read_input(cli, rows, add) : add(cli, rows, words[i]);

        if (exit_code)
            return exit_code;
    }
    return 0;
}

/* A batch of at most @wanted rows, as many as the server takes. */
static enum embtier_err new_batch(const struct cli *cli, struct embtier_table *table, size_t wanted,
                                  struct embtier_batch **ret_batch, uint32_t *ret_count)
{
    const uint64_t row_bytes = embtier_table_info(table)->weight_bytes + sizeof(uint64_t);
    const uint64_t fitting = MAX(BATCH_BYTES / row_bytes, UINT64_C(1));
    uint64_t count = MIN(fitting, (uint64_t)BATCH_ROWS_MAX);
    enum embtier_err err;

    count = MIN(count, (uint64_t)wanted);
    do {
        const struct embtier_part part = { table, (uint32_t)count };

        *ret_count = part.count;
        err = embtier_batch_new(cli->server, &part, 1, ret_batch);
        count /= 2;
    } while (err == EMBTIER_TOO_LARGE && count > 0);
    return err;
}

typedef int batch_fn(const struct cli *cli, const struct row_set *rows, size_t first,
                     struct embtier_batch *batch, uint32_t count, void *context);

/* Calls @run for one batch after another until all rows had their turn. */
static int run_batches(const struct cli *cli, struct embtier_table *table,
                       const struct row_set *rows, batch_fn *run, void *context)
{
    struct embtier_batch *batch = NULL;
    uint32_t batch_rows = 0;
    int exit_code = 0;
    enum embtier_err err;

    if (rows->count == 0)
        return 0;
    err = new_batch(cli, table, rows->count, &batch, &batch_rows);
    if (err)
        return cli_fail_server(cli, err);
    for (size_t first = 0; first < rows->count && exit_code == 0; first += batch_rows) {
        const uint32_t count = (uint32_t)MIN(rows->count - first, (size_t)batch_rows);

        err = embtier_batch_set_count(batch, 0, count);
        if (err)
            return cli_fail_server(cli, err);
        memcpy(embtier_batch_ids(batch, 0), rows->ids + first, count * sizeof(uint64_t));
        exit_code = run(cli, rows, first, batch, count, context);
    }
    return exit_code; /* the batch ends with the connection */
}

static json_t *json_number(double value)
{
    if (isnan(value))
        return json_string("nan");
    if (isinf(value))
        return json_string(value < 0 ? "-inf" : "inf");
    return json_real(value);
}

static json_t *row_to_json(const struct embtier_table_info *info, uint64_t id, const uint8_t *row)
{
    const uint32_t number_bytes = info->weight_bytes / info->dim;
    json_t *values = json_array();
    char id_text[32];

    for (uint32_t i = 0; values && i < info->dim; i++) {
        const double value = number_decode(info->dtype, row + (size_t)i * number_bytes);

        if (json_array_append_new(values, json_number(value)) != 0) {
            json_decref(values);
            return NULL;
        }
    }
    if (id <= INT64_MAX)
        return json_pack("{s:I, s:o}", "id", (json_int_t)id, "values", values);
    snprintf(id_text, sizeof(id_text), "%" PRIu64, id);
    return json_pack("{s:s, s:o}", "id", id_text, "values", values);
}

static void print_row(const struct embtier_table_info *info, uint64_t id, const uint8_t *row)
{
    const uint32_t number_bytes = info->weight_bytes / info->dim;
    const int digits = number_digits(info->dtype);

    printf("%" PRIu64, id);
    for (uint32_t i = 0; i < info->dim; i++)
        printf("%c%.*g", i == 0 ? '=' : ',', digits,
               number_decode(info->dtype, row + (size_t)i * number_bytes));
    putchar('\n');
}

static int get_batch(const struct cli *cli, const struct row_set *rows, size_t first,
                     struct embtier_batch *batch, uint32_t count, void *context)
{
    const enum embtier_err err = embtier_get(batch);
    const uint8_t *weights = embtier_batch_rows(batch, 0);
    json_t *array = context;

    if (err)
        return cli_fail_server(cli, err);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = weights + (size_t)i * rows->info->weight_bytes;
        const uint64_t id = rows->ids[first + i];

        if (!array)
            print_row(rows->info, id, row);
        else if (json_array_append_new(array, row_to_json(rows->info, id, row)) != 0)
            return cli_fail(EMBTIER_NO_MEMORY, "");
    }
    return 0;
}

static int set_batch(const struct cli *cli, const struct row_set *rows, size_t first,
                     struct embtier_batch *batch, uint32_t count, void *context)
{
    enum embtier_err err;
    int exit_code;

    (void)context;
    memcpy(embtier_batch_rows(batch, 0), rows->weights + first * rows->info->weight_bytes,
           (size_t)count * rows->info->weight_bytes);
    err = embtier_set(batch);
    if (!err)
        return 0;
    exit_code = cli_fail_server(cli, err);
    if (first > 0)
        fprintf(stderr, "embtier: the first %zu rows had been set before\n", first);
    return exit_code;
}

/* Connects and opens the table that the first argument names. 0, or the exit code. */
static int open_table(struct cli *cli, const char *name, struct embtier_table **ret_table)
{
    enum embtier_err err;
    const int exit_code = cli_connect(cli, ARENA_BYTES);

    if (exit_code)
        return exit_code;
    err = embtier_table_open(cli->server, name, ret_table);
    return err ? cli_fail_server(cli, err) : 0;
}

int command_get(struct cli *cli, int argc, char **argv)
{
    _cleanup_(row_set_done) struct row_set rows = { 0 };
    struct embtier_table *table = NULL;
    json_t *array = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 2, INT32_MAX);

    if (exit_code >= 0)
        return exit_code;
    exit_code = open_table(cli, argv[optind], &table);
    if (exit_code)
        return exit_code;
    rows.info = embtier_table_info(table);
    exit_code = read_rows(cli, &rows, argv + optind + 1, argc - optind - 1, add_id);
    if (exit_code)
        return exit_code;
    if (cli->json) {
        array = json_array();
        if (!array)
            return cli_fail(EMBTIER_NO_MEMORY, "");
    }
    exit_code = run_batches(cli, table, &rows, get_batch, array);
    if (!array)
        return exit_code;
    if (exit_code == 0)
        return cli_print_json(json_pack("{s:s, s:o}", "table", rows.info->name, "rows", array),
                              number_digits(rows.info->dtype));
    json_decref(array);
    return exit_code;
}

int command_set(struct cli *cli, int argc, char **argv)
{
    _cleanup_(row_set_done) struct row_set rows = { 0 };
    struct embtier_table *table = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 2, INT32_MAX);

    if (exit_code >= 0)
        return exit_code;
    exit_code = open_table(cli, argv[optind], &table);
    if (exit_code)
        return exit_code;
    rows.info = embtier_table_info(table);
    exit_code = read_rows(cli, &rows, argv + optind + 1, argc - optind - 1, add_row);
    if (exit_code)
        return exit_code;
    exit_code = run_batches(cli, table, &rows, set_batch, NULL);
    if (exit_code)
        return exit_code;
    if (cli->json)
        return cli_print_json(
            json_pack("{s:s, s:I}", "table", rows.info->name, "rows_set", (json_int_t)rows.count),
            9);
    printf("set %zu row%s of table '%s'\n", rows.count, rows.count == 1 ? "" : "s",
           rows.info->name);
    return EXIT_DONE;
}
