/* SPDX-License-Identifier: Apache-2.0 */
/* embtier clients …: lists the sessions of the server's clients, and ends one. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/json_values.h"
#include "tools/cli/number.h"
#include "tools/cli/status/session_text.h"
#include "tools/cli/text_table.h"

/* ---- Columns ---- */

#define NUMBER_OF(field)                                                                           \
    static uint64_t field##_of(const struct embtier_session *session)                              \
    {                                                                                              \
        return session->field;                                                                     \
    }
NUMBER_OF(number)
NUMBER_OF(age_ms)
NUMBER_OF(requests)
NUMBER_OF(rows)
NUMBER_OF(arena_bytes)
NUMBER_OF(in_flight)
NUMBER_OF(tickets)

static const char *transport_of(struct session_text *buffer, const struct embtier_session *session)
{
    (void)snprintf(buffer->text, sizeof(buffer->text), "%s", session->transport);
    return buffer->text;
}

static const char *name_of(struct session_text *buffer, const struct embtier_session *session)
{
    (void)snprintf(buffer->text, sizeof(buffer->text), "%s%s", session->client,
                   session->is_own ? " (this command)" : "");
    return buffer->text;
}

enum column_kind { COLUMN_TEXT, COLUMN_ID, COLUMN_COUNT, COLUMN_BYTES, COLUMN_AGE };

/* A column has a number or a text. */
static const struct column {
    const char *title;
    const char *name; /* for --sort; NULL: none */
    enum column_kind kind;
    uint64_t (*number)(const struct embtier_session *session);
    const char *(*text)(struct session_text *buffer, const struct embtier_session *session);
} columns[] = {
    { "SESSION", "number", COLUMN_ID, number_of, NULL },
    { "USER", "user", COLUMN_TEXT, NULL, session_user },
    { "FROM", "from", COLUMN_TEXT, NULL, session_origin },
    { "BY", "transport", COLUMN_TEXT, NULL, transport_of },
    { "FOR", "age", COLUMN_AGE, age_ms_of, NULL },
    { "REQUESTS", "requests", COLUMN_COUNT, requests_of, NULL },
    { "ROWS", "rows", COLUMN_COUNT, rows_of, NULL },
    { "ARENA", "arena", COLUMN_BYTES, arena_bytes_of, NULL },
    { "IN FLIGHT", "in-flight", COLUMN_COUNT, in_flight_of, NULL },
    { "TICKETS", "tickets", COLUMN_COUNT, tickets_of, NULL },
    { "CLIENT", NULL, COLUMN_TEXT, NULL, name_of },
};
static const char sides[] = "rlllrrrrrrl";
_Static_assert(sizeof(sides) == ARRAY_LEN(columns) + 1, "each column has a side");

/* ---- Order ---- */

static const struct column *sorted_by = &columns[0];

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Orders texts and session numbers upwards, and all other numbers downwards. */
static int compare(const void *a, const void *b)
{
    const struct embtier_session *const x = *(const struct embtier_session *const *)a;
    const struct embtier_session *const y = *(const struct embtier_session *const *)b;
    struct session_text x_text, y_text;
    int order;

    if (sorted_by->kind == COLUMN_TEXT)
        order = strcmp(sorted_by->text(&x_text, x), sorted_by->text(&y_text, y));
    else if (sorted_by->kind == COLUMN_ID)
        order = 0;
    else
        order = compare_numbers(sorted_by->number(y), sorted_by->number(x));
    return order != 0 ? order : compare_numbers(x->number, y->number);
}

/* Returns the sessions in order, malloced, or NULL. */
static const struct embtier_session **sort(const struct embtier_session_list *list)
{
    const size_t count = embtier_session_list_count(list);
    const struct embtier_session **const sessions = calloc(count + 1, sizeof(*sessions));

    for (size_t i = 0; sessions && i < count; i++)
        sessions[i] = embtier_session_list_at(list, i);
    if (sessions)
        qsort(sessions, count, sizeof(*sessions), compare);
    return sessions;
}

/* ---- Output ---- */

static json_t *session_to_json(const struct embtier_session *session)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
                     "number", cli_json_u64(session->number), "user", cli_json_text(session->user),
                     "uid", session->uid != UINT32_MAX ? cli_json_u64(session->uid) : json_null(),
                     "pid", session->pid != 0 ? cli_json_u64(session->pid) : json_null(), "address",
                     cli_json_text(session->address), "transport", session->transport, "client",
                     cli_json_text(session->client), "age_ms", cli_json_u64(session->age_ms),
                     "connections", cli_json_u64(session->connections), "arena_bytes",
                     cli_json_u64(session->arena_bytes), "requests",
                     cli_json_u64(session->requests), "rows", cli_json_u64(session->rows),
                     "in_flight", cli_json_u64(session->in_flight), "tickets",
                     cli_json_u64(session->tickets), "own", session->is_own);
}

static int print_json(const struct embtier_session **sessions, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, session_to_json(sessions[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return cli_print_json(array, JSON_DOUBLE_DIGITS);
}

static bool add_cell(struct text_table *text, const struct column *column,
                     const struct embtier_session *session)
{
    struct number_text number;
    struct session_text shown;

    switch (column->kind) {
    case COLUMN_TEXT:
        return text_table_add(text, "%s", column->text(&shown, session));
    case COLUMN_ID:
        return text_table_add(text, "%" PRIu64, column->number(session));
    case COLUMN_COUNT:
        return text_table_add(text, "%s", number_count(&number, (double)column->number(session)));
    case COLUMN_BYTES:
        return text_table_add(text, "%s", number_bytes(&number, (double)column->number(session)));
    case COLUMN_AGE:
        return text_table_add(text, "%s",
                              number_duration(&number, (double)column->number(session) / 1e3));
    }
    return false;
}

static int print_text(const struct embtier_session **sessions, size_t count)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new(sides);
    bool ok = text != NULL;

    for (size_t c = 0; ok && c < ARRAY_LEN(columns); c++)
        ok = text_table_add(text, "%s", columns[c].title);
    for (size_t i = 0; ok && i < count; i++)
        for (size_t c = 0; ok && c < ARRAY_LEN(columns); c++)
            ok = add_cell(text, &columns[c], sessions[i]);
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

/* ---- The commands ---- */

enum { OPTION_SORT = UCHAR_MAX + 1 }; /* above the values of letters */

static int take_order(const struct cli *cli)
{
    for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
        if (!columns[c].name || strcmp(columns[c].name, optarg) != 0)
            continue;
        sorted_by = &columns[c];
        return -1;
    }
    return cli_usage(cli,
                     "--sort %s: allowed: number, user, from, transport, age, requests, rows, "
                     "arena, in-flight, tickets",
                     TEXT_SHOWN(optarg));
}

int command_clients(struct cli *cli, int argc, char **argv)
{
    static const struct option options[] = { { "sort", required_argument, NULL, OPTION_SORT },
                                             CLI_LONG_OPTIONS };
    const struct embtier_session **sessions;
    struct embtier_session_list *list = NULL;
    int exit_code = EXIT_USAGE;
    enum embtier_err err;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == OPTION_SORT) {
        exit_code = take_order(cli);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_session_list(cli->server, &list);
    if (err)
        return cli_fail_server(cli, err);
    sessions = sort(list);
    if (!sessions)
        exit_code = cli_fail(EMBTIER_NO_MEMORY, "");
    else if (cli->json)
        exit_code = print_json(sessions, embtier_session_list_count(list));
    else
        exit_code = print_text(sessions, embtier_session_list_count(list));
    free(sessions);
    embtier_session_list_free(list);
    return exit_code;
}

int command_clients_end(struct cli *cli, int argc, char **argv)
{
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    enum embtier_err err;
    uint64_t number = 0;

    if (exit_code >= 0)
        return exit_code;
    if (!number_parse_u64(argv[optind], &number) || number == 0)
        return cli_usage(cli, "NUMBER %s: allowed: a number from 1 on", TEXT_SHOWN(argv[optind]));
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_session_end(cli->server, number);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o}", "ended", cli_json_u64(number)),
                              JSON_DOUBLE_DIGITS);
    printf("session %" PRIu64 " has ended\n", number);
    return EXIT_DONE;
}
