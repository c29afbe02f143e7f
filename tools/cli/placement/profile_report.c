/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/placement/profile_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/placement/svg_curves.h"
#include "tools/cli/text_table.h"

#define SPARK_CELLS   12
#define SPARK_HEIGHTS 8
/* More lines than these cannot be told apart. */
#define PLOT_TABLES_MAX 64

const int report_percents[REPORT_WORKING_SETS] = { 50, 80, 95 };

/* ---- Making ---- */

static enum embtier_err predict(const double *row_bytes, struct profile_report *report,
                                struct err_msg *msg)
{
    const uint32_t count = report->measured->table_count;
    struct table_prediction *predictions = calloc(count, sizeof(*predictions));
    enum embtier_err err;

    if (!predictions)
        return EMBTIER_NO_MEMORY;
    err = measured_profile_predict(report->measured, row_bytes, &report->tiers, predictions, msg);
    for (uint32_t i = 0; err == EMBTIER_OK && i < count; i++) {
        struct report_table *const table = &report->tables[i];
        const double share = (double)table->measured->summary.lookups /
                             (double)MAX(report->measured->lookups, UINT64_C(1));

        table->prediction = predictions[i];
        for (uint32_t tier = 0; tier < report->tiers.count; tier++)
            report->hit_rates[tier] += table->prediction.hit_rates[tier] * share;
    }
    free(predictions);
    return err;
}

enum embtier_err profile_report_make(const struct measured_profile *measured, const char *path,
                                     const double *row_bytes, const struct cache_tiers *tiers,
                                     struct profile_report *ret_report, struct err_msg *msg)
{
    struct profile_report report = { .path = path, .measured = measured, .tiers = *tiers };
    enum embtier_err err = EMBTIER_OK;

    report.tables = calloc(measured->table_count, sizeof(*report.tables));
    if (!report.tables)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < measured->table_count; i++) {
        report.tables[i].measured = &measured->tables[i];
        for (int k = 0; k < REPORT_WORKING_SETS; k++)
            report.tables[i].working_sets[k] =
                ceil(access_cdf_rows(&measured->tables[i].cdf, report_percents[k] / 100.0));
    }
    if (tiers->count > 0)
        err = predict(row_bytes, &report, msg);
    if (err != EMBTIER_OK)
        profile_report_clear(&report);
    else
        *ret_report = report;
    return err;
}

void profile_report_clear(struct profile_report *report)
{
    free(report->tables);
    report->tables = NULL;
}

static double updated_share(const struct table_summary *summary)
{
    return summary->batch_rows > 0 ? MIN(1.0, summary->updated_batch_rows / summary->batch_rows)
                                   : 0;
}

/* ---- For people ---- */

/* Writes the share of the lookups that the hottest 1 to all rows take, on a logarithmic scale. */
static const char *sparkline(const struct access_cdf *cdf, char text[SPARK_CELLS * 3 + 1])
{
    static const char *const bars[SPARK_HEIGHTS] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    char *at = text;

    *at = '\0';
    for (int i = 0; cdf->point_count > 0 && i < SPARK_CELLS; i++) {
        const double rows = pow(cdf->rows[cdf->point_count - 1], (double)i / (SPARK_CELLS - 1));
        const int height = (int)(access_cdf_share(cdf, rows) * SPARK_HEIGHTS);

        at = stpcpy(at, bars[MIN(height, SPARK_HEIGHTS - 1)]);
    }
    return text;
}

static bool add_table(struct text_table *text, const struct profile_report *report,
                      const struct report_table *table)
{
    const struct measured_table *const measured = table->measured;
    char spark[SPARK_CELLS * 3 + 1];
    struct number_text a, b, c;
    bool ok = text_table_add(text, "%s", measured->table.name) &&
              text_table_add(text, "%s", number_count(&a, (double)measured->summary.lookups)) &&
              text_table_add(text, "%.3g", measured->pooling_factor) &&
              text_table_add(text, "%s", number_count(&b, round(measured->summary.rows))) &&
              text_table_add(text, "%s", number_count(&c, round(measured->summary.batch_rows))) &&
              text_table_add(text, "%.0f%%", 100 * updated_share(&measured->summary));

    for (int i = 0; ok && i < REPORT_WORKING_SETS; i++)
        ok = text_table_add(text, "%s", number_count(&a, table->working_sets[i]));
    for (uint32_t tier = 0; ok && tier < report->tiers.count; tier++)
        ok = text_table_add(text, "%.1f%%", 100 * table->prediction.hit_rates[tier]);
    return ok && text_table_add(text, "%s", sparkline(&measured->cdf, spark));
}

static bool add_titles(struct text_table *text, const struct profile_report *report)
{
    static const char *const titles[] = { "TABLE", "LOOKUPS",    "POOLING",
                                          "ROWS",  "BATCH ROWS", "UPDATED" };
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (int i = 0; ok && i < REPORT_WORKING_SETS; i++)
        ok = text_table_add(text, "%d%%", report_percents[i]);
    for (uint32_t tier = 0; ok && tier < report->tiers.count; tier++)
        ok = text_table_add(text, "TIER %" PRIu32, tier + 1);
    return ok && text_table_add(text, "CDF");
}

/* Says which figures are estimates. */
static void print_sampling(const struct measured_profile *measured)
{
    uint32_t count = 0;
    double least = 1;

    for (uint32_t i = 0; i < measured->table_count; i++) {
        const double rate = measured->tables[i].summary.sampling_rate;

        count += rate < 1;
        least = MIN(least, rate);
    }
    if (count > 0 && least > 0)
        printf("tables of which only some rows were followed: %" PRIu32
               ", at least 1 row in %.0f; their figures are estimates\n",
               count, 1 / least);
}

bool profile_report_print(const struct profile_report *report)
{
    static const char *const sides[CACHE_TIERS_MAX + 1] = {
        "lrrrrrrrrl", "lrrrrrrrrrl", "lrrrrrrrrrrl", "lrrrrrrrrrrrl", "lrrrrrrrrrrrrl",
    };
    _cleanup_(text_table_freep) struct text_table *text =
        text_table_new(sides[report->tiers.count]);
    struct number_text tables, batches, lookups, bytes;
    bool ok = add_titles(text, report);

    for (uint32_t i = 0; ok && i < report->measured->table_count; i++)
        ok = add_table(text, report, &report->tables[i]);
    if (!ok)
        return false;
    text_print(stdout, "%s: %s table%s, %s batch%s, %s lookup%s\n", report->path,
               number_count(&tables, report->measured->table_count),
               report->measured->table_count == 1 ? "" : "s",
               number_count(&batches, (double)report->measured->batches),
               report->measured->batches == 1 ? "" : "es",
               number_count(&lookups, (double)report->measured->lookups),
               report->measured->lookups == 1 ? "" : "s");
    for (uint32_t tier = 0; tier < report->tiers.count; tier++)
        printf("tier %" PRIu32 " of %s: %.1f%% of all lookups predicted to hit\n", tier + 1,
               number_bytes(&bytes, report->tiers.bytes[tier]), 100 * report->hit_rates[tier]);
    print_sampling(report->measured);
    putchar('\n');
    text_table_print(text, 0, stdout);
    return true;
}

/* ---- For programs ---- */

static json_t *numbers_to_json(const double *numbers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, cli_json_number(numbers[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *cdf_to_json(const struct access_cdf *cdf)
{
    json_t *array = json_array();

    for (uint32_t i = 0; array && i < cdf->point_count; i++)
        if (json_array_append_new(
                array, numbers_to_json((const double[]){ cdf->rows[i], cdf->shares[i] }, 2)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *working_sets_to_json(const struct report_table *table)
{
    json_t *object = json_object();
    char key[16];

    for (int i = 0; object && i < REPORT_WORKING_SETS; i++) {
        snprintf(key, sizeof(key), "%d", report_percents[i]);
        if (json_object_set_new(object, key, cli_json_number(table->working_sets[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *table_to_json(const struct profile_report *report, const struct report_table *table)
{
    const uint32_t tiers = report->tiers.count;
    const struct measured_table *const measured = table->measured;
    const struct table_summary *const summary = &measured->summary;

    return json_pack(
        "{s:s, s:o, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
        measured->table.name, "rows",
        measured->table.rows > 0 ? cli_json_u64(measured->table.rows) : json_null(), "dim",
        (int)measured->table.dim, "dtype", dtype_word(measured->table.dtype), "lookups",
        cli_json_u64(summary->lookups), "batches", cli_json_u64(summary->batches), "pooling_factor",
        cli_json_number(measured->pooling_factor), "distinct_rows", cli_json_number(summary->rows),
        "batch_rows", cli_json_number(summary->batch_rows), "updated_share",
        cli_json_number(updated_share(summary)), "sampling_rate",
        cli_json_number(summary->sampling_rate), "working_sets", working_sets_to_json(table), "cdf",
        cdf_to_json(&measured->cdf), "hit_rates",
        numbers_to_json(table->prediction.hit_rates, tiers), "cache_bytes",
        numbers_to_json(table->prediction.bytes, tiers));
}

json_t *profile_report_json(const struct profile_report *report)
{
    json_t *tables = json_array();

    for (uint32_t i = 0; tables && i < report->measured->table_count; i++)
        if (json_array_append_new(tables, table_to_json(report, &report->tables[i])) != 0) {
            json_decref(tables);
            return NULL;
        }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "trace", cli_json_text(report->path),
                     "lookups", cli_json_u64(report->measured->lookups), "batches",
                     cli_json_u64(report->measured->batches), "tier_bytes",
                     numbers_to_json(report->tiers.bytes, report->tiers.count), "hit_rates",
                     numbers_to_json(report->hit_rates, report->tiers.count), "tables", tables);
}

/* ---- The picture ---- */

static int compare_lookups(const void *a, const void *b)
{
    const struct report_table *const left = *(const struct report_table *const *)a;
    const struct report_table *const right = *(const struct report_table *const *)b;

    return (left->measured->summary.lookups < right->measured->summary.lookups) -
           (left->measured->summary.lookups > right->measured->summary.lookups);
}

enum embtier_err profile_report_plot(const struct profile_report *report, const char *path,
                                     struct err_msg *msg)
{
    const uint32_t count = MIN(report->measured->table_count, (uint32_t)PLOT_TABLES_MAX);
    const struct report_table **tables = calloc(report->measured->table_count, sizeof(*tables));
    struct svg_curve curves[PLOT_TABLES_MAX];
    char title[128];

    if (!tables)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < report->measured->table_count; i++)
        tables[i] = &report->tables[i];
    qsort(tables, report->measured->table_count, sizeof(*tables), compare_lookups);
    for (uint32_t i = 0; i < count; i++)
        curves[i] = (struct svg_curve){ .name = tables[i]->measured->table.name,
                                        .point_count = tables[i]->measured->cdf.point_count,
                                        .xs = tables[i]->measured->cdf.rows,
                                        .ys = tables[i]->measured->cdf.shares };
    free(tables);
    if (count < report->measured->table_count)
        snprintf(title, sizeof(title), "Lookups by hottest rows: %u of %" PRIu32 " tables", count,
                 report->measured->table_count);
    else
        snprintf(title, sizeof(title), "Lookups by hottest rows");
    return svg_curves_write(path, title, "hottest rows", "share of lookups", curves, count, msg);
}
