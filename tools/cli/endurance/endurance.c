/* SPDX-License-Identifier: Apache-2.0 */
/* embtier endurance: shows how many bytes go to SSD, for which tables, which devices take them, and
 * how long the drives last at that rate.
 *
 * The server counts everything since its start. With --interval this program asks twice and
 * takes the difference. Flushes and compactions come in bursts, so an interval should span many
 * of them. Rates of the last hour, day and week come from the server's history, which outlives
 * it. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/endurance/devices.h"
#include "tools/cli/endurance/sample.h"
#include "tools/cli/endurance/tables.h"
#include "tools/cli/number.h"
#include "tools/cli/text_table.h"

#define CAUSES_MAX    16
#define DAY_S         86400.0
#define YEAR_DAYS     365.0
#define LONGEST_YEARS 1000 /* a longer life has no date */

#define YOUNG "not known yet: rates need a history of an hour"

struct cause {
    const char *name;
    double bytes;
};

struct report {
    double uptime_s;
    double seconds; /* time in which everything below was counted */
    struct table_rows rows;
    struct cause causes[CAUSES_MAX];
    size_t cause_count;
    double bytes;            /* of all causes */
    double tier_file_bytes;  /* of them those that the system writes back for a tier's file */
    double stored_row_bytes; /* of rows that the server wrote back */
    double capacity_bytes;
    double rated_bytes; /* 0: unknown */
    double rated_years;
    struct device_reports devices;
    bool has_rates; /* counted for long enough to say something about a day */
};

/* ---- Counting ---- */

static void report_clear(struct report *report)
{
    device_reports_clear(&report->devices);
    table_rows_clear(&report->rows);
}

/* Fills in devices, their health, and how long they last. False: out of memory. */
static bool add_devices(const struct endurance_sample *before, const struct endurance_sample *now,
                        bool is_here, struct report *report)
{
    if (!device_reports_make(before->status, now->status, &report->devices))
        return false;
    device_reports_ask_health(&report->devices, is_here);
    return device_reports_add_lives(&report->devices,
                                    report->rated_bytes > 0 ? report->rated_bytes : (double)NAN);
}

static void take_causes(const struct endurance_sample *before, const struct endurance_sample *now,
                        struct report *report)
{
    for (size_t i = 0; i < embtier_status_count(now->status); i++) {
        const struct embtier_metric *const at = embtier_status_at(now->status, i);
        struct cause cause = { at->label_value, at->value };

        if (strcmp(at->name, "store_written_bytes") != 0 || report->cause_count == CAUSES_MAX)
            continue;
        cause.bytes -= endurance_figure(before->status, at->name, at->label_value);
        report->causes[report->cause_count++] = cause;
        report->bytes += cause.bytes;
        if (strcmp(cause.name, "tier_file") == 0)
            report->tier_file_bytes = cause.bytes;
    }
}

/* @before may be empty; then everything since the start counts. */
static bool report_make(const struct endurance_sample *before, const struct endurance_sample *now,
                        bool is_here, struct report *ret_report)
{
    struct report report = { .uptime_s = (double)embtier_status_uptime_ms(now->status) / 1000 };

    report.seconds = report.uptime_s;
    if (before->status)
        report.seconds -= (double)embtier_status_uptime_ms(before->status) / 1000;
    report.has_rates = before->status || report.seconds >= ENDURANCE_RATES_S;
    if (!table_rows_make(before, now, &report.rows))
        return false;
    take_causes(before, now, &report);
    report.stored_row_bytes = endurance_figure(now->status, "store_row_bytes_written", "") -
                              endurance_figure(before->status, "store_row_bytes_written", "");
    report.capacity_bytes = endurance_figure(now->status, "store_capacity_bytes", "");
    report.rated_bytes = endurance_figure(now->status, "store_rated_written_bytes", "");
    report.rated_years = endurance_figure(now->status, "store_rated_years", "");
    if (!add_devices(before, now, is_here, &report)) {
        report_clear(&report);
        return false;
    }
    *ret_report = report;
    return true;
}

/* ---- Derived figures ---- */

/* NAN: the divisor is 0. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

static double bytes_a_day(const struct report *report)
{
    return report->has_rates ? ratio(report->bytes * DAY_S, report->seconds) : (double)NAN;
}

static double drive_writes_a_day(const struct report *report)
{
    return ratio(bytes_a_day(report), report->capacity_bytes);
}

static double rated_drive_writes_a_day(const struct report *report)
{
    return report->rated_bytes > 0 ? ratio(report->rated_bytes,
                                           report->capacity_bytes * report->rated_years * YEAR_DAYS)
                                   : (double)NAN;
}

/* Rows are written back to the store, and a tier's file is none of it. */
static double store_amplification(const struct report *report)
{
    return ratio(report->bytes - report->tier_file_bytes, report->stored_row_bytes);
}

/* Time that the rated bytes last, from the first day. */
static double years(const struct report *report)
{
    return report->rated_bytes > 0 ? ratio(report->rated_bytes, bytes_a_day(report) * YEAR_DAYS)
                                   : (double)NAN;
}

/* The day on which nothing is left. False: it is not known, or too far away to name. */
static bool life_ends(const struct life *life, struct number_text *ret_date)
{
    const double ms = life->years * YEAR_DAYS * DAY_S * 1000;

    if (!(life->years < LONGEST_YEARS))
        return false;
    number_date(ret_date, clock_wall_ms() + (uint64_t)ms);
    ret_date->text[strcspn(ret_date->text, "T")] = '\0';
    return true;
}

/* ---- Printing ---- */

static bool add_device_members(const struct report *report, json_t *json)
{
    const struct device_reports *const devices = &report->devices;
    struct number_text ends;

    return json_object_set_new(json, "devices", device_reports_to_json(devices)) == 0 &&
           json_object_set_new(json, "daily_bytes",
                               daily_to_json(devices->now_bytes, devices->daily_bytes)) == 0 &&
           json_object_set_new(json, "history_seconds",
                               cli_json_number(devices->history_seconds)) == 0 &&
           json_object_set_new(json, "life", life_to_json(&devices->life)) == 0 &&
           json_object_set_new(json, "life_device",
                               devices->count > 0 ? cli_json_text(devices->life_device)
                                                  : json_null()) == 0 &&
           json_object_set_new(json, "life_ends",
                               life_ends(&devices->life, &ends) ? json_string(ends.text)
                                                                : json_null()) == 0;
}

static json_t *report_to_json(const struct report *report)
{
    json_t *json;
    json_t *const tables = json_array();
    json_t *const causes = json_object();
    bool ok = tables && causes;

    for (size_t i = 0; ok && i < report->rows.count; i++)
        ok = json_array_append_new(
                 tables, writes_to_json(&report->rows.tables[i], report->rows.tables[i].name)) == 0;
    for (size_t i = 0; ok && i < report->cause_count; i++)
        ok = json_object_set_new(causes, report->causes[i].name,
                                 cli_json_number(report->causes[i].bytes)) == 0;
    if (!ok) {
        json_decref(tables);
        json_decref(causes);
        return NULL;
    }
    json = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "uptime_s", cli_json_number(report->uptime_s), "seconds", cli_json_number(report->seconds),
        "tables", tables, "dropped_tables", writes_to_json(&report->rows.dropped, ""), "shared",
        writes_to_json(&report->rows.shared, ""), "all_tables",
        writes_to_json(&report->rows.all, ""), "written_bytes_by_cause", causes, "written_bytes",
        cli_json_number(report->bytes), "write_amplification",
        cli_json_number(ratio(report->bytes, report->rows.all.updated_bytes)), "stored_row_bytes",
        cli_json_number(report->stored_row_bytes), "store_amplification",
        cli_json_number(store_amplification(report)), "written_bytes_per_day",
        cli_json_number(bytes_a_day(report)), "capacity_bytes",
        cli_json_number(report->capacity_bytes), "drive_writes_per_day",
        cli_json_number(drive_writes_a_day(report)), "rated_written_bytes",
        report->rated_bytes > 0 ? cli_json_number(report->rated_bytes) : json_null(),
        "rated_drive_writes_per_day", cli_json_number(rated_drive_writes_a_day(report)),
        "rated_life_years", cli_json_number(years(report)));
    if (json && !add_device_members(report, json)) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static bool print_causes(const struct report *report)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lr");
    bool ok = text && text_table_add(text, "cause") && text_table_add(text, "written");
    struct number_text bytes;

    for (size_t i = 0; ok && i < report->cause_count; i++)
        ok = text_table_add(text, "%s", report->causes[i].name) &&
             text_table_add(text, "%s", number_bytes(&bytes, report->causes[i].bytes));
    ok = ok && text_table_add(text, "(all)") &&
         text_table_add(text, "%s", number_bytes(&bytes, report->bytes));
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static void print_amplification(const char *title, double amplification, const char *what)
{
    if (isfinite(amplification))
        printf("%s%.2f (bytes written for a byte %s)\n", title, amplification, what);
    else
        printf("%s-\n", title);
}

static void print_drives(const struct report *report)
{
    struct number_text bytes;

    printf("written a day         %s\n",
           !report->has_rates ? "not known yet: the server is up for less than an hour; "
                                "--interval measures from now on"
           : isfinite(bytes_a_day(report)) ? number_bytes(&bytes, bytes_a_day(report))
                                           : "-");
    print_amplification("write amplification   ",
                        ratio(report->bytes, report->rows.all.updated_bytes), "updated");
    print_amplification("store amplification   ", store_amplification(report),
                        "of a row written back");
    printf("capacity              %s\n", number_bytes(&bytes, report->capacity_bytes));
    if (isfinite(drive_writes_a_day(report)))
        printf("drive writes a day    %.3g DWPD\n", drive_writes_a_day(report));
    if (report->rated_bytes <= 0) {
        puts("rated for             not known: endurance.rated_written_bytes is not configured; it "
             "is "
             "the TBW of the data sheet, of all drives together");
        return;
    }
    printf("rated for             %.3g DWPD: %s written in %.0f year%s\n",
           rated_drive_writes_a_day(report), number_bytes(&bytes, report->rated_bytes),
           report->rated_years, PLURAL(report->rated_years));
    if (isfinite(years(report)))
        printf("they are written in   %.3g years at this rate\n", years(report));
}

static void print_history(const struct report *report)
{
    static const char *const titles[LIFE_WINDOWS] = { "last hour", "last day", "last week" };
    const struct device_reports *const devices = &report->devices;
    struct number_text age, bytes;

    if (isnan(devices->daily_bytes[LIFE_WINDOWS - 1])) {
        printf("rates of the history  %s\n",
               devices->has_uncounted ? "not known: the kernel does not count all devices" : YOUNG);
        return;
    }
    printf("%s, by the history of the last %s\n",
           devices->count > 0 ? "written a day to all devices, by all programs"
                              : "written a day by the server",
           number_duration(&age, isnan(devices->history_seconds) ? 0 : devices->history_seconds));
    if (!isnan(devices->now_bytes))
        printf("  in the %-12s %s\n", "last 10 min", number_bytes(&bytes, devices->now_bytes));
    for (size_t w = 0; w < LIFE_WINDOWS; w++)
        if (!isnan(devices->daily_bytes[w]))
            printf("  in the %-12s %s\n", titles[w], number_bytes(&bytes, devices->daily_bytes[w]));
}

static void print_life(const struct report *report)
{
    const struct device_reports *const devices = &report->devices;
    const struct life *const life = &devices->life;
    struct number_text bytes, date;

    if (devices->count > 1)
        printf("wears out first       %s\n", TEXT_SHOWN(devices->life_device));
    if (!isnan(life->written_bytes))
        printf("written in its life   %s (%s)\n", number_bytes(&bytes, life->written_bytes),
               life->is_counted ? "by the drive's own count"
                                : "since the history began; the drive's own count is not known");
    if (isnan(life->years) && isnan(devices->daily_bytes[LIFE_WINDOWS - 1])) {
        puts("life left             " YOUNG);
        return;
    }
    if (isnan(life->years)) {
        puts("life left             not known: it needs endurance.rated_written_bytes, or drives "
             "that report their wear");
        return;
    }
    printf("life left             %s%.3g years (%.3g to %.3g)%s%s\n",
           life->is_counted && !devices->has_unknown_life ? "" : "at most ", life->years,
           life->least_years, life->most_years, life_ends(life, &date) ? ", until " : "",
           life_ends(life, &date) ? date.text : "");
}

static int print_report(const struct report *report, bool is_interval)
{
    struct number_text uptime, seconds;

    printf("embtierd is up %s; counted %s%s\n\n", number_duration(&uptime, report->uptime_s),
           is_interval ? "in the last " : "since its start",
           is_interval ? number_duration(&seconds, report->seconds) : "");
    if (!table_rows_print(&report->rows, report->has_rates, report->seconds) ||
        putchar('\n') == EOF || !print_causes(report))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    putchar('\n');
    if (!device_reports_print(&report->devices))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    putchar('\n');
    print_drives(report);
    print_history(report);
    print_life(report);
    if (!table_rows_print_rates(&report->rows))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    return EXIT_DONE;
}

/* ---- The command ---- */

void help_endurance(FILE *out)
{
    fputs(
        "\n"
        "Amplification: bytes written to SSD per byte that clients updated. Store amplification:\n"
        "the same per byte of the rows that the server wrote back, which a cache makes fewer; it\n"
        "is ssd.write_amplification of a machine's file. The drives' capacity and rating come\n"
        "from the server's configuration (endurance.*).\n"
        "\n"
        "Tables: an eager table was made with its first values (initial_bytes), a part of\n"
        "flush_bytes. The row (other), dropped_tables, is for tables that are gone, and for files\n"
        "that belong to none. The row (shared) is for all that no table can be charged with: blob\n"
        "files, checkpoints, a tier's file, catalogs, and logs but for the rows in them. All rows\n"
        "together are all that the server wrote.\n"
        "\n"
        "Devices: those beneath the data directories and the tiers' files, with the bytes that\n"
        "all programs wrote since the server's start, the server's part, and the others'. Rates\n"
        "of the last ten minutes, hour, day and week outlive the server. Without --interval, "
        "other\n"
        "rates need an hour. NVMe drives are asked for their health: this needs CAP_SYS_ADMIN, so\n"
        "run the command as root on the server's machine. Life left: of the drive that wears out\n"
        "first, by its share of the rating and what it reports, at these rates.\n"
        "\n"
        "With -o json: {uptime_s, seconds, tables: [{name, updated_rows, updated_bytes,\n"
        "flush_bytes, initial_bytes, compaction_bytes, log_bytes, import_bytes, other_bytes,\n"
        "written_bytes, write_amplification, daily_bytes: {now, hour, day, week},\n"
        "history_seconds, history_bytes}], dropped_tables, shared, all_tables,\n"
        "written_bytes_by_cause, written_bytes, write_amplification, stored_row_bytes,\n"
        "store_amplification, written_bytes_per_day, capacity_bytes, drive_writes_per_day,\n"
        "rated_written_bytes, rated_drive_writes_per_day, rated_life_years, devices: [{name,\n"
        "capacity_bytes, counted, written_bytes, server_bytes, others_bytes, daily_bytes:\n"
        "{now, hour, day, week}, drive_writes_per_day, history_seconds, history_bytes,\n"
        "max_dwpd_exceeded, write_back_held, life: {written_bytes, counted_by_drives,\n"
        "left_bytes, years, least_years, most_years}, health: {device, failing, warnings,\n"
        "critical_warnings, used_percent, spare_percent, spare_threshold_percent,\n"
        "written_units, written_bytes, media_written_bytes, drive_amplification, media_errors,\n"
        "temperature_celsius, power_on_hours, unsafe_shutdowns}, health_error}],\n"
        "daily_bytes: {now, hour, day, week}, history_seconds, life: {...}, life_device, "
        "life_ends};\n"
        "an unknown value is null.\n",
        out);
}

int command_endurance(struct cli *cli, int argc, char **argv)
{
    double seconds = 0;
    int exit_code = cli_seconds_option(cli, argc, argv, "interval", 'i', &seconds);
    struct endurance_sample before = { 0 }, now = { 0 };
    struct report report;
    struct err_msg msg;
    enum embtier_err err = EMBTIER_OK;

    if (exit_code >= 0)
        return exit_code;
    exit_code = cli_connect(cli, 0);
    if (exit_code)
        return exit_code;
    if (seconds > 0) {
        err = endurance_sample_take(cli, &before);
        if (err == EMBTIER_OK)
            endurance_wait(seconds);
    }
    if (err == EMBTIER_OK)
        err = endurance_sample_take(cli, &now);
    if (err != EMBTIER_OK) {
        exit_code = cli_fail_server(cli, err);
    } else if (before.status && endurance_sample_check(&before, &now, &msg) != EMBTIER_OK) {
        exit_code = cli_fail(EMBTIER_AGAIN, msg.text);
    } else if (!report_make(&before, &now, cli_server_is_here(cli), &report)) {
        exit_code = cli_fail(EMBTIER_NO_MEMORY, "");
    } else {
        exit_code = cli->json ? cli_print_json(report_to_json(&report), 17)
                              : print_report(&report, seconds > 0);
        report_clear(&report);
    }
    endurance_sample_free(&before);
    endurance_sample_free(&now);
    return exit_code;
}
