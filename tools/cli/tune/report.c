/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/tune/report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/number.h"
#include "tools/cli/text_table.h"
#include "tools/trial/trial_wire.h"

#define DAY_S         86400.0
#define JSON_DIGITS   6
#define STEADY_SHARES 1.0 /* times that rows were overwritten before a figure counts */

static const char *const words[] = TRIAL_LAYOUT_WORDS;

static double number(const json_t *of, const char *name)
{
    return json_number_value(json_object_get(of, name));
}

/* ---- Figures ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of @count numbers, which it sorts, and their range. */
static struct tune_range range_of(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return (struct tune_range){ .value = (values[(count - 1) / 2] + values[count / 2]) / 2,
                                .least = values[0],
                                .most = values[count - 1] };
}

static double written(const json_t *turn)
{
    return number(turn, "flush_bytes") + number(turn, "compaction_bytes") +
           number(turn, "blob_bytes") + number(turn, "log_bytes");
}

/* @values has room for a number of each turn. Bytes are those of all turns together: a merge that
 * falls into one of them belongs to all. */
static void sum_turns(const json_t *result, uint32_t layout, double *values,
                      struct tune_figures *figures)
{
    const json_t *const turns = json_object_get(result, "turns");
    const double live = number(json_object_get(result, "model"), "bytes");
    static const char *const reads = "reads_per_second", *const space = "stored_bytes";
    double bytes = 0, row_bytes = 0, updates = 0, most = 0;
    struct tune_range *const ranges[] = { &figures->amplification, &figures->reads_per_s,
                                          &figures->space };

    for (uint32_t r = 0; r < ARRAY_LEN(ranges); r++) {
        uint32_t count = 0;
        const json_t *turn;
        size_t i;

        json_array_foreach(turns, i, turn)
        {
            const char *const word = json_string_value(json_object_get(turn, "layout"));

            if (!word || strcmp(word, words[layout]) != 0)
                continue;
            values[count++] = r == 0   ? written(turn) / MAX(number(turn, "row_bytes"), 1.0)
                              : r == 1 ? number(turn, reads)
                                       : number(turn, space) / MAX(live, 1.0);
            bytes += r == 0 ? written(turn) : 0;
            row_bytes += r == 0 ? number(turn, "row_bytes") : 0;
            updates += r == 0 ? number(turn, "updates") : 0;
            most = MAX(most, number(turn, "stored_most_bytes") / MAX(live, 1.0));
        }
        figures->turns = count;
        if (count > 0)
            *ranges[r] = range_of(values, count);
    }
    figures->is_tried = figures->turns > 0;
    figures->amplification.value = bytes / MAX(row_bytes, 1.0);
    figures->update_bytes = bytes / MAX(updates, 1.0);
    figures->space.most = most;
}

enum embtier_err tune_figures(const json_t *result, struct tune_figures ret_figures[LAYOUT_COUNT],
                              struct err_msg *msg)
{
    const size_t turns = json_array_size(json_object_get(result, "turns"));
    _cleanup_(freep) double *values = calloc(MAX(turns, (size_t)1), sizeof(*values));

    if (!values)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (turns == 0)
        return err_set(msg, EMBTIER_PROTOCOL, "the trial took no turns");
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        ret_figures[i] = (struct tune_figures){ 0 };
        sum_turns(result, i, values, &ret_figures[i]);
    }
    return EMBTIER_OK;
}

/* ---- For programs ---- */

static json_t *range_json(const struct tune_range *range)
{
    return json_pack("{s:f, s:f, s:f}", "value", range->value, "least", range->least, "most",
                     range->most);
}

static bool is_overwritten(const json_t *model)
{
    return number(model, "warm_share") >= STEADY_SHARES &&
           number(model, "turn_share") * number(model, "rounds") >= STEADY_SHARES;
}

static json_t *layouts_json(const struct tune_figures *figures, double updates_per_s)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        if (!figures[i].is_tried)
            continue;
        (void)json_array_append_new(
            list,
            json_pack("{s:s, s:i, s:o, s:o, s:o, s:f, s:f}", "layout", words[i], "turns",
                      (int)figures[i].turns, "write_amplification",
                      range_json(&figures[i].amplification), "reads_per_second",
                      range_json(&figures[i].reads_per_s), "space", range_json(&figures[i].space),
                      "bytes_per_update", figures[i].update_bytes, "bytes_per_day",
                      figures[i].update_bytes * updates_per_s * DAY_S));
    }
    return list;
}

static int print_json(const struct tune_report *report, const struct tune_figures *figures,
                      enum config_layout best, const char *reason)
{
    static const char *const preferences[] = {
#define X(name, word) word,
        TUNE_PREFERENCES(X)
#undef X
    };
    const json_t *const model = json_object_get(report->result, "model");

    return cli_print_json(
        json_pack("{s:O, s:O, s:b, s:o, s:s, s:s, s:s, s:s}", "load", report->trial, "model", model,
                  "steady", is_overwritten(model) && !tune_uneven(figures, NULL), "layouts",
                  layouts_json(figures, number(report->trial, "updates_per_second")), "prefer",
                  preferences[report->preference], "present", words[report->present], "recommended",
                  words[best], "reason", reason),
        JSON_DIGITS);
}

/* ---- For people ---- */

static int print_table(const struct tune_figures *figures, double updates_per_s)
{
    _cleanup_(text_table_freep) struct text_table *table = text_table_new("lrrrrr");
    static const char *const heads[] = { "LAYOUT",  "WRITES x", "READS/s",
                                         "SPACE x", "MOST x",   "WRITTEN A DAY" };

    if (!table)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    for (uint32_t i = 0; i < ARRAY_LEN(heads); i++)
        (void)text_table_add(table, "%s", heads[i]);
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        const struct tune_figures *const one = &figures[i];
        struct number_text reads, least, most, day;

        if (!one->is_tried)
            continue;
        (void)text_table_add(table, "%s", words[i]);
        (void)text_table_add(table, "%.1f (%.1f to %.1f)", one->amplification.value,
                             one->amplification.least, one->amplification.most);
        (void)text_table_add(table, "%s (%s to %s)",
                             number_count(&reads, (double)(uint64_t)one->reads_per_s.value),
                             number_count(&least, (double)(uint64_t)one->reads_per_s.least),
                             number_count(&most, (double)(uint64_t)one->reads_per_s.most));
        (void)text_table_add(table, "%.2f", one->space.value);
        (void)text_table_add(table, "%.2f", one->space.most);
        (void)text_table_add(table, "%s",
                             number_bytes(&day, one->update_bytes * updates_per_s * DAY_S));
    }
    text_table_print(table, 0, stdout);
    return EXIT_DONE;
}

static void print_doubts(const json_t *model, const struct tune_figures *figures,
                         bool buffers_reads)
{
    struct number_text rows;
    struct err_msg uneven;

    printf("%.0f rounds, on a shard of %s rows", number(model, "rounds"),
           number_count(&rows, number(model, "rows")));
    if (number(model, "scale") < 1)
        printf(" in place of %s", number_count(&rows, (double)(uint64_t)(number(model, "rows") /
                                                                         number(model, "scale"))));
    puts("");
    if (tune_uneven(figures, &uneven))
        printf("The figures are not steady: %s: give more --minutes.\n", uneven.text);
    if (!is_overwritten(model))
        puts("The rows were not overwritten often enough for steady figures: give more --minutes.");
    if (!json_is_true(json_object_get(model, "to_scale")))
        puts("So few rows are not to scale: with all rows each layout writes more than this.");
    if (!json_is_true(json_object_get(model, "direct_io")))
        printf("Reads came from the page cache, as %s.\n",
               buffers_reads ? "rocksdb.direct_io is no" : "this file system has no direct I/O");
}

static int print_text(const struct tune_report *report, const struct tune_figures *figures,
                      enum config_layout best, const char *reason)
{
    const int exit_code = print_table(figures, number(report->trial, "updates_per_second"));

    print_doubts(json_object_get(report->result, "model"), figures, report->buffers_reads);
    printf("\nRecommended: rocksdb.layout: %s%s; %s.\n", words[best],
           best == report->present ? ", as now" : "", reason);
    return exit_code;
}

int tune_report_print(const struct cli *cli, const struct tune_report *report)
{
    struct tune_figures figures[LAYOUT_COUNT];
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = tune_figures(report->result, figures, &msg);
    enum config_layout best;

    if (err != EMBTIER_OK)
        return cli_fail(err, msg.text);
    if (tune_is_idle(figures)) {
        best = report->present;
        err_write(&msg, "most updates meet in the write buffers, so there is nothing to choose by");
    } else {
        best = tune_choose(figures, report->preference, &msg);
        if (tune_uneven(figures, NULL))
            err_append(&msg, "; but these figures are not steady: try again with more --minutes "
                             "before you follow them");
    }
    return cli->json ? print_json(report, figures, best, msg.text)
                     : print_text(report, figures, best, msg.text);
}
