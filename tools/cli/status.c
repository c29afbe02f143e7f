/* SPDX-License-Identifier: Apache-2.0 */
/* embtier status: shows all metrics of the server, without knowing them beforehand.
 *
 * Metrics of one area share the first word of their names (cache_…, store_…) and are shown
 * together. Metrics that share it with no other are shown as the server's. Metrics with a label are
 * shown in a table with a column for each of its values. The program knows only this: names with
 * _bytes are bytes, names that end with _error are numbers of errors, and cache_hit_rows and
 * cache_miss_rows give hit rates. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/text_table.h"

#define COLUMNS_MAX 16

struct view {
    const struct embtier_status *now;
    const struct embtier_status *before;         /* NULL the first time */
    const struct embtier_account_list *accounts; /* NULL: an older server, which has none */
    const struct embtier_plan_info *plan;        /* NULL: the same */
    double seconds;                              /* between @before and @now */
};

DEFINE_CLEANUP(struct embtier_account_list, embtier_account_list_free)

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

/* Finds the metric with this name and label value in an earlier status, or returns NULL. */
static const struct embtier_metric *find(const struct embtier_status *status, const char *name,
                                         const char *label_value)
{
    for (size_t i = 0; status && i < embtier_status_count(status); i++) {
        const struct embtier_metric *metric = embtier_status_at(status, i);

        if (strcmp(metric->name, name) == 0 && strcmp(metric->label_value, label_value) == 0)
            return metric;
    }
    return NULL;
}

static double sum(const struct embtier_status *status, const char *name)
{
    double total = 0;

    for (size_t i = 0; i < embtier_status_count(status); i++)
        if (strcmp(embtier_status_at(status, i)->name, name) == 0)
            total += embtier_status_at(status, i)->value;
    return total;
}

/* Returns the share of rows that a tier served, of all that were looked up. NAN: there were
 * none. */
static double hit_rate(const struct embtier_status *status, double hits)
{
    const double all = sum(status, "cache_hit_rows") + sum(status, "cache_miss_rows");

    return all > 0 ? hits / all : (double)NAN;
}

/* ---- JSON ---- */

static bool add_to_json(json_t *metrics, json_t *rates, const struct embtier_status *status,
                        const struct embtier_metric *metric)
{
    json_t *by_label;

    if (metric->label[0] == '\0')
        return json_object_set_new(metrics, metric->name, cli_json_number(metric->value)) == 0;
    by_label = json_object_get(metrics, metric->name);
    if (!by_label) {
        by_label = json_object();
        if (json_object_set_new(metrics, metric->name, by_label) != 0)
            return false;
    }
    if (strcmp(metric->name, "cache_hit_rows") == 0 &&
        json_object_set_new(rates, metric->label_value,
                            cli_json_number(hit_rate(status, metric->value))) != 0)
        return false;
    return json_object_set_new(by_label, metric->label_value, cli_json_number(metric->value)) == 0;
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

static json_t *libraries_to_json(const struct embtier_status *status)
{
    json_t *libraries = json_array();

    for (size_t i = 0; i < embtier_status_library_count(status); i++)
        json_array_append_new(libraries, json_string(embtier_status_library_at(status, i)));
    return libraries;
}

static json_t *plan_to_json(const struct embtier_plan_info *plan)
{
    const bool is_applied = plan->generation > 0, is_applying = plan->applying_pid > 0;

    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "generation", cli_json_u64(plan->generation),
                     "tables", plan->tables > 0 ? json_integer(plan->tables) : json_null(),
                     "applied_ms", is_applied ? cli_json_u64(plan->applied_ms) : json_null(),
                     "applying_pid", is_applying ? cli_json_u64(plan->applying_pid) : json_null(),
                     "applying_generation",
                     is_applying ? cli_json_u64(plan->applying_generation) : json_null());
}

static json_t *status_to_json(const struct view *view)
{
    const struct embtier_status *const status = view->now;
    json_t *metrics = json_object();
    json_t *rates = json_object();

    for (size_t i = 0; metrics && rates && i < embtier_status_count(status); i++) {
        if (!add_to_json(metrics, rates, status, embtier_status_at(status, i))) {
            json_decref(metrics);
            json_decref(rates);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:I, s:o, s:o, s:o, s:o}", "version",
                     embtier_status_version(status), "libraries", libraries_to_json(status),
                     "uptime_ms", (json_int_t)embtier_status_uptime_ms(status), "plan",
                     view->plan ? plan_to_json(view->plan) : json_null(), "metrics", metrics,
                     "hit_rates", rates, "users",
                     view->accounts ? accounts_to_json(view->accounts) : json_null());
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
        metric->counter ? find(view->before, metric->name, metric->label_value) : NULL;
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

        if (!same_area(view->now, metric, first) || strcmp(metric->label, first->label) != 0)
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
        const struct embtier_metric *metric = find(view->now, name, values[i]);

        ok = metric ? add_value(text, view, metric) : text_table_add(text, "-");
    }
    if (!ok || strcmp(name, "cache_hit_rows") != 0)
        return ok;
    ok = text_table_add(text, "hit rate");
    for (size_t i = 0; ok && i < count; i++) {
        const struct embtier_metric *metric = find(view->now, name, values[i]);
        const double rate = hit_rate(view->now, metric ? metric->value : 0);

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

/* Prints the metrics of @first's area and label, with a column for each value. */
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

        if (!same_area(view->now, metric, first) || strcmp(metric->label, first->label) != 0 ||
            !is_first_of_name(view->now, i))
            continue;
        ok = add_labelled_row(text, view, metric->name, values, count);
    }
    if (ok)
        text_table_print(text, 2, stdout);
    return ok;
}

/* True if no earlier metric has the same area and, unless @any_label, the same label. */
static bool is_first(const struct embtier_status *status, size_t index, bool any_label)
{
    const struct embtier_metric *metric = embtier_status_at(status, index);

    for (size_t i = 0; i < index; i++) {
        const struct embtier_metric *earlier = embtier_status_at(status, i);

        if (same_area(status, earlier, metric) &&
            (any_label || strcmp(earlier->label, metric->label) == 0))
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

/* Prints one line. */
static void print_plan(const struct embtier_plan_info *plan)
{
    struct number_text date;

    if (plan->generation == 0)
        printf("no placement plan is in force");
    else
        printf("placement plan of generation %" PRIu64 ", in force since %s", plan->generation,
               number_date(&date, plan->applied_ms));
    if (plan->tables > 0)
        printf(", of %" PRIu32 " table%s", plan->tables, PLURAL(plan->tables));
    if (plan->applying_pid > 0)
        printf("; process %" PRIu64 " applies generation %" PRIu64, plan->applying_pid,
               plan->applying_generation);
    putchar('\n');
}

static int print_text(const struct view *view)
{
    struct number_text uptime;

    text_print(stdout, "embtierd %s, up %s\n", embtier_status_version(view->now),
               number_duration(&uptime, (double)embtier_status_uptime_ms(view->now) / 1000));
    for (size_t i = 0; i < embtier_status_library_count(view->now); i++)
        text_print(stdout, "%s%s", i == 0 ? "with " : ", ",
                   embtier_status_library_at(view->now, i));
    if (embtier_status_library_count(view->now) > 0)
        putchar('\n');
    if (view->plan)
        print_plan(view->plan);
    for (size_t i = 0; i < embtier_status_count(view->now); i++)
        if (is_first(view->now, i, true) && !print_area(view, embtier_status_at(view->now, i)))
            return cli_fail(EMBTIER_NO_MEMORY, "");
    if (!view->accounts) {
        puts("\nusers\n  (left out: the server is older than this program and does not report "
             "them)");
        return EXIT_DONE;
    }
    return print_users(view->accounts) ? EXIT_DONE : cli_fail(EMBTIER_NO_MEMORY, "");
}

/* Prints one line each time, for programs that read a stream. */
static int print_json_line(const struct view *view)
{
    json_t *value = status_to_json(view);
    bool written;

    if (!value)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    written = cli_write_json(value, JSON_COMPACT);
    json_decref(value);
    return written && fflush(stdout) == 0 ? EXIT_DONE
                                          : cli_fail(EMBTIER_IO, "cannot write the output");
}

/* Requests that the server knows. An older one closes the connection after another. It is not asked
 * again, and the rest of the status is shown. */
struct known {
    bool accounts, plan;
};

static enum embtier_err unless_older(enum embtier_err err, bool *is_known)
{
    if (err != EMBTIER_UNSUPPORTED && err != EMBTIER_PROTOCOL)
        return err;
    *is_known = false;
    return EMBTIER_OK;
}

static enum embtier_err get_status(struct cli *cli, struct known *known,
                                   struct embtier_status **ret_status,
                                   struct embtier_account_list **ret_accounts,
                                   struct embtier_plan_info *ret_plan)
{
    enum embtier_err err = embtier_status(cli->server, ret_status);

    if (err != EMBTIER_OK)
        return err;
    if (known->accounts)
        err = unless_older(embtier_account_list(cli->server, ret_accounts), &known->accounts);
    known->plan = known->plan && known->accounts; /* plans came later */
    if (err == EMBTIER_OK && known->plan)
        err = unless_older(embtier_plan_show(cli->server, ret_plan), &known->plan);
    if (err != EMBTIER_OK)
        embtier_status_free(*ret_status);
    return err;
}

static int watch(struct cli *cli, double seconds)
{
    const struct timespec pause = { .tv_sec = (time_t)seconds,
                                    .tv_nsec = (long)((seconds - floor(seconds)) * 1e9) };
    struct embtier_status *before = NULL;
    struct known known = { true, true };
    int exit_code = EXIT_DONE;

    while (exit_code == EXIT_DONE) {
        _cleanup_(embtier_account_list_freep) struct embtier_account_list *accounts = NULL;
        struct embtier_status *now;
        struct embtier_plan_info plan;
        struct view view = { .before = before };
        /* Does nothing unless the server closed the connection. */
        enum embtier_err err = known.plan ? EMBTIER_OK : embtier_reconnect(cli->server);

        if (err == EMBTIER_OK)
            err = get_status(cli, &known, &now, &accounts, &plan);
        if (err) {
            exit_code = cli_fail_server(cli, err);
            break;
        }
        view.now = now;
        view.accounts = accounts;
        view.plan = known.plan ? &plan : NULL;
        if (before) /* 0, and so no rates, if the server was restarted meanwhile */
            view.seconds = (double)clock_since(embtier_status_uptime_ms(now),
                                               embtier_status_uptime_ms(before)) /
                           1000;
        if (!cli->json && terminal_can_draw(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        exit_code = cli->json ? print_json_line(&view) : print_text(&view);
        fflush(stdout);
        embtier_status_free(before);
        before = now;
        if (exit_code == EXIT_DONE)
            nanosleep(&pause, NULL);
    }
    embtier_status_free(before);
    return exit_code;
}

int command_status(struct cli *cli, int argc, char **argv)
{
    double seconds = 0;
    int exit_code = cli_seconds_option(cli, argc, argv, "watch", 'w', &seconds);
    _cleanup_(embtier_account_list_freep) struct embtier_account_list *accounts = NULL;
    struct known known = { true, true };
    struct embtier_status *status;
    struct embtier_plan_info plan;
    struct view view;
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    if (seconds > 0)
        return watch(cli, seconds);
    err = get_status(cli, &known, &status, &accounts, &plan);
    if (err)
        return cli_fail_server(cli, err);
    view = (struct view){ .now = status, .accounts = accounts, .plan = known.plan ? &plan : NULL };
    exit_code = cli->json ? cli_print_json(status_to_json(&view), 17) : print_text(&view);
    embtier_status_free(status);
    return exit_code;
}
