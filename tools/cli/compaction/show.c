/* SPDX-License-Identifier: Apache-2.0 */
/* embtier compaction status: how far each database is behind, and why it compacts or does not. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json/figures_json.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/compaction/progress.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

enum { OPTION_ALL = 256 };

/* ---- JSON ---- */

static json_t *database_to_json(const struct embtier_compaction_database *database)
{
    const struct work_progress progress = compaction_progress_of(database);

    return json_pack(
        "{s:s, s:s, s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "path", database->path, "state",
        database->state, "why", database->why, "urgent", database->is_urgent, "level0_files",
        (json_int_t)database->level0_files, "pending_bytes", cli_json_u64(database->pending_bytes),
        "running", cli_json_u64(database->running), "done_bytes",
        cli_json_u64(database->done_bytes), "total_bytes", cli_json_u64(database->total_bytes),
        "elapsed_s", cli_json_number((double)database->elapsed_ms / 1000), "remaining_s",
        cli_json_number(work_progress_remaining_s(&progress)));
}

static json_t *to_json(const struct embtier_compaction_list *list)
{
    const struct embtier_compaction *const facts = embtier_compaction_facts(list);
    const struct work_progress progress = compaction_progress_sum(list);
    json_t *const databases = json_array();

    for (size_t i = 0; databases && i < embtier_compaction_list_count(list); i++) {
        if (json_array_append_new(databases,
                                  database_to_json(embtier_compaction_list_at(list, i))) != 0) {
            json_decref(databases);
            return NULL;
        }
    }
    return json_pack(
        "{s:I, s:b, s:b, s:b, s:b, s:I, s:s, s:{s:o, s:o, s:s, s:s}, s:o, s:o}", "parallel",
        (json_int_t)facts->parallel, "paused", facts->is_put_off, "lanes_wait", facts->is_busy,
        "no_space", facts->lacks_space, "in_hours", facts->is_in_hours, "minutes_to_hours",
        (json_int_t)facts->minutes_to_hours, "hours", facts->hours, "limit", "bytes_per_second",
        cli_json_u64(facts->limit_bytes), "bytes_per_second_now",
        cli_json_u64(facts->limit_now_bytes), "state", facts->limit_state, "why", facts->limit_why,
        "progress", figures_json_progress(&progress), "databases", databases);
}

/* ---- Text ---- */

/* One line for the whole: whether compaction goes on, and what to do if it does not. */
static void print_facts(const struct embtier_compaction *facts)
{
    if (facts->lacks_space)
        puts("nothing compacts: a disk is full; make space, and compaction goes on");
    else if (facts->is_put_off)
        puts("paused: only shards near their limit compact; `embtier compaction resume` ends it");
    else if (!facts->is_in_hours)
        printf("waits for its hours (%s), which begin in %" PRIu32 " h %" PRIu32
               " min; only shards near their limit compact\n",
               facts->hours, facts->minutes_to_hours / 60, facts->minutes_to_hours % 60);
    else if (facts->is_busy)
        puts("waits: lookups wait for the drives; only shards near their limit compact");
    else
        printf("goes on: up to %" PRIu32
               " shard%s of each device at a time, the one furthest behind first\n",
               facts->parallel, PLURAL(facts->parallel));
}

static void print_limit(const struct embtier_compaction *facts)
{
    if (facts->limit_bytes == 0)
        return;
    printf("limit: %s a second, %s: %s", BYTES_TEXT(facts->limit_bytes), facts->limit_state,
           facts->limit_why);
    if (facts->limit_now_bytes > facts->limit_bytes)
        printf(" (now %s)", BYTES_TEXT(facts->limit_now_bytes));
    putchar('\n');
}

/* Adds how far its compactions are, and the time that they take still. */
static bool add_progress(struct text_table *text,
                         const struct embtier_compaction_database *database)
{
    const struct work_progress progress = compaction_progress_of(database);
    struct number_text done, total, left;

    return (progress.total_bytes > 0
                ? text_table_add(text, "%s of %s",
                                 number_bytes(&done, (double)database->done_bytes),
                                 number_bytes(&total, (double)database->total_bytes))
                : text_table_add(text, "-")) &&
           text_table_add(text, "%s",
                          progress.has_remaining
                              ? number_duration(&left, work_progress_remaining_s(&progress))
                              : "-");
}

static bool add_database(struct text_table *text,
                         const struct embtier_compaction_database *database)
{
    struct number_text pending;

    return text_table_add(text, "%s", database->path) &&
           text_table_add(text, "%" PRIu32, database->level0_files) &&
           text_table_add(text, "%s", number_bytes(&pending, (double)database->pending_bytes)) &&
           text_table_add(text, "%s%s", database->state, database->is_urgent ? ", urgent" : "") &&
           add_progress(text, database) && text_table_add(text, "%s", database->why);
}

/* Idle databases are left out, unless all are wanted. */
static int print_list(const struct embtier_compaction_list *list, bool all)
{
    static const char *const titles[] = { "DATABASE", "NEW FILES", "BEHIND", "STATE",
                                          "READ",     "LEFT",      "WHY" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrlrrl");
    const size_t count = embtier_compaction_list_count(list);
    bool ok = text != NULL;
    size_t shown = 0;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < count; i++) {
        const struct embtier_compaction_database *const one = embtier_compaction_list_at(list, i);

        if (!all && strcmp(one->state, "idle") == 0)
            continue;
        ok = add_database(text, one);
        shown++;
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    print_facts(embtier_compaction_facts(list));
    print_limit(embtier_compaction_facts(list));
    compaction_progress_print(list, stdout);
    if (shown > 0)
        text_table_print(text, 0, stdout);
    if (shown < count)
        printf("%zu of %zu databases have nothing to compact%s\n", count - shown, count,
               shown > 0 || all ? "" : "; --all lists them");
    return EXIT_DONE;
}

/* Parses --all. Returns -1 to continue, or the exit code. */
static int status_arguments(struct cli *cli, int argc, char **argv, bool *ret_all)
{
    static const struct option options[] = { { "all", no_argument, NULL, OPTION_ALL },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) == OPTION_ALL)
        *ret_all = true;
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc > optind)
        return cli_usage(cli, "unexpected argument '%s'", TEXT_SHOWN(argv[optind]));
    return -1;
}

int command_compaction_status(struct cli *cli, int argc, char **argv)
{
    struct embtier_compaction_list *list = NULL;
    bool all = false;
    int exit_code = status_arguments(cli, argc, argv, &all);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_compaction_show(cli->server, &list);
    if (err != EMBTIER_OK)
        return cli_fail_server(cli, err);
    exit_code =
        cli->json ? cli_print_json(to_json(list), JSON_DOUBLE_DIGITS) : print_list(list, all);
    embtier_compaction_list_free(list);
    return exit_code;
}
