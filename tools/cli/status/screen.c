/* SPDX-License-Identifier: Apache-2.0 */
/* Each part of the screen is made as text first, so that its lines can be counted. Warnings come
 * first, and tables get the lines that are left. */
#include "tools/cli/status/screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "tools/cli/number.h"
#include "tools/cli/status/shown.h"
#include "tools/cli/text_table.h"

/* Lines that warnings may have while the rest is to be seen too. */
#define WARNING_LINES_MAX 7
/* The most of a table's name that is shown. */
#define NAME_COLUMNS   22
#define WARNING_INDENT 9

/* ---- Rates ---- */

static bool has_rates(const struct screen_opts *opts)
{
    return opts->before && opts->seconds > 0;
}

static double rate(const struct screen_opts *opts, double now, double before)
{
    return round((now - before) / opts->seconds);
}

/* ---- Parts ---- */

struct part {
    char *text;
    size_t bytes;
};

static void part_clear(struct part *part)
{
    free(part->text);
}

static size_t lines_of(const struct part *part)
{
    size_t lines = 0;

    for (size_t i = 0; i < part->bytes; i++)
        lines += part->text[i] == '\n';
    return lines;
}

/* Prints at most the screen's columns of each line, or all. */
static void print_part(const struct part *part, bool all, FILE *out)
{
    const char *line = part->text;

    while (line && *line) {
        const size_t bytes = strcspn(line, "\n");
        size_t shown = all ? bytes : MIN(bytes, (size_t)SCREEN_COLUMNS);

        while (shown < bytes && shown > 0 && ((unsigned char)line[shown] & 0xc0) == 0x80)
            shown--; /* a character is not cut in two */
        fprintf(out, "%.*s\n", (int)shown, line);
        line += bytes + (line[bytes] == '\n');
    }
}

typedef bool make_fn(const struct overview *overview, const struct screen_opts *opts, size_t lines,
                     FILE *out);

static bool make_part(make_fn *make, const struct overview *overview,
                      const struct screen_opts *opts, size_t lines, struct part *ret_part)
{
    FILE *const out = open_memstream(&ret_part->text, &ret_part->bytes);
    bool ok;

    if (!out)
        return false;
    ok = make(overview, opts, lines, out);
    return fclose(out) == 0 && ok;
}

/* ---- Warnings ---- */

/* Prints @text, with @head before its first line, in lines of the screen's width. */
static void print_wrapped(FILE *out, const char *head, const char *text)
{
    size_t column = strlen(head);

    fputs(head, out);
    while (*text) {
        const size_t bytes = strcspn(text, " ");

        if (column + 1 + bytes > SCREEN_COLUMNS && column > WARNING_INDENT + 2) {
            fprintf(out, "\n%*s", WARNING_INDENT + 2, "");
            column = WARNING_INDENT + 2;
        } else if (column > strlen(head)) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)bytes, text);
        column += bytes;
        text += bytes + (text[bytes] == ' ');
    }
    fputc('\n', out);
}

static void print_warning(FILE *out, const struct overview_warning *warning)
{
    char text[sizeof(warning->why.text) + 64];
    char head[WARNING_INDENT + 3];

    (void)snprintf(head, sizeof(head), "%-*s", WARNING_INDENT, health_word(warning->rule->health));
    (void)snprintf(text, sizeof(text), "%s: %s", warning->rule->name, warning->why.text);
    print_wrapped(out, head, text);
    (void)snprintf(head, sizeof(head), "%*s> ", WARNING_INDENT, "");
    print_wrapped(out, head, warning->rule->advice);
}

/* Prints as many warnings as fit into @lines, or says that there are more. */
static bool make_warnings(const struct overview *overview, const struct screen_opts *opts,
                          size_t lines, FILE *out)
{
    if (has_rates(opts))
        lines--; /* rates have it */
    for (size_t i = 0; i < overview->warning_count; i++) {
        const bool is_last = i + 1 == overview->warning_count;
        struct part part = { NULL, 0 };
        FILE *const one = open_memstream(&part.text, &part.bytes);
        size_t wanted;

        if (!one)
            return false;
        print_warning(one, &overview->warnings[i]);
        if (fclose(one) != 0) {
            part_clear(&part);
            return false;
        }
        wanted = lines_of(&part) + (is_last ? 0 : 1);
        if (!opts->all && wanted > lines) {
            fprintf(out, "%zu more: embtier status --all\n", overview->warning_count - i);
            part_clear(&part);
            return true;
        }
        lines -= MIN(lines, lines_of(&part));
        fputs(part.text, out);
        part_clear(&part);
    }
    return true;
}

static bool make_head(const struct overview *overview, const struct screen_opts *opts, size_t lines,
                      FILE *out)
{
    struct number_text uptime;

    (void)opts;
    (void)lines;
    text_print(out, "embtierd %s, up %s: %s\n", overview->version,
               number_duration(&uptime, overview->uptime_s), health_word(overview->health));
    return true;
}

/* ---- Facts ---- */

/* Names the transports that some client uses. */
static bool add_clients(struct text_table *text, const struct overview *overview)
{
    const double sessions = overview->clients.sessions;
    char line[256] = "";
    size_t written = 0;

    for (size_t i = 0; i < overview->clients.transport_count && written < sizeof(line); i++) {
        const struct embtier_metric *const metric = overview->clients.by_transport[i];

        if (metric->value > 0)
            written += (size_t)snprintf(line + written, sizeof(line) - written, "%s%s %s",
                                        written == 0 ? " (" : ", ", SHOWN_COUNT(metric->value),
                                        metric->label_value);
    }
    return text_table_add(text, "clients") &&
           text_table_add(text, "%s session%s%s%s with %s of arenas", SHOWN_COUNT(sessions),
                          PLURAL(sessions), line, written > 0 ? ")" : "",
                          SHOWN_BYTES(overview->clients.arena_bytes));
}

static void add_source(FILE *out, const struct overview *overview, const char *name, double rows)
{
    if (rows > 0)
        fprintf(out, "%s%s %s", ftell(out) == 0 ? "" : ", ",
                SHOWN_SHARE(overview_share(overview, rows)), name);
}

/* Names the sources that have served some rows. */
static bool add_lookups(struct text_table *text, const struct overview *overview)
{
    char line[256] = "";
    FILE *const out = fmemopen(line, sizeof(line), "w");

    if (!out)
        return false;
    for (size_t i = 0; i < overview->tier_count; i++)
        add_source(out, overview, overview->tiers[i].name, overview->tiers[i].lookup_rows);
    add_source(out, overview, "arrays", overview->lookups.array_rows);
    add_source(out, overview, "queue", overview->lookups.write_queue_rows);
    add_source(out, overview, "SSD", overview->lookups.ssd_rows);
    add_source(out, overview, "new", overview->lookups.initial_rows);
    return fclose(out) == 0 && text_table_add(text, "served by") &&
           text_table_add(text, "%s", line[0] ? line : "no rows yet");
}

static bool add_checkpoint(struct text_table *text, const struct overview *overview)
{
    const double interval_s = overview->checkpoint.interval_s;
    char every[64] = "";
    struct number_text age, interval;

    if (interval_s > 0)
        (void)snprintf(every, sizeof(every), "; one every %s",
                       number_duration(&interval, interval_s));
    else if (interval_s == 0)
        (void)snprintf(every, sizeof(every), "; none is made by itself");
    if (!text_table_add(text, "checkpoint"))
        return false;
    if (isnan(overview->checkpoint.age_s))
        return text_table_add(text, "none%s", every);
    if (isnan(overview->checkpoint.id))
        return text_table_add(text, "%s ago%s", number_duration(&age, overview->checkpoint.age_s),
                              every);
    return text_table_add(text, "%.0f, %s ago%s", overview->checkpoint.id,
                          number_duration(&age, overview->checkpoint.age_s), every);
}

static bool add_plan(struct text_table *text, const struct overview *overview)
{
    const struct embtier_plan_info *const plan = overview->plan;
    char applying[96] = "";
    struct number_text date;

    if (!plan)
        return true;
    if (plan->applying_pid > 0)
        (void)snprintf(applying, sizeof(applying), "; process %" PRIu64 " applies %" PRIu64,
                       plan->applying_pid, plan->applying_generation);
    if (!text_table_add(text, "plan"))
        return false;
    if (plan->generation == 0)
        return text_table_add(text, "none%s", applying);
    return text_table_add(text, "generation %" PRIu64 ", since %s%s", plan->generation,
                          number_date(&date, plan->applied_ms), applying);
}

static bool add_counts(struct text_table *text, const char *title, double requests,
                       double looked_up, double set, double pushed)
{
    return text_table_add(text, "%s", title) &&
           text_table_add(text, "%s; rows: %s looked up, %s set, %s pushed", SHOWN_COUNT(requests),
                          SHOWN_COUNT(looked_up), SHOWN_COUNT(set), SHOWN_COUNT(pushed));
}

/* Adds the counts, and their rates if these are known. */
static bool add_requests(struct text_table *text, const struct overview *now,
                         const struct screen_opts *opts)
{
    const struct overview *const before = opts->before;

    if (!add_counts(text, "requests", now->requests, now->lookups.rows, now->set_rows,
                    now->pushed_rows))
        return false;
    if (!has_rates(opts))
        return true;
    return add_counts(text, "per second", rate(opts, now->requests, before->requests),
                      rate(opts, now->lookups.rows, before->lookups.rows),
                      rate(opts, now->set_rows, before->set_rows),
                      rate(opts, now->pushed_rows, before->pushed_rows));
}

static bool add_compaction(struct text_table *text, const struct overview *overview)
{
    const double resharded = overview_resharded(overview);
    char moves[48] = "";

    if (!isnan(resharded))
        (void)snprintf(moves, sizeof(moves), "; resharding %s", SHOWN_SHARE(resharded));
    return text_table_add(text, "%s to do, %s shard%s at it now%s",
                          SHOWN_BYTES(overview->ssd.pending_bytes),
                          SHOWN_COUNT(overview->ssd.compacting_shards),
                          PLURAL(overview->ssd.compacting_shards), moves);
}

static bool make_facts(const struct overview *overview, const struct screen_opts *opts,
                       size_t lines, FILE *out)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("ll");
    const bool ok = text && add_clients(text, overview) && add_requests(text, overview, opts) &&
                    add_lookups(text, overview) && text_table_add(text, "SSD") &&
                    text_table_add(text, "%s stored, %s written, %s free for rows",
                                   SHOWN_BYTES(overview->ssd.stored_bytes),
                                   SHOWN_BYTES(overview->ssd.written_bytes),
                                   SHOWN_BYTES(overview->ssd.room_bytes)) &&
                    text_table_add(text, "compaction") && add_compaction(text, overview) &&
                    add_checkpoint(text, overview) && add_plan(text, overview);

    (void)lines;
    if (ok)
        text_table_print(text, 0, out);
    return ok;
}

/* ---- Tiers ---- */

static bool add_cells(struct text_table *text, const char *const *cells, size_t count)
{
    bool ok = true;

    for (size_t i = 0; ok && i < count; i++)
        ok = text_table_add(text, "%s", cells[i]);
    return ok;
}

#define ADD_CELLS(text, ...)                                                                       \
    add_cells((text), (const char *const[]){ __VA_ARGS__ },                                        \
              ARRAY_LEN(((const char *const[]){ __VA_ARGS__ })))

static bool make_tiers(const struct overview *overview, const struct screen_opts *opts,
                       size_t lines, FILE *out)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrr");
    bool ok = text && ADD_CELLS(text, "TIER", "BYTES", "USED", "ROWS", "NOT ON SSD", "HIT RATE");

    (void)opts;
    (void)lines;
    for (size_t i = 0; ok && i < overview->tier_count; i++) {
        const struct overview_tier *const tier = &overview->tiers[i];

        ok = ADD_CELLS(text, tier->name, SHOWN_BYTES(tier->capacity_bytes),
                       SHOWN_BYTES(tier->used_bytes), SHOWN_COUNT(tier->rows),
                       SHOWN_COUNT(tier->dirty_rows),
                       SHOWN_SHARE(overview_share(overview, tier->lookup_rows)));
    }
    if (ok && overview->arrays.capacity_bytes > 0)
        ok = ADD_CELLS(text, "arrays", SHOWN_BYTES(overview->arrays.capacity_bytes),
                       SHOWN_BYTES(overview->arrays.used_bytes), SHOWN_COUNT(overview->arrays.rows),
                       SHOWN_COUNT(overview->arrays.dirty_rows),
                       SHOWN_SHARE(overview_share(overview, overview->lookups.array_rows)));
    if (ok)
        text_table_print(text, 0, out);
    return ok;
}

/* ---- Tables ---- */

/* Returns the table's name, cut short if it is long. */
struct name_text {
    char text[EMBTIER_TABLE_NAME_MAX + 1];
};

static const char *name_text(struct name_text *buffer, const char *name, bool all)
{
    const bool is_long = !all && strlen(name) > NAME_COLUMNS;

    (void)snprintf(buffer->text, sizeof(buffer->text), "%.*s%s",
                   is_long ? NAME_COLUMNS - 3 : EMBTIER_TABLE_NAME_MAX, name, is_long ? "..." : "");
    return buffer->text;
}

static bool add_table(struct text_table *text, const struct embtier_table_info *table, bool all)
{
    const double lookups = (double)table->lookup_rows;
    const double hits = lookups - (double)table->missed_lookup_rows;
    const bool is_unbounded = table->rows == 0;
    struct name_text name;

    return ADD_CELLS(text, name_text(&name, table->name, all),
                     is_unbounded ? "any" : SHOWN_COUNT((double)table->rows),
                     SHOWN_COUNT((double)table->dim),
                     is_unbounded ? "-" : SHOWN_BYTES((double)overview_table_bytes(table)),
                     SHOWN_COUNT(lookups), SHOWN_SHARE(lookups > 0 ? hits / lookups : (double)NAN),
                     SHOWN_COUNT((double)table->updated_rows),
                     SHOWN_BYTES((double)(table->flush_bytes + table->compaction_bytes +
                                          table->log_bytes + table->import_bytes)));
}

static bool make_tables(const struct overview *overview, const struct screen_opts *opts,
                        size_t lines, FILE *out)
{
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lrrrrrrr");
    size_t shown = overview->table_count;
    char title[64] = "TABLE";
    bool ok;

    if (!opts->all)
        shown = MIN(MIN(shown, (size_t)SCREEN_TABLES_MAX), lines > 0 ? lines - 1 : 0);
    if (shown < overview->table_count)
        (void)snprintf(title, sizeof(title), "%zu OF %zu TABLES", shown, overview->table_count);
    ok = text &&
         ADD_CELLS(text, title, "ROWS", "DIM", "BYTES", "LOOKUPS", "HITS", "UPDATES", "TO SSD");
    for (size_t i = 0; ok && i < shown; i++)
        ok = add_table(text, overview->tables[i], opts->all);
    if (ok)
        text_table_print(text, 0, out);
    return ok;
}

/* ---- All ---- */

bool screen_print(const struct overview *overview, const struct screen_opts *opts, FILE *out)
{
    static const struct {
        make_fn *make;
        size_t lines; /* at most; 0: those that are left */
    } parts[] = {
        { make_head, 1 },
        { make_warnings, WARNING_LINES_MAX },
        { make_facts, SCREEN_LINES },
        { make_tiers, SCREEN_LINES },
        { make_tables, 0 },
    };
    size_t left = SCREEN_LINES;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct part part = { NULL, 0 };
        const bool ok = make_part(parts[i].make, overview, opts,
                                  parts[i].lines > 0 ? parts[i].lines : left, &part);

        if (ok) {
            print_part(&part, opts->all, out);
            left -= MIN(left, lines_of(&part));
        }
        part_clear(&part);
        if (!ok)
            return false;
    }
    return true;
}
