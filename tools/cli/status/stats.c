/* SPDX-License-Identifier: Apache-2.0 */
/* embtier stats: shows all metrics of the server, without knowing them beforehand.
 *
 * Metrics of one area share the first word of their names (cache_…, store_…) and are shown
 * together. Metrics that share it with no other are shown as the server's. Metrics with a label are
 * shown in a table with a column for each of its values; those with other values have their own.
 * The program knows only this: names with _bytes are bytes, names that end with _error are numbers
 * of errors, and lookup_rows gives the hit rates of tiers. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json/figures_json.h"
#include "base/latency.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/status/figures.h"
#include "tools/cli/status/pieces.h"
#include "tools/cli/status/reading.h"
#include "tools/cli/text_table.h"

#define COLUMNS_MAX 16

struct view {
    const struct embtier_status *now;
    const struct embtier_status *before;         /* NULL the first time */
    const struct embtier_account_list *accounts; /* NULL: an older server, which has none */
    const struct embtier_plan_info *plan;        /* NULL: the same */
    double seconds;                              /* between @before and @now */
};

/* The first word of all names in a metric's area. A metric that would be alone belongs to the area
 * "server". */
struct area {
    char name[32];
};

static struct area area_of(const struct embtier_status *status, const struct embtier_metric *metric)
{
    const size_t bytes = strcspn(metric->name, "_");
    struct area area = { "server" };

    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const char *name = embtier_status_at(status, i)->name;

        if (strncmp(name, metric->name, bytes) == 0 && name[bytes] == '_' &&
            strcmp(name, metric->name) != 0) {
            snprintf(area.name, sizeof(area.name), "%.*s", (int)bytes, name);
            return area;
        }
    }
    return area;
}

static bool same_area(const struct embtier_status *status, const struct embtier_metric *a,
                      const struct embtier_metric *b)
{
    return strcmp(area_of(status, a).name, area_of(status, b).name) == 0;
}

/* Says whether each value of @a's label is one of @b's. */
static bool has_values_of(const struct embtier_status *status, const struct embtier_metric *a,
                          const struct embtier_metric *b)
{
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const at = embtier_status_at(status, i);

        if (strcmp(at->name, a->name) == 0 && !figures_find(status, b->name, at->label_value))
            return false;
    }
    return true;
}

/* Metrics of one area with the same label and the same values of it are rows of one table. */
static bool same_table(const struct embtier_status *status, const struct embtier_metric *a,
                       const struct embtier_metric *b)
{
    return strcmp(a->label, b->label) == 0 && same_area(status, a, b) &&
           (a->label[0] == '\0' || (has_values_of(status, a, b) && has_values_of(status, b, a)));
}

/* Returns the share of lookups that a tier served, as in `embtier status`. NAN: there were none. */
static double hit_rate(const struct embtier_status *status, const char *tier)
{
    const double all = figures_value(status, "lookup_rows", NULL);

    return all > 0 ? figures_value(status, "lookup_rows", tier) / all : (double)NAN;
}

/* ---- JSON ---- */

static struct figure_view figure_at(const void *context, size_t index)
{
    const struct embtier_metric *const metric = embtier_status_at(context, index);

    return (struct figure_view){ metric->name, metric->label, metric->label_value, metric->value };
}

static struct latency_view latency_view(const struct embtier_latency *latency)
{
    return (struct latency_view){ .op = latency->op,
                                  .transport = latency->transport,
                                  .seconds = latency->seconds,
                                  .counts = latency->counts,
                                  .bounds = latency->bounds,
                                  .bound_count = (uint32_t)latency->bound_count };
}

static json_t *latencies_to_json(const struct embtier_status *status)
{
    json_t *const list = json_array();

    for (size_t i = 0; i < embtier_status_latency_count(status); i++) {
        const struct latency_view view = latency_view(embtier_status_latency_at(status, i));

        (void)json_array_append_new(list, figures_json_latency(&view));
    }
    return list;
}

/* Returns the name of the account's user, or its number if it is a Unix user; names are no numbers.
 */
struct user_text {
    char text[72];
};

static const char *user_text(struct user_text *buffer, const struct embtier_account *account)
{
    if (account->user[0] != '\0')
        snprintf(buffer->text, sizeof(buffer->text), "%s", account->user);
    else
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu32, account->uid);
    return buffer->text;
}

/* Makes {"1000": {"sessions": {"used": 2, "most": 768}, …}, …}. */
static json_t *accounts_to_json(const struct embtier_account_list *accounts)
{
    json_t *users = json_object();

    for (size_t i = 0; users && i < embtier_account_list_count(accounts); i++) {
        const struct embtier_account *account = embtier_account_list_at(accounts, i);
        struct user_text buffer;
        const char *const name = user_text(&buffer, account);
        json_t *user = json_object_get(users, name);

        if (!user && json_object_set_new(users, name, json_object()) == 0)
            user = json_object_get(users, name);
        if (!user ||
            json_object_set_new(user, account->name,
                                json_pack("{s:o, s:o}", "used", cli_json_u64(account->used), "most",
                                          cli_json_u64(account->most))) != 0) {
            json_decref(users);
            return NULL;
        }
    }
    return users;
}

static json_t *status_to_json(const struct view *view)
{
    const struct embtier_status *const status = view->now;
    const size_t count = embtier_status_count(status);

    return json_pack(
        "{s:s, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "version", embtier_status_version(status),
        "libraries", pieces_libraries(status), "uptime_ms",
        (json_int_t)embtier_status_uptime_ms(status), "plan", pieces_plan(view->plan), "metrics",
        figures_json_metrics(figure_at, status, count), "hit_rates",
        figures_json_hit_rates(figure_at, status, count), "latencies", latencies_to_json(status),
        "users", view->accounts ? accounts_to_json(view->accounts) : json_null());
}

/* ---- Text ---- */

static bool is_error(const char *name)
{
    static const char end[] = "_error";
    const size_t length = strlen(name);

    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

static bool add_value(struct text_table *text, const struct view *view,
                      const struct embtier_metric *metric)
{
    const bool is_bytes = strstr(metric->name, "_bytes") != NULL;
    const struct embtier_metric *before =
        metric->counter ? figures_find(view->before, metric->name, metric->label_value) : NULL;
    struct number_text value;
    struct number_text rate;
    double per_second;

    if (is_error(metric->name))
        return text_table_add(
            text, "%s", metric->value != 0 ? err_name((enum embtier_err)metric->value) : "none");
    if (is_bytes)
        number_bytes(&value, metric->value);
    else
        number_count(&value, metric->value);
    if (!before || view->seconds <= 0)
        return text_table_add(text, "%s", value.text);
    per_second = (metric->value - before->value) / view->seconds;
    if (is_bytes)
        number_bytes(&rate, per_second);
    else
        number_count(&rate, round(per_second));
    return text_table_add(text, "%s (+%s/s)", value.text, rate.text);
}

/* Prints the metrics of @first's area that have no label, in two columns. */
static bool print_plain(const struct view *view, const struct embtier_metric *first)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lr");

    if (!text)
        return false;
    for (size_t i = 0; i < embtier_status_count(view->now); i++) {
        const struct embtier_metric *metric = embtier_status_at(view->now, i);

        if (!same_area(view->now, metric, first) || metric->label[0] != '\0')
            continue;
        if (!text_table_add(text, "%s", metric->name) || !add_value(text, view, metric))
            return false;
    }
    text_table_print(text, 2, stdout);
    return true;
}

/* Returns the values of the label of @first in its area, in order of appearance. */
static size_t label_values(const struct view *view, const struct embtier_metric *first,
                           const char *values[COLUMNS_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < embtier_status_count(view->now); i++) {
        const struct embtier_metric *metric = embtier_status_at(view->now, i);
        size_t known = 0;

        if (!same_table(view->now, metric, first))
            continue;
        while (known < count && strcmp(values[known], metric->label_value) != 0)
            known++;
        if (known == count && count < COLUMNS_MAX)
            values[count++] = metric->label_value;
    }
    return count;
}

static bool add_labelled_row(struct text_table *text, const struct view *view, const char *name,
                             const char **values, size_t count)
{
    bool ok = text_table_add(text, "%s", name);

    for (size_t i = 0; ok && i < count; i++) {
        const struct embtier_metric *metric = figures_find(view->now, name, values[i]);

        ok = metric ? add_value(text, view, metric) : text_table_add(text, "-");
    }
    if (!ok || strcmp(name, "cache_hit_rows") != 0)
        return ok;
    ok = text_table_add(text, "hit rate");
    for (size_t i = 0; ok && i < count; i++) {
        const double rate = hit_rate(view->now, values[i]);

        ok = isnan(rate) ? text_table_add(text, "-") : text_table_add(text, "%.2f%%", 100 * rate);
    }
    return ok;
}

/* A metric with several label values occurs once for each. True for the first of them, which
 * represents all. */
static bool is_first_of_name(const struct embtier_status *status, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(embtier_status_at(status, i)->name, embtier_status_at(status, index)->name) == 0)
            return false;
    return true;
}

/* Prints the metrics of @first's table, with a column for each value. */
static bool print_labelled(const struct view *view, const struct embtier_metric *first)
{
    char sides[COLUMNS_MAX + 2] = "l";
    const char *values[COLUMNS_MAX];
    const size_t count = label_values(view, first, values);
    _cleanup_(text_table_freep) struct text_table *text = NULL;
    bool ok;

    memset(sides + 1, 'r', count);
    text = text_table_new(sides);
    ok = text && text_table_add(text, "by %s", first->label);
    for (size_t i = 0; ok && i < count; i++)
        ok = text_table_add(text, "%s", values[i]);
    for (size_t i = 0; ok && i < embtier_status_count(view->now); i++) {
        const struct embtier_metric *metric = embtier_status_at(view->now, i);

        if (!same_table(view->now, metric, first) || !is_first_of_name(view->now, i))
            continue;
        ok = add_labelled_row(text, view, metric->name, values, count);
    }
    if (ok)
        text_table_print(text, 2, stdout);
    return ok;
}

/* True if no earlier metric has the same area and, unless @any_label, is in the same table. */
static bool is_first(const struct embtier_status *status, size_t index, bool any_label)
{
    const struct embtier_metric *metric = embtier_status_at(status, index);

    for (size_t i = 0; i < index; i++) {
        const struct embtier_metric *earlier = embtier_status_at(status, i);

        if (any_label ? same_area(status, earlier, metric) : same_table(status, earlier, metric))
            return false;
    }
    return true;
}

static bool print_area(const struct view *view, const struct embtier_metric *area)
{
    putchar('\n');
    text_print(stdout, "%s\n", area_of(view->now, area).name);
    for (size_t i = 0; i < embtier_status_count(view->now); i++) {
        const struct embtier_metric *metric = embtier_status_at(view->now, i);

        if (!same_area(view->now, metric, area) || !is_first(view->now, i, false))
            continue;
        if (!(metric->label[0] ? print_labelled(view, metric) : print_plain(view, metric)))
            return false;
    }
    return true;
}

static bool add_latency(struct text_table *text, const struct embtier_latency *latency)
{
    const double mean = latency->seconds / (double)latency->requests;
    const double quantiles[] = {
        latency_quantile(latency->counts, latency->bounds, (uint32_t)latency->bound_count, 0.5),
        latency_quantile(latency->counts, latency->bounds, (uint32_t)latency->bound_count, 0.99),
    };
    struct number_text number;

    return text_table_add(text, "%s", latency->op) &&
           text_table_add(text, "%s", latency->transport) &&
           text_table_add(text, "%s", number_count(&number, (double)latency->requests)) &&
           text_table_add(text, "%.3f ms", mean * 1e3) &&
           text_table_add(text, "%.3f ms", quantiles[0] * 1e3) &&
           text_table_add(text, "%.3f ms", quantiles[1] * 1e3);
}

/* Prints how long requests took since the server's start. */
static bool print_latencies(const struct embtier_status *status)
{
    static const char *const heads[] = { "op",   "transport", "requests",
                                         "mean", "median",    "99th percentile" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("llrrrr");
    bool ok = text != NULL;

    if (embtier_status_latency_count(status) == 0)
        return true;
    for (size_t i = 0; ok && i < ARRAY_LEN(heads); i++)
        ok = text_table_add(text, "%s", heads[i]);
    for (size_t i = 0; ok && i < embtier_status_latency_count(status); i++)
        ok = add_latency(text, embtier_status_latency_at(status, i));
    if (!ok)
        return false;
    printf("\nlatencies\n");
    text_table_print(text, 2, stdout);
    return true;
}

/* Prints the resources that users use. */
static bool print_users(const struct embtier_account_list *accounts)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("rlrr");
    bool ok = text && text_table_add(text, "user") && text_table_add(text, "what") &&
              text_table_add(text, "used") && text_table_add(text, "at most");

    for (size_t i = 0; ok && i < embtier_account_list_count(accounts); i++) {
        const struct embtier_account *account = embtier_account_list_at(accounts, i);
        struct number_text used, most;
        struct user_text user;

        if (account->used == 0)
            continue;
        if (account->is_bytes) {
            number_bytes(&used, (double)account->used);
            number_bytes(&most, (double)account->most);
        } else {
            number_count(&used, (double)account->used);
            number_count(&most, (double)account->most);
        }
        ok = text_table_add(text, "%s", user_text(&user, account)) &&
             text_table_add(text, "%s", account->what) && text_table_add(text, "%s", used.text) &&
             text_table_add(text, "%s", most.text);
    }
    if (!ok)
        return false;
    printf("\nusers\n");
    text_table_print(text, 2, stdout);
    return true;
}

static int print_text(const struct view *view)
{
    struct number_text uptime;
    struct plan_text plan;

    text_print(stdout, "embtierd %s, up %s\n", embtier_status_version(view->now),
               number_duration(&uptime, (double)embtier_status_uptime_ms(view->now) / 1000));
    for (size_t i = 0; i < embtier_status_library_count(view->now); i++)
        text_print(stdout, "%s%s", i == 0 ? "with " : ", ",
                   embtier_status_library_at(view->now, i));
    if (embtier_status_library_count(view->now) > 0)
        putchar('\n');
    if (view->plan)
        puts(pieces_plan_text(&plan, view->plan));
    for (size_t i = 0; i < embtier_status_count(view->now); i++)
        if (is_first(view->now, i, true) && !print_area(view, embtier_status_at(view->now, i)))
            return cli_fail(EMBTIER_NO_MEMORY, "");
    if (!print_latencies(view->now))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    if (!view->accounts) {
        puts("\nusers\n  (left out: the server is older than this program and does not report "
             "them)");
        return EXIT_DONE;
    }
    return print_users(view->accounts) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

static int show(const struct cli *cli, const void *context, const struct reading *now,
                const struct reading *before, double seconds)
{
    const bool *const is_watched = context;
    const struct view view = {
        .now = now->status,
        .before = before ? before->status : NULL,
        .accounts = now->accounts,
        .plan = now->has_plan ? &now->plan : NULL,
        .seconds = seconds,
    };

    if (!cli->json)
        return print_text(&view);
    return pieces_print_json(status_to_json(&view), *is_watched);
}

int command_stats(struct cli *cli, int argc, char **argv)
{
    double seconds = 0;
    const int exit_code = cli_seconds_option(cli, argc, argv, "watch", 'w', &seconds);
    const bool is_watched = seconds > 0;

    if (exit_code >= 0)
        return exit_code;
    return readings_show(cli, READING_ACCOUNTS | READING_PLAN, seconds, show, &is_watched);
}
