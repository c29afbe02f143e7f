/* SPDX-License-Identifier: Apache-2.0 */
/* embtier get, embtier set: read and write rows by hand, in batches that fit into a small arena. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"

#define ARENA_BYTES    (UINT64_C(4) << 20)
#define BATCH_BYTES    (UINT64_C(2) << 20)
#define BATCH_ROWS_MAX 1024
/* A row's numbers take at most some hundred thousand bytes with all their digits. */
#define WORD_BYTES_MAX (16 << 20)

enum { OPTION_STATE = 256 };

/* The rows that the command line or standard input names. */
struct row_set {
    const struct embtier_table_info *info;
    bool with_state;
    uint64_t *ids;
    uint8_t *rows; /* count x row_bytes(); set only */
    size_t count;
    size_t capacity;
};

static void row_set_done(struct row_set *rows)
{
    free(rows->ids);
    free(rows->rows);
}

static size_t row_bytes(const struct row_set *rows)
{
    return (size_t)rows->info->weight_bytes + (rows->with_state ? rows->info->state_bytes : 0);
}

static bool row_set_grow(struct row_set *rows, bool with_rows)
{
    const size_t capacity = rows->capacity * 2 + 256;
    uint64_t *ids;
    uint8_t *more;

    if (rows->count < rows->capacity)
        return true;
    ids = reallocarray(rows->ids, capacity, sizeof(*ids));
    if (!ids)
        return false;
    rows->ids = ids;
    if (with_rows) {
        more = reallocarray(rows->rows, capacity, row_bytes(rows));
        if (!more)
            return false;
        rows->rows = more;
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
        return cli_usage(cli, "'%s' is not a row id; allowed: 0 to %" PRIu64, TEXT_SHOWN(text),
                         UINT64_MAX);
    rows->count++;
    return 0;
}

static uint32_t state_numbers(const struct row_set *rows)
{
    return rows->with_state ? rows->info->state_bytes / (uint32_t)sizeof(float) : 0;
}

/* False: the number is finite and too large, or is not 0 and would become 0. */
static bool encode(enum embtier_dtype dtype, double value, uint8_t *out)
{
    return number_encode(dtype, value, out) && (value == 0 || number_decode(dtype, out) != 0);
}

/* Refuses a row without @count numbers; its @numbers end with ':' or the text. */
static int refuse_count(const struct cli *cli, const char *row, const char *what,
                        const char *numbers, uint32_t count)
{
    uint32_t given = 1;

    for (; *numbers != '\0' && *numbers != ':'; numbers++)
        given += *numbers == ',';
    return cli_usage(cli, "row %s has %u number%s%s instead of %u; nothing was set",
                     TEXT_SHOWN(row), given, PLURAL(given), what, count);
}

/* Parses @count numbers from *@at on, such as "0.5,-1", up to @end. */
static int parse_numbers(const struct cli *cli, const char *row, const char *what, char **at,
                         uint32_t count, char end, enum embtier_dtype dtype, uint8_t *out)
{
    const uint32_t number_bytes = dtype_bytes(dtype);
    const char *const begin_of_row = *at;

    for (uint32_t i = 0; i < count; i++) {
        char *const begin = *at;
        struct text_shown shown;
        double value;

        if (!number_parse_f64(begin, &value, at) || (**at != ',' && **at != ':' && **at != '\0'))
            return cli_usage(cli, "row %s: '%s' is not a number", TEXT_SHOWN(row),
                             TEXT_SHOWN(begin));
        if ((**at == ',') != (i + 1 < count))
            return refuse_count(cli, row, what, begin_of_row, count);
        if (!encode(dtype, value, out + (size_t)i * number_bytes))
            return cli_usage(cli,
                             "row %s: '%s' does not fit in %s, which holds at %s %.*g (place "
                             "%u of %u number%s%s); nothing was set",
                             TEXT_SHOWN(row), text_show_bytes(&shown, begin, (size_t)(*at - begin)),
                             dtype_word((int)dtype), fabs(value) < 1 ? "least" : "most",
                             number_digits(dtype),
                             fabs(value) < 1 ? number_min(dtype) : number_max(dtype), i + 1, count,
                             PLURAL(count), what);
        *at += **at == ',';
    }
    if (**at != end)
        return cli_usage(cli, "row %s is not ID=NUMBER,...:NUMBER,...", TEXT_SHOWN(row));
    return 0;
}

/* Adds a row "7=0.5,-1", or with state "7=0.5,-1:0.25,0". */
static int add_row(const struct cli *cli, struct row_set *rows, char *text)
{
    const uint32_t states = state_numbers(rows);
    char *at = strchr(text, '=');
    uint8_t *out;
    int exit_code;

    if (!row_set_grow(rows, true))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (at)
        *at = '\0';
    if (!at || !number_parse_u64(text, &rows->ids[rows->count]))
        return cli_usage(cli, "'%s' is not a row; expected: ID=NUMBER,NUMBER,...",
                         TEXT_SHOWN(text));
    at++;
    if (states == 0 && strchr(at, ':'))
        return cli_usage(cli,
                         rows->with_state ? "row %s has state, but the table's optimizer has none"
                                          : "row %s has state, which is set with --state",
                         TEXT_SHOWN(text));
    out = rows->rows + rows->count * row_bytes(rows);
    exit_code = parse_numbers(cli, text, "", &at, rows->info->dim, states > 0 ? ':' : '\0',
                              rows->info->dtype, out);
    if (exit_code == 0 && states > 0) {
        at++;
        exit_code = parse_numbers(cli, text, " of state", &at, states, '\0', EMBTIER_DTYPE_F32,
                                  out + rows->info->weight_bytes);
    }
    if (exit_code)
        return exit_code;
    rows->count++;
    return 0;
}

struct word {
    char *text;
    size_t bytes;
    size_t capacity;
};

static void word_done(struct word *word)
{
    free(word->text);
}

static bool word_grow(struct word *word)
{
    const size_t capacity = word->capacity * 2 + 256;
    char *more;

    if (word->bytes + 1 < word->capacity)
        return true;
    more = realloc(word->text, capacity);
    if (!more)
        return false;
    word->text = more;
    word->capacity = capacity;
    return true;
}

static bool is_separator(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Reads the next word of standard input. If there is none, *@ret_found is false. */
static int read_word(const struct cli *cli, struct word *word, bool *ret_found)
{
    int c = getc_unlocked(stdin);

    word->bytes = 0;
    while (is_separator(c))
        c = getc_unlocked(stdin);
    for (; c != EOF && !is_separator(c); c = getc_unlocked(stdin)) {
        if (c == '\0')
            return cli_usage(cli, "standard input has a zero byte; allowed: text");
        if (word->bytes == WORD_BYTES_MAX)
            return cli_usage(cli,
                             "standard input has a word of more than %d bytes; allowed: words "
                             "separated by spaces or lines",
                             WORD_BYTES_MAX);
        if (!word_grow(word))
            return cli_fail(EMBTIER_NO_MEMORY, "");
        word->text[word->bytes++] = (char)c;
    }
    if (ferror(stdin))
        return cli_fail(EMBTIER_IO, "cannot read standard input");
    *ret_found = word->bytes > 0;
    if (*ret_found)
        word->text[word->bytes] = '\0';
    return 0;
}

static int read_input(const struct cli *cli, struct row_set *rows, add_fn *add)
{
    _cleanup_(word_done) struct word word = { 0 };
    bool found = true;
    int exit_code = 0;

    while (exit_code == 0) {
        exit_code = read_word(cli, &word, &found);
        if (exit_code != 0 || !found)
            break;
        exit_code = add(cli, rows, word.text);
    }
    return exit_code;
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

/* Makes a batch of as many rows as the arena, the server and @rows allow. */
static enum embtier_err new_batch(const struct cli *cli, struct embtier_table *table,
                                  const struct row_set *rows, struct embtier_batch **ret_batch,
                                  uint32_t *ret_count)
{
    const uint64_t fitting = MAX(BATCH_BYTES / (row_bytes(rows) + sizeof(uint64_t)), UINT64_C(1));
    uint64_t count = MIN(fitting, (uint64_t)BATCH_ROWS_MAX);
    enum embtier_err err;

    count = MIN(count, (uint64_t)rows->count);
    do {
        const struct embtier_part part = { table, (uint32_t)count };

        *ret_count = part.count;
        err = rows->with_state ? embtier_batch_new_with_state(cli->server, &part, 1, ret_batch)
                               : embtier_batch_new(cli->server, &part, 1, ret_batch);
        count /= 2;
    } while (err == EMBTIER_TOO_LARGE && count > 0);
    return err;
}

typedef int batch_fn(const struct cli *cli, const struct row_set *rows, size_t first,
                     struct embtier_batch *batch, uint32_t count, void *context);

/* Calls @run for one batch after another, until all rows are done. */
static int run_batches(const struct cli *cli, struct embtier_table *table,
                       const struct row_set *rows, batch_fn *run, void *context)
{
    struct embtier_batch *batch = NULL;
    uint32_t batch_rows = 0;
    int exit_code = 0;
    enum embtier_err err;

    if (rows->count == 0)
        return 0;
    err = new_batch(cli, table, rows, &batch, &batch_rows);
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

static json_t *numbers_to_json(enum embtier_dtype dtype, const uint8_t *numbers, uint32_t count)
{
    const uint32_t number_bytes = dtype_bytes(dtype);
    json_t *values = json_array();

    for (uint32_t i = 0; values && i < count; i++) {
        const double value = number_decode(dtype, numbers + (size_t)i * number_bytes);

        if (json_array_append_new(values, json_number(value)) != 0) {
            json_decref(values);
            return NULL;
        }
    }
    return values;
}

static json_t *row_to_json(const struct row_set *rows, uint64_t id, const uint8_t *row)
{
    const struct embtier_table_info *const info = rows->info;
    json_t *const values = numbers_to_json(info->dtype, row, info->dim);
    json_t *state = NULL;
    json_t *id_value;
    char id_text[32];

    snprintf(id_text, sizeof(id_text), "%" PRIu64, id);
    id_value = id <= INT64_MAX ? json_integer((json_int_t)id) : json_string(id_text);
    if (rows->with_state)
        state = numbers_to_json(EMBTIER_DTYPE_F32, row + info->weight_bytes, state_numbers(rows));
    if (rows->with_state)
        return json_pack("{s:o, s:o, s:o}", "id", id_value, "values", values, "state", state);
    return json_pack("{s:o, s:o}", "id", id_value, "values", values);
}

static void print_numbers(char before, enum embtier_dtype dtype, const uint8_t *numbers,
                          uint32_t count)
{
    const uint32_t number_bytes = dtype_bytes(dtype);

    for (uint32_t i = 0; i < count; i++)
        printf("%c%.*g", i == 0 ? before : ',', number_digits(dtype),
               number_decode(dtype, numbers + (size_t)i * number_bytes));
}

static void print_row(const struct row_set *rows, uint64_t id, const uint8_t *row)
{
    const struct embtier_table_info *const info = rows->info;

    printf("%" PRIu64, id);
    print_numbers('=', info->dtype, row, info->dim);
    print_numbers(':', EMBTIER_DTYPE_F32, row + info->weight_bytes, state_numbers(rows));
    putchar('\n');
}

static int get_batch(const struct cli *cli, const struct row_set *rows, size_t first,
                     struct embtier_batch *batch, uint32_t count, void *context)
{
    const enum embtier_err err = embtier_get(batch);
    const uint8_t *const begin = embtier_batch_rows(batch, 0);
    json_t *array = context;

    if (err)
        return cli_fail_server(cli, err);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *row = begin + i * row_bytes(rows);
        const uint64_t id = rows->ids[first + i];

        if (!array)
            print_row(rows, id, row);
        else if (json_array_append_new(array, row_to_json(rows, id, row)) != 0)
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
    memcpy(embtier_batch_rows(batch, 0), rows->rows + first * row_bytes(rows),
           count * row_bytes(rows));
    err = embtier_set(batch);
    if (!err)
        return 0;
    exit_code = cli_fail_server(cli, err);
    if (first > 0)
        fprintf(stderr, "embtier: the first %zu row%s set before this error\n", first,
                first == 1 ? " was" : "s were");
    return exit_code;
}

/* Connects and opens the table named by the first argument. Returns 0 or the exit code. */
static int open_table(struct cli *cli, const char *name, struct embtier_table **ret_table)
{
    enum embtier_err err;
    const int exit_code = cli_connect(cli, ARENA_BYTES);

    if (exit_code)
        return exit_code;
    err = embtier_table_open(cli->server, name, ret_table);
    return err ? cli_fail_server(cli, err) : 0;
}

/* Parses --state, then a table and ids or rows. Returns -1 to continue, or the exit code. */
static int row_arguments(struct cli *cli, int argc, char **argv, bool *ret_with_state)
{
    static const struct option options[] = { { "state", no_argument, NULL, OPTION_STATE },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == OPTION_STATE)
        *ret_with_state = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind < 2)
        return cli_usage(cli, "an argument is missing: %s", cli->command->arguments);
    return -1;
}

int command_get(struct cli *cli, int argc, char **argv)
{
    _cleanup_(row_set_done) struct row_set rows = { 0 };
    struct embtier_table *table = NULL;
    json_t *array = NULL;
    int exit_code = row_arguments(cli, argc, argv, &rows.with_state);

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
        return cli_print_json(
            json_pack("{s:s, s:o}", "table", rows.info->name, "rows", array),
            number_digits(rows.with_state ? EMBTIER_DTYPE_F32 : rows.info->dtype));
    json_decref(array);
    return exit_code;
}

int command_set(struct cli *cli, int argc, char **argv)
{
    _cleanup_(row_set_done) struct row_set rows = { 0 };
    struct embtier_table *table = NULL;
    int exit_code = row_arguments(cli, argc, argv, &rows.with_state);

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
    text_print(stdout, "set %zu row%s of table '%s'\n", rows.count, PLURAL(rows.count),
               rows.info->name);
    return EXIT_DONE;
}
