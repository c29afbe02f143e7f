/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/forecast/show.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

#define DAY_S 86400.0

/* ---- Causes of all outcomes ---- */

static double cause_bytes(const struct outcome *outcome, const char *name)
{
    for (size_t i = 0; i < outcome->cause_count; i++)
        if (strcmp(outcome->causes[i].name, name) == 0)
            return outcome->causes[i].bytes;
    return 0;
}

/* Fills in the causes that write anything in any outcome, in the order of their first one. */
static size_t causes_shown(const struct outcome *outcomes, size_t count,
                           const char *ret_names[FORECAST_CAUSES_MAX])
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < outcomes[i].cause_count; k++) {
            const char *const name = outcomes[i].causes[k].name;
            size_t at = 0;

            while (at < found && strcmp(ret_names[at], name) != 0)
                at++;
            if (at == found && found < FORECAST_CAUSES_MAX && outcomes[i].causes[k].bytes != 0)
                ret_names[found++] = name;
        }
    return found;
}

/* ---- Text ---- */

static const char *name_of(const struct outcome *outcome)
{
    return outcome->change->kind == CHANGE_NONE ? "now" : outcome->change->name;
}

static bool add_number(struct text_table *text, const char *format_unit, double value)
{
    return isfinite(value) ? text_table_add(text, "%.3g%s", value, format_unit)
                           : text_table_add(text, "-");
}

static bool add_bytes(struct text_table *text, double value)
{
    struct number_text bytes;

    return isfinite(value) ? text_table_add(text, "%s", number_bytes(&bytes, value))
                           : text_table_add(text, "-");
}

static bool print_bytes(const struct outcome_opts *opts, const struct outcome *outcomes,
                        size_t count)
{
    const char *names[FORECAST_CAUSES_MAX];
    const size_t name_count = causes_shown(outcomes, count, names);
    const double times = opts->basis->has_rates ? DAY_S / opts->basis->seconds : 1;
    char sides[FORECAST_CAUSES_MAX + 4] = "l";
    _cleanup_(text_table_freep) struct text_table *text = NULL;
    bool ok;

    memset(sides + 1, 'r', name_count + 2);
    text = text_table_new(sides);
    ok = text && text_table_add(text, "%s", opts->basis->has_rates ? "written a day" : "written");
    for (size_t k = 0; ok && k < name_count; k++)
        ok = text_table_add(text, "%s", names[k]);
    ok = ok && text_table_add(text, "(all)") && text_table_add(text, "of now");
    for (size_t i = 0; ok && i < count; i++) {
        ok = text_table_add(text, "%s", name_of(&outcomes[i]));
        for (size_t k = 0; ok && k < name_count; k++)
            ok = add_bytes(text, cause_bytes(&outcomes[i], names[k]) * times);
        ok = ok && add_bytes(text, outcomes[i].bytes * times) &&
             add_number(text, " %", 100 * outcomes[i].server_bytes / outcomes[0].server_bytes);
    }
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static bool print_stages(const struct outcome *outcomes, size_t count)
{
    static const char *const titles[] = { "",      "hit rate", "write-back",
                                          "first", "again",    "amplification",
                                          "DWPD",  "rated",    "life" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrrrrr");
    bool ok = text != NULL;

    for (size_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (size_t i = 0; ok && i < count; i++) {
        const struct outcome *const at = &outcomes[i];

        ok = text_table_add(text, "%s", name_of(at)) &&
             add_number(text, " %", 100 * at->hit_rate) && add_number(text, "", at->write_back) &&
             add_number(text, "", at->first_writes) && add_number(text, "", at->rewrites) &&
             add_number(text, "", at->amplification) && add_number(text, "", at->drive_writes) &&
             add_number(text, "", at->rated_drive_writes) && add_number(text, " years", at->years);
    }
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

/* Part of the server's bytes that first values would be without deferred initialization. NAN: not
 * known. */
static double saved_share(const struct outcome_opts *opts, const struct outcome *now)
{
    const double daily = opts->initial_bytes / opts->table_days;
    const double now_daily =
        now->bytes > 0 ? now->daily_bytes * now->server_bytes / now->bytes : now->daily_bytes;

    return daily / (now_daily + daily);
}

static void print_initialization(const struct outcome_opts *opts, const struct outcome *now)
{
    const double share = saved_share(opts, now);
    struct number_text all, day, saved = { "" };

    if (opts->initial_bytes <= 0) {
        puts("deferred initialization saves nothing: all tables are eager or unbounded");
        return;
    }
    if (isfinite(share))
        snprintf(saved.text, sizeof(saved.text), "%.3g %% of its bytes, ", 100 * share);
    printf("deferred initialization saves %s%s for each new set of tables: %s a day if that is "
           "every %.3g days (--table-days)%s\n",
           saved.text, number_bytes(&all, opts->initial_bytes),
           number_bytes(&day, opts->initial_bytes / opts->table_days), opts->table_days,
           isfinite(share) ? "" : "; which part of its bytes that is, is not known yet");
}

static bool has_drive(const struct outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (outcomes[i].change->kind == CHANGE_DRIVE)
            return true;
    return false;
}

static void print_notes(const struct outcome_opts *opts, const struct outcome *outcomes,
                        size_t count)
{
    const struct basis *const basis = opts->basis;
    const struct outcome *const now = &outcomes[0];

    puts("write-back: bytes of rows written back for each byte updated; first, again: bytes that "
         "RocksDB\nwrites for each of these, by flushes and by compactions; life: of a new drive");
    if (cause_bytes(now, FORECAST_OTHERS) > 0)
        puts("others: bytes of other programs on the same drives: DWPD and life count them; \"of "
             "now\" and\namplification are the server's own");
    print_initialization(opts, now);
    if (!basis->has_rates)
        puts(
            "bytes a day, DWPD and life are not known yet: the server is up for less than an hour; "
            "--interval measures from now on");
    if (basis->drive.rated_bytes <= 0)
        printf("life of the present drives is not known: endurance.rated_written_bytes is not "
               "configured; it is the TBW of the data sheet, of all drives together%s\n",
               has_drive(outcomes, count) ? "" : "; or give --drive");
}

bool forecast_print(const struct outcome_opts *opts, const struct outcome *outcomes, size_t count)
{
    const struct basis *const basis = opts->basis;
    struct number_text seconds;

    printf("counted in %s, with %zu table%s of the profile; hit rate %.3g %% predicted",
           number_duration(&seconds, basis->seconds), basis->modelled_count,
           PLURAL(basis->modelled_count), 100 * opts->now_hit_rate);
    if (isfinite(basis->measured_hit_rate))
        printf(", %.3g %% measured", 100 * basis->measured_hit_rate);
    puts("\n");
    if (!print_bytes(opts, outcomes, count))
        return false;
    putchar('\n');
    if (!print_stages(outcomes, count))
        return false;
    putchar('\n');
    print_notes(opts, outcomes, count);
    return true;
}

/* ---- JSON ---- */

static const char *kind_word(enum change_kind kind)
{
    static const char *const words[] = { [CHANGE_NONE] = "now",
                                         [CHANGE_TIER] = "tier",
                                         [CHANGE_LAYOUT] = "layout",
                                         [CHANGE_EAGER] = "eager",
                                         [CHANGE_DRIVE] = "drive" };

    return words[kind];
}

static json_t *tiers_to_json(const struct change_tiers *tiers)
{
    json_t *const json = json_object();

    for (size_t i = 0; json && i < tiers->count; i++)
        if (json_object_set_new(json, tiers->names[i], cli_json_number(tiers->bytes[i])) != 0) {
            json_decref(json);
            return NULL;
        }
    return json;
}

/* @times: of the bytes counted. */
static json_t *causes_to_json(const struct outcome *outcome, double times)
{
    json_t *const json = json_object();

    for (size_t i = 0; json && i < outcome->cause_count; i++)
        if (json_object_set_new(json, outcome->causes[i].name,
                                cli_json_number(outcome->causes[i].bytes * times)) != 0) {
            json_decref(json);
            return NULL;
        }
    return json;
}

static json_t *drive_to_json(const struct drive *drive)
{
    const bool is_rated = drive->rated_bytes > 0;

    return json_pack("{s:o, s:o, s:o}", "capacity_bytes", cli_json_number(drive->capacity_bytes),
                     "rated_written_bytes",
                     is_rated ? cli_json_number(drive->rated_bytes) : json_null(), "rated_years",
                     is_rated ? cli_json_number(drive->rated_years) : json_null());
}

static json_t *outcome_to_json(const struct basis *basis, const struct outcome *outcome,
                               double now_bytes)
{
    const double times = basis->has_rates ? DAY_S / basis->seconds : (double)NAN;

    return json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "change", kind_word(outcome->change->kind), "name", cli_json_text(name_of(outcome)),
        "tier_bytes", tiers_to_json(&outcome->tiers), "layout", layout_word(outcome->layout),
        "drive", drive_to_json(&outcome->drive), "hit_rate", cli_json_number(outcome->hit_rate),
        "written_bytes_by_cause", causes_to_json(outcome, 1), "written_bytes",
        cli_json_number(outcome->bytes), "of_now",
        cli_json_number(outcome->server_bytes / now_bytes), "daily_bytes_by_cause",
        causes_to_json(outcome, times), "written_bytes_per_day",
        cli_json_number(outcome->daily_bytes), "write_back_amplification",
        cli_json_number(outcome->write_back), "first_write_amplification",
        cli_json_number(outcome->first_writes), "rewrite_amplification",
        cli_json_number(outcome->rewrites), "write_amplification",
        cli_json_number(outcome->amplification), "drive_writes_per_day",
        cli_json_number(outcome->drive_writes), "rated_drive_writes_per_day",
        cli_json_number(outcome->rated_drive_writes), "rated_life_years",
        cli_json_number(outcome->years));
}

json_t *forecast_to_json(const struct outcome_opts *opts, const char *profile,
                         const struct outcome *outcomes, size_t count)
{
    const struct basis *const basis = opts->basis;
    json_t *const forecasts = json_array();
    bool ok = forecasts != NULL;

    for (size_t i = 0; ok && i < count; i++)
        ok = json_array_append_new(
                 forecasts, outcome_to_json(basis, &outcomes[i], outcomes[0].server_bytes)) == 0;
    if (!ok) {
        json_decref(forecasts);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o}", "profile",
                     cli_json_text(profile), "seconds", cli_json_number(basis->seconds),
                     "updated_bytes", cli_json_number(basis->updated_bytes), "tables",
                     (int)basis->modelled_count, "missing_tables", (int)basis->missing_count,
                     "predicted_hit_rate", cli_json_number(opts->now_hit_rate), "measured_hit_rate",
                     cli_json_number(basis->measured_hit_rate), "initialization", "written_bytes",
                     cli_json_number(opts->initial_bytes), "table_days",
                     cli_json_number(opts->table_days), "written_bytes_per_day",
                     cli_json_number(opts->initial_bytes / opts->table_days), "saved_share",
                     cli_json_number(saved_share(opts, &outcomes[0])), "forecasts", forecasts);
}
