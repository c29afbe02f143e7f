/* SPDX-License-Identifier: Apache-2.0 */
/* embtier jobs …: lists long work and cancels it. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

static json_t *job_to_json(const struct embtier_job *job)
{
    return json_pack("{s:o, s:s, s:s, s:o, s:s, s:o, s:b, s:s, s:o, s:o, s:o, s:s}", "id",
                     cli_json_u64(job->id), "kind", job->kind, "what", job->what, "uid",
                     cli_json_u64(job->uid), "user", job->user, "pid", cli_json_u64(job->pid),
                     "server", job->is_own, "state", job->runs ? "running" : "waiting", "age_ms",
                     cli_json_u64(job->age_ms), "done", cli_json_u64(job->done), "total",
                     cli_json_u64(job->total), "unit", job->unit);
}

static json_t *list_to_json(const struct embtier_job_list *list)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < embtier_job_list_count(list); i++) {
        if (json_array_append_new(array, job_to_json(embtier_job_list_at(list, i))) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* Adds "12% of 1,000 rows", or "-" if the total is unknown. */
static bool add_progress(struct text_table *text, const struct embtier_job *job)
{
    struct number_text total;

    if (job->total == 0)
        return text_table_add(text, "-");
    return text_table_add(text, "%.0f%% of %s %s", 100 * (double)job->done / (double)job->total,
                          number_count(&total, (double)job->total), job->unit);
}

static bool add_user(struct text_table *text, const struct embtier_job *job)
{
    if (job->is_own)
        return text_table_add(text, "the server") && text_table_add(text, "-");
    if (!(job->user[0] ? text_table_add(text, "%s", job->user)
                       : text_table_add(text, "%" PRIu32, job->uid)))
        return false;
    return text_table_add(text, "%" PRIu64, job->pid);
}

static int print_list(const struct embtier_job_list *list)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("rlllrlrl");
    static const char *const titles[] = { "ID",  "KIND",  "WHAT", "USER",
                                          "PID", "STATE", "FOR",  "PROGRESS" };
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < embtier_job_list_count(list); i++) {
        const struct embtier_job *job = embtier_job_list_at(list, i);
        struct number_text age;

        ok = text_table_add(text, "%" PRIu64, job->id) && text_table_add(text, "%s", job->kind) &&
             text_table_add(text, "%s", job->what[0] ? job->what : "-") && add_user(text, job) &&
             text_table_add(text, "%s", job->runs ? "running" : "waiting") &&
             text_table_add(text, "%s", number_duration(&age, (double)job->age_ms / 1e3)) &&
             add_progress(text, job);
    }
    if (!ok)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    text_table_print(text, 0, stdout);
    return EXIT_DONE;
}

int command_jobs(struct cli *cli, int argc, char **argv)
{
    struct embtier_job_list *list = NULL;
    int exit_code = cli_arguments(cli, argc, argv, 0, 0);
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = embtier_job_list(cli->server, &list);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json) {
        exit_code = cli_print_json(list_to_json(list), JSON_DOUBLE_DIGITS);
    } else if (embtier_job_list_count(list) > 0) {
        exit_code = print_list(list);
    } else {
        puts("no jobs");
        exit_code = EXIT_DONE;
    }
    embtier_job_list_free(list);
    return exit_code;
}

/* ---- Cancelling ---- */

/* How a job that runs ends when it is cancelled; its kind in a list of jobs, in the order of the
 * help. */
static const struct {
    const char *kind;
    const char *end;
} ends[] = {
    { "table create", "and its table is not made" },
    { "checkpoint restore", "and no table is restored" },
    { "import", "and no table is made" },
    { "table move", "and the rows that it moved go back" },
    { "reshard", "and rows stay where they are by then, those that it moved in their new shards" },
    { "compaction run", "and what is compacted by then stays so" },
    { "checkpoint verify", "without a result; it changes nothing" },
    { "export", "and its client gets no more rows" },
};

static const char *end_of(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (strcmp(kind, ends[i].kind) == 0)
            return ends[i].end;
    return NULL; /* of a newer server */
}

/* Finds the kind of a job, before it ends. *@ret_end is NULL if there is none, or it is not
 * known. */
static enum embtier_err find_end(struct cli *cli, uint64_t id, const char **ret_end)
{
    struct embtier_job_list *list = NULL;

    TRY(embtier_job_list(cli->server, &list));
    for (size_t i = 0; i < embtier_job_list_count(list); i++)
        if (embtier_job_list_at(list, i)->id == id)
            *ret_end = end_of(embtier_job_list_at(list, i)->kind);
    embtier_job_list_free(list);
    return EMBTIER_OK;
}

static void print_cancelled(uint64_t id, bool runs, const char *end)
{
    if (!runs)
        printf("job %" PRIu64 " was cancelled before it began\n", id);
    else
        printf("job %" PRIu64 " stops soon%s%s\n", id, end ? ", " : "", end ? end : "");
}

int command_jobs_cancel(struct cli *cli, int argc, char **argv)
{
    int exit_code = cli_arguments(cli, argc, argv, 1, 1);
    const char *end = NULL;
    enum embtier_err err;
    uint64_t id = 0;
    int runs = 0;

    if (exit_code >= 0)
        return exit_code;
    if (!number_parse_u64(argv[optind], &id) || id == 0)
        return cli_usage(cli, "ID %s: allowed: a number from 1 on", TEXT_SHOWN(argv[optind]));
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    err = find_end(cli, id, &end);
    if (err == EMBTIER_OK)
        err = embtier_job_cancel(cli->server, id, &runs);
    if (err)
        return cli_fail_server(cli, err);
    if (cli->json)
        return cli_print_json(json_pack("{s:o, s:s}", "cancelled", cli_json_u64(id), "state",
                                        runs ? "running" : "waiting"),
                              JSON_DOUBLE_DIGITS);
    print_cancelled(id, runs != 0, end);
    return EXIT_DONE;
}
