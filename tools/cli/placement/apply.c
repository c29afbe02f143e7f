/* SPDX-License-Identifier: Apache-2.0 */
/* embtier apply: moves a server's tables to where a plan wants them. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/spec/table_spec.h"
#include "base/text/text_escape.h"
#include "placement/apply/apply.h"
#include "placement/check/check.h"
#include "placement/hot/hottest.h"
#include "placement/plan/plan_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/hot_rows.h"
#include "tools/cli/number.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/text_table.h"

#define RATE_DEFAULT ((uint64_t)(256 * MIB))
#define INTERRUPTED                                                                                \
    "the server moves the table in progress back, those that have moved stay there, and those "    \
    "that gave way to others are in the cache: run `embtier apply` again to go on"
#define POLL_MS     50
#define POLLS_QUIET 20
/* The plan counts on so much of the server's cache, or hit rates will be lower. */
#define CACHE_SHARE_LEAST 0.9

enum { DRY_RUN = 256, RATE, TRACE, WITHOUT_GPU };

struct arguments {
    const char *path;
    const char *trace_path; /* NULL: not given */
    uint64_t rate_bytes;
    bool dry_run;
    struct apply_opts opts;
};

/* The hot rows of a table that becomes a split. */
struct hot_set {
    uint64_t *ids;
    uint64_t count;
};

/* All that a run has. */
struct applying {
    const struct arguments *arguments;
    struct plan *plan;
    uint64_t hash; /* of its file */
    struct apply_server server;
    struct apply *apply;
    struct hot_set *hot;           /* of each move */
    double cache_bytes[TIERS_MAX]; /* of each tier of the server */
    uint64_t moved_rows, done_bytes, detours;
    struct progress_bar bar;
};

/* ---- Options ---- */

static int parse_option(const struct cli *cli, int option, struct arguments *arguments)
{
    const double most = (double)(UINT64_C(1) << 62);
    double mib;

    switch (option) {
    case DRY_RUN:
        arguments->dry_run = true;
        return -1;
    case TRACE:
        arguments->trace_path = optarg;
        return -1;
    case WITHOUT_GPU:
        arguments->opts.without_gpu = true;
        return -1;
    default:
        if (!number_is_double(optarg, &mib) || !(mib > 0) || mib * MIB > most)
            return cli_usage(cli, "--rate %s: allowed: a number of MiB a second above 0",
                             TEXT_SHOWN(optarg));
        arguments->rate_bytes = MAX((uint64_t)(mib * MIB), UINT64_C(1));
        return -1;
    }
}

/* Returns -1, or the exit code. */
static int parse(struct cli *cli, int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = { { "dry-run", no_argument, NULL, DRY_RUN },
                                             { "rate", required_argument, NULL, RATE },
                                             { "trace", required_argument, NULL, TRACE },
                                             { "without-gpu", no_argument, NULL, WITHOUT_GPU },
                                             CLI_LONG_OPTIONS };
    int exit_code = EXIT_USAGE;
    int option;

    while ((option = cli_next_option(cli, argc, argv, options, &exit_code)) >= 0) {
        exit_code = parse_option(cli, option, arguments);
        if (exit_code >= 0)
            return exit_code;
    }
    if (option == CLI_OPTIONS_EXIT)
        return exit_code;
    if (argc - optind != 1)
        return cli_usage(cli, argc == optind ? "PLAN is missing" : "more than one PLAN");
    arguments->path = argv[optind];
    return -1;
}

/* ---- Plan and server ---- */

/* Hashes the text that this program would write of the plan, so that comments and blanks do not
 * make it another one. */
static enum embtier_err hash_plan(const struct plan *plan, uint64_t *ret_hash, struct err_msg *msg)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const file = open_memstream(&text, &bytes);
    bool ok = file != NULL;

    if (file) {
        plan_file_write(plan, file);
        ok = ferror(file) == 0;
        ok &= fclose(file) == 0;
    }
    if (ok)
        *ret_hash = XXH3_64bits(text, bytes);
    free(text);
    return ok ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static uint32_t tier_named(const struct apply_server *server, const char *name)
{
    for (uint32_t t = 0; t < server->tier_count; t++)
        if (strcmp(server->tiers[t].name, name) == 0)
            return t;
    return APPLY_NO_TIER;
}

/* Returns the tier's index. A new one is added; APPLY_NO_TIER: there is no room. */
static uint32_t add_tier(struct apply_server *server, const char *name)
{
    const uint32_t tier = tier_named(server, name);

    if (tier != APPLY_NO_TIER || server->tier_count == TIERS_MAX)
        return tier;
    snprintf(server->tiers[server->tier_count].name, sizeof(server->tiers->name), "%s", name);
    return server->tier_count++;
}

/* Reads the tiers from their metrics, which name each tier in the order of speed. */
static enum embtier_err read_tiers(struct cli *cli, struct applying *a)
{
    struct embtier_status *status = NULL;

    TRY(embtier_status(cli->server, &status));
    for (size_t i = 0; i < embtier_status_count(status); i++) {
        const struct embtier_metric *const metric = embtier_status_at(status, i);
        const bool is_lanes = strcmp(metric->name, "lanes") == 0;
        const bool is_array = strcmp(metric->name, "array_capacity_bytes") == 0;
        const bool is_free = strcmp(metric->name, "array_free_bytes") == 0;
        const bool is_cache = strcmp(metric->name, "cache_capacity_bytes") == 0;
        const uint32_t tier =
            is_array || is_free || is_cache ? add_tier(&a->server, metric->label_value) : 0;

        if (tier == APPLY_NO_TIER)
            continue;
        if (is_lanes)
            a->server.lanes = (uint32_t)metric->value;
        else if (is_array)
            a->server.tiers[tier].array_bytes = (uint64_t)metric->value;
        else if (is_free)
            a->server.tiers[tier].free_bytes = (uint64_t)metric->value;
        else if (is_cache)
            a->cache_bytes[tier] = metric->value;
    }
    embtier_status_free(status);
    return EMBTIER_OK;
}

static void describe(const struct embtier_table_info *info, const struct apply_server *server,
                     struct apply_held *ret_held)
{
    *ret_held = (struct apply_held){
        .rows = info->rows,
        .dim = info->dim,
        .dtype = info->dtype,
        .optimizer = info->optimizer,
        .row_bytes = info->weight_bytes + info->state_bytes,
        .place = { .home = info->home, .tier = APPLY_NO_TIER },
    };
    snprintf(ret_held->name, sizeof(ret_held->name), "%s", info->name);
    if (info->home != EMBTIER_HOME_CACHE)
        ret_held->place.tier = tier_named(server, info->home_tier);
    if (info->home == EMBTIER_HOME_SPLIT)
        ret_held->place.hot_rows = info->hot_rows;
}

static enum embtier_err read_tables(struct cli *cli, struct apply_server *server,
                                    struct err_msg *msg)
{
    struct embtier_table_list *list = NULL;
    size_t count;

    TRY(embtier_table_list(cli->server, &list));
    count = embtier_table_list_count(list);
    server->tables = calloc(MAX(count, (size_t)1), sizeof(*server->tables));
    for (size_t i = 0; server->tables && i < count; i++)
        if (strcmp(embtier_table_list_at(list, i)->state, "live") == 0)
            describe(embtier_table_list_at(list, i), server,
                     &server->tables[server->table_count++]);
    embtier_table_list_free(list);
    return server->tables ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static bool is_planned(const struct applying *a, const char *table)
{
    for (uint32_t i = 0; i < a->plan->table_count; i++)
        if (strcmp(a->plan->tables[i].name, table) == 0)
            return true;
    return false;
}

/* Writes the name of a table of the plan that moves; "" if none does. */
static enum embtier_err find_moving(struct cli *cli, struct applying *a,
                                    char name[EMBTIER_TABLE_NAME_MAX + 1])
{
    struct embtier_job_list *list = NULL;

    name[0] = '\0';
    TRY(embtier_job_list(cli->server, &list));
    for (size_t i = 0; i < embtier_job_list_count(list); i++) {
        const struct embtier_job *const job = embtier_job_list_at(list, i);

        if (!job->runs || strcmp(job->kind, "table move") != 0 || !is_planned(a, job->what))
            continue;
        snprintf(name, EMBTIER_TABLE_NAME_MAX + 1, "%s", job->what);
        progress_bar_update(&a->bar, job->done, job->total, job->unit);
    }
    embtier_job_list_free(list);
    return EMBTIER_OK;
}

/* Waits until no table of the plan moves: a move that turns back, such as that of an earlier run
 * that was interrupted, still has its memory. */
static enum embtier_err await_moves(struct cli *cli, struct applying *a)
{
    char name[EMBTIER_TABLE_NAME_MAX + 1] = "";
    enum embtier_err err;

    progress_bar_begin(&a->bar, "waiting for moves", "nothing was moved");
    err = find_moving(cli, a, name);
    for (uint32_t polls = 0; err == EMBTIER_OK && name[0] != '\0'; polls++) {
        if (polls == POLLS_QUIET && !a->bar.is_shown)
            text_print(stderr, "embtier: waiting until table '%s' has moved\n", name);
        nanosleep(&(struct timespec){ .tv_nsec = POLL_MS * 1000000L }, NULL);
        err = find_moving(cli, a, name);
    }
    progress_bar_end(&a->bar);
    return err;
}

/* As the server does when a run begins. */
static enum embtier_err check_generation(struct cli *cli, const struct applying *a,
                                         struct err_msg *msg)
{
    const uint64_t generation = a->plan->generation;
    struct embtier_plan_info info;

    TRY(embtier_plan_show(cli->server, &info));
    if (generation > info.generation || (generation == info.generation && a->hash == info.hash))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "%sthe plan has generation %" PRIu64 ", and %s has %" PRIu64
                   ": make a new plan with `embtier plan make --previous` and that one, or stop "
                   "the server and remove plan.json from its first data directory",
                   PLAN_PLACE(a->plan, NULL, "generation"), generation,
                   generation == info.generation ? "another one in force" : "the one in force",
                   info.generation);
}

/* ---- Reports ---- */

/* Returns the name of its tier; NULL: it has none. */
static const char *tier_of(const struct applying *a, struct apply_place place)
{
    return place.tier == APPLY_NO_TIER ? NULL : a->server.tiers[place.tier].name;
}

/* "cache", "dram", and for a split "dram + cache". */
static bool add_place(struct text_table *text, const struct applying *a, struct apply_place place)
{
    const char *const tier = tier_of(a, place);

    return text_table_add(text, "%s%s", tier ? tier : home_word((int)place.home),
                          place.home == EMBTIER_HOME_SPLIT ? " + cache" : "");
}

static bool add_move(struct text_table *text, const struct applying *a,
                     const struct apply_move *move)
{
    struct number_text rows, bytes, memory;

    return text_table_add(text, "%s", move->table->name) && add_place(text, a, move->from) &&
           add_place(text, a, move->to) &&
           text_table_add(text, "%s", number_count(&rows, (double)move->rows)) &&
           text_table_add(text, "%s", number_bytes(&bytes, (double)move->row_bytes)) &&
           text_table_add(text, "%s", number_bytes(&memory, (double)move->to_bytes));
}

static bool print_moves(const struct applying *a)
{
    static const char *const titles[] = { "TABLE", "FROM", "TO", "ROWS", "BYTES", "ARRAY" };
    _cleanup_(text_table_freep) struct text_table *text = text_table_new("lllrrr");
    bool ok = text != NULL;

    for (uint32_t i = 0; ok && i < ARRAY_LEN(titles); i++)
        ok = text_table_add(text, "%s", titles[i]);
    for (uint32_t i = 0; ok && i < a->apply->move_count; i++)
        ok = add_move(text, a, &a->apply->moves[i]);
    if (ok)
        text_table_print(text, 0, stdout);
    return ok;
}

static void print_left_alone(const struct applying *a)
{
    if (a->apply->same_count > 0)
        printf("tables that are there already: %" PRIu32 "\n", a->apply->same_count);
    if (a->apply->unplanned_count > 0)
        printf("tables of the server that are not in the plan, and stay where they are: %" PRIu32
               "\n",
               a->apply->unplanned_count);
    if (a->apply->gpu_count > 0)
        printf("tables for GPU memory that get arrays, or the cache: %" PRIu32 "\n",
               a->apply->gpu_count);
}

/* True if a table is to become a split, whose hot rows only a trace knows. */
static bool has_cut_tables(const struct applying *a)
{
    for (uint32_t i = 0; i < a->apply->move_count; i++)
        if (a->apply->moves[i].to.home == EMBTIER_HOME_SPLIT)
            return true;
    return false;
}

static void warn_of_cache(const struct applying *a)
{
    for (uint32_t i = 0; i < a->plan->memory_count; i++) {
        const struct plan_memory *const memory = &a->plan->memories[i];
        const uint32_t tier = tier_named(&a->server, memory->name);
        struct number_text planned, there;

        if (plan_memory_kind(memory) != PLAN_MEMORY_TIER ||
            (tier != APPLY_NO_TIER &&
             a->cache_bytes[tier] >= CACHE_SHARE_LEAST * (double)memory->cache_bytes))
            continue;
        if (memory->cache_bytes > 0)
            text_print(stderr,
                       "embtier: warning: the plan counts on %s of cache in tier '%s', and the "
                       "server has %s: fewer lookups will hit than it predicts\n",
                       number_bytes(&planned, (double)memory->cache_bytes), memory->name,
                       number_bytes(&there, tier == APPLY_NO_TIER ? 0 : a->cache_bytes[tier]));
    }
}

static int print_dry_run(const struct applying *a)
{
    struct number_text bytes, seconds, rate;

    if (a->apply->move_count > 0 && !print_moves(a))
        return cli_fail(EMBTIER_NO_MEMORY, "");
    print_left_alone(a);
    if (has_cut_tables(a) && !a->arguments->trace_path)
        puts("tables that are cut by hotness need --trace FILE, the trace of the plan's profile");
    text_print(
        stdout,
        "dry run, nothing was moved; tables to move: %" PRIu32
        ", at most %s of rows, as far as they "
        "are in memory, so at most %s at %s/s\n",
        a->apply->move_count, number_bytes(&bytes, (double)a->apply->row_bytes),
        number_duration(&seconds, (double)a->apply->row_bytes / (double)a->arguments->rate_bytes),
        number_bytes(&rate, (double)a->arguments->rate_bytes));
    if (apply_has_equal_split(a->apply))
        puts("a table among these is a split of as many hot rows already: the run moves it only if "
             "they are other rows");
    return EXIT_DONE;
}

static json_t *place_json(const struct applying *a, struct apply_place place)
{
    return json_pack("{s:s, s:s?, s:o*}", "home", home_word(place.home), "tier", tier_of(a, place),
                     "hot_rows",
                     place.home == EMBTIER_HOME_SPLIT ? cli_json_u64(place.hot_rows) : NULL);
}

static int print_json(const struct applying *a, bool has_moved)
{
    json_t *const moves = json_array();
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < a->apply->move_count; i++) {
        const struct apply_move *const move = &a->apply->moves[i];

        if (move->was_there)
            continue;
        bytes += move->row_bytes;
        json_array_append_new(
            moves,
            json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "table", move->table->name, "from",
                      place_json(a, move->table->place), "to", place_json(a, move->to), "rows",
                      cli_json_u64(move->rows), "bytes", cli_json_u64(move->row_bytes),
                      "array_bytes", cli_json_u64(move->to_bytes)));
    }
    return cli_print_json(json_pack("{s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "generation",
                                    cli_json_u64(a->plan->generation), "applied", has_moved,
                                    "moves", moves, "same", cli_json_u64(a->apply->same_count),
                                    "unplanned", cli_json_u64(a->apply->unplanned_count), "bytes",
                                    cli_json_u64(bytes), "moved_rows", cli_json_u64(a->moved_rows),
                                    "detours", cli_json_u64(a->detours)),
                          JSON_DOUBLE_DIGITS);
}

static int print_applied(const struct applying *a)
{
    struct number_text rows;

    print_left_alone(a);
    text_print(stdout,
               "the plan of generation %" PRIu64 " is in force; tables moved: %" PRIu32
               ", rows of them in memory: %s\n",
               a->plan->generation, apply_moved(a->apply),
               number_count(&rows, (double)a->moved_rows));
    return EXIT_DONE;
}

/* ---- Hot rows ---- */

/* Returns how many ids the largest hot set of the plan may have. */
static uint64_t most_hot_rows(const struct plan *plan)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const table = &plan->tables[i];
        uint64_t rows = 0;

        for (uint32_t p = 0; table->part_count > 1 && p < table->part_count; p++)
            rows += table->parts[p].home == PLAN_CACHE ? 0 : table->parts[p].rows;
        most = MAX(most, rows);
    }
    return most;
}

/* Another table's trace has other hot rows. */
static enum embtier_err check_traced(const struct applying *a, const struct apply_held *held,
                                     const struct trace_table *traced, struct err_msg *msg)
{
    if (traced->rows == held->rows && traced->dim == held->dim && traced->dtype == held->dtype)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_MISMATCH,
                   "table '%s' has other %s in %s than on the server: give the trace that the "
                   "plan's profile was made from",
                   held->name,
                   traced->rows != held->rows ? "rows"
                   : traced->dim != held->dim ? "dim"
                                              : "dtype",
                   a->arguments->trace_path);
}

/* Another trace of the same tables may have far fewer rows than the plan is about. */
static void warn_of_few_rows(struct applying *a, const struct apply_move *move, uint64_t found)
{
    struct number_text there, wanted;

    if ((double)found >= CHECK_HOT_SHARE_LEAST * (double)move->to.hot_rows)
        return;
    progress_bar_end(&a->bar);
    text_print(stderr,
               "embtier: warning: table '%s': %s has %s different rows, and the plan wants %s in "
               "tier '%s': is it the trace that the plan's profile was made from?\n",
               move->table->name, a->arguments->trace_path, number_count(&there, (double)found),
               number_count(&wanted, (double)move->to.hot_rows), tier_of(a, move->to));
}

/* Finds the hot rows of one table in the trace. */
static enum embtier_err find_hot_rows(struct applying *a, uint32_t index, struct err_msg *msg)
{
    struct apply_move *const move = &a->apply->moves[index];
    _cleanup_(hot_rows_freep) struct hot_rows *hot = NULL;
    const struct hottest_opts opts = {
        .table = move->table->name,
        .rows = move->to.hot_rows,
        .memory_bytes =
            MAX(HOTTEST_MEMORY_BYTES_DEFAULT, move->to.hot_rows * 4 * sizeof(struct hot_row)),
        .progress = progress_bar_update,
        .ctx = &a->bar,
    };
    struct hot_set *const set = &a->hot[index];

    TRY(hottest_rows(a->arguments->trace_path, &opts, &hot, msg));
    TRY(check_traced(a, move->table, &hot->table, msg));
    if (hot->count == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s has no lookup of table '%s', so its hot rows are not known: give the "
                       "trace that the plan's profile was made from",
                       a->arguments->trace_path, move->table->name);
    warn_of_few_rows(a, move, hot->count);
    set->ids = malloc(hot->count * sizeof(*set->ids));
    if (!set->ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint64_t i = 0; i < hot->count; i++)
        set->ids[i] = hot->rows[i].id;
    set->count = hot->count;
    apply_limit_hot_rows(a->apply, move, set->count);
    return EMBTIER_OK;
}

/* Finds all of them before the first table moves. */
static enum embtier_err find_all_hot_rows(struct applying *a, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    a->hot = calloc(MAX(a->apply->move_count, 1u), sizeof(*a->hot));
    if (!a->hot)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; err == EMBTIER_OK && i < a->apply->move_count; i++) {
        const struct apply_move *const move = &a->apply->moves[i];

        if (move->to.home != EMBTIER_HOME_SPLIT)
            continue;
        if (!a->arguments->trace_path)
            return err_set(msg, EMBTIER_INVALID,
                           "table '%s' is to have its %" PRIu64 " hottest rows in tier '%s': add "
                           "--trace FILE, the trace that the plan's profile was made from, which "
                           "says which rows these are",
                           move->table->name, move->to.hot_rows, tier_of(a, move->to));
        progress_bar_begin(&a->bar, "counting", "nothing was moved");
        err = find_hot_rows(a, i, msg);
        progress_bar_end(&a->bar);
    }
    return err;
}

static void free_hot_rows(struct applying *a)
{
    for (uint32_t i = 0; a->hot && i < a->apply->move_count; i++)
        free(a->hot[i].ids);
    free(a->hot);
}

/* ---- Moving ---- */

struct step_progress {
    struct applying *a;
    const struct apply_step *step;
};

/* Returns the bytes that a step counts for in the bar: half of a move that takes two. */
static double step_bytes(const struct apply_step *step)
{
    const struct apply_move *const move = step->move;
    const bool is_first =
        step->to.home == EMBTIER_HOME_CACHE && move->to.home != EMBTIER_HOME_CACHE;
    const bool is_second = move->from.home != move->table->place.home;

    return (double)move->row_bytes * (is_first || is_second ? 0.5 : 1);
}

/* Counts a table's rows by their bytes in the bar of all tables. Other units are those of what
 * comes before: pins that end, ids of hot rows that are stored. */
static void on_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    const struct step_progress *const progress = context;
    struct applying *const a = progress->a;
    const bool are_rows = strcmp(unit, "rows") == 0;
    const double part = are_rows && total > 0 ? MIN((double)done / (double)total, 1.0) : 0;

    progress_bar_update(&a->bar, a->done_bytes + (uint64_t)(part * step_bytes(progress->step)),
                        a->apply->row_bytes, "bytes");
}

static struct embtier_move_options options_of(const struct applying *a,
                                              const struct apply_step *step)
{
    const struct hot_set *const hot = &a->hot[step->move - a->apply->moves];
    struct embtier_move_options options = EMBTIER_MOVE_OPTIONS_INIT;

    options.home = step->to.home;
    options.home_tier = tier_of(a, step->to);
    if (step->to.home == EMBTIER_HOME_SPLIT) {
        options.hot_rows = hot->ids;
        options.hot_row_count = hot->count;
    }
    options.rate_bytes = a->arguments->rate_bytes;
    return options;
}

static void note_done(struct applying *a, const struct apply_step *step,
                      const struct embtier_moved_info *moved)
{
    a->done_bytes += (uint64_t)step_bytes(step);
    apply_done(a->apply, step);
    a->moved_rows += moved->rows;
    a->detours += !step->move->is_done;
}

static enum embtier_err run_step(struct cli *cli, struct applying *a, const struct apply_step *step)
{
    struct step_progress progress = { a, step };
    struct embtier_move_options options = options_of(a, step);
    struct embtier_moved_info moved = { 0 };
    enum embtier_err err;

    options.progress = on_progress;
    options.progress_context = &progress;
    err = embtier_table_move(cli->server, step->move->table->name, &options, &moved);
    if (err == EMBTIER_INVALID && apply_is_trial(step)) {
        apply_has_other_rows(step);
        return EMBTIER_OK;
    }
    if (err == EMBTIER_NO_MEMORY && options.home_tier && !apply_is_trial(step)) {
        apply_refused(a->apply, step); /* no gap is large enough */
        return EMBTIER_OK;
    }
    TRY(err);
    note_done(a, step, &moved);
    return EMBTIER_OK;
}

static enum embtier_err run_steps(struct cli *cli, struct applying *a, struct err_msg *msg)
{
    struct apply_step step;

    while (apply_next(a->apply, &step)) {
        const enum embtier_err err = run_step(cli, a, &step);

        if (err != EMBTIER_OK)
            return err_set(msg, err, "%s", embtier_message(cli->server));
    }
    if (apply_left(a->apply) > 0)
        return err_set(msg, EMBTIER_NO_MEMORY,
                       "no gap in the memory for arrays is large enough for the rest: a start of "
                       "the server lays all arrays out anew; restart it, and run this again");
    return EMBTIER_OK;
}

/* A run that cannot go on takes the tables that gave way to others back, as far as there is room
 * and the server takes moves. */
static void move_back(struct cli *cli, struct applying *a)
{
    struct embtier_moved_info moved;
    struct apply_step step;
    enum embtier_err err;

    progress_bar_begin(&a->bar, "moving back", INTERRUPTED);
    while (apply_next_back(a->apply, &step)) {
        struct embtier_move_options options = EMBTIER_MOVE_OPTIONS_INIT;

        options.home = step.to.home;
        options.home_tier = tier_of(a, step.to);
        options.rate_bytes = a->arguments->rate_bytes;
        options.progress = progress_bar_update;
        options.progress_context = &a->bar;
        err = embtier_table_move(cli->server, step.move->table->name, &options, &moved);
        if (err == EMBTIER_OK)
            apply_back_done(a->apply, &step);
        else if (err == EMBTIER_NO_TABLE || err == EMBTIER_NO_MEMORY)
            apply_back_refused(&step); /* the others may still go back */
        else
            break;
    }
    progress_bar_end(&a->bar);
}

/* ---- The command ---- */

static enum embtier_err prepare(struct cli *cli, struct applying *a, struct err_msg *msg)
{
    enum embtier_err err =
        a->arguments->dry_run ? check_generation(cli, a, msg) : await_moves(cli, a);

    if (err == EMBTIER_OK)
        err = read_tiers(cli, a);
    if (err == EMBTIER_OK)
        err = read_tables(cli, &a->server, msg);
    if (err != EMBTIER_OK)
        return msg->text[0] ? err : err_set(msg, err, "%s", embtier_message(cli->server));
    return apply_new(a->plan, &a->server, &a->arguments->opts, &a->apply, msg);
}

static enum embtier_err move_tables(struct cli *cli, struct applying *a, struct err_msg *msg)
{
    enum embtier_err err;

    progress_bar_begin(&a->bar, "moving", INTERRUPTED);
    err = run_steps(cli, a, msg);
    progress_bar_end(&a->bar);
    if (err != EMBTIER_OK)
        move_back(cli, a);
    TRY(err);
    err = embtier_plan_end(cli->server);
    return err ? err_set(msg, err, "%s", embtier_message(cli->server)) : EMBTIER_OK;
}

/* Looks at the tables when no other client applies a plan any more, as that would move them. */
static enum embtier_err run(struct cli *cli, struct applying *a, struct err_msg *msg)
{
    const enum embtier_err err = a->arguments->dry_run
                                     ? EMBTIER_OK
                                     : embtier_plan_begin(cli->server, a->plan->generation, a->hash,
                                                          a->plan->table_count, NULL);

    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s%s",
                       err == EMBTIER_MISMATCH ? PLAN_PLACE(a->plan, NULL, "generation") : "",
                       embtier_message(cli->server));
    TRY(prepare(cli, a, msg));
    warn_of_cache(a);
    if (a->arguments->dry_run)
        return a->arguments->trace_path ? find_all_hot_rows(a, msg) : EMBTIER_OK;
    TRY(find_all_hot_rows(a, msg));
    return move_tables(cli, a, msg);
}

static int tell_failure(const struct applying *a, enum embtier_err err, const struct err_msg *msg)
{
    const uint32_t moved = a->apply ? apply_moved(a->apply) : 0;
    const char *name = "";
    const uint32_t on_the_way = a->apply ? apply_on_the_way(a->apply, &name) : 0;
    struct err_msg whole, way = { { 0 } };

    if (moved == 0 && on_the_way == 0)
        return cli_fail(err, msg->text);
    if (on_the_way > 0)
        snprintf(way.text, sizeof(way.text),
                 "; tables that gave way to others, and are in the cache: %" PRIu32 " (%s%s)",
                 on_the_way, name, on_the_way > 1 ? ", ..." : "");
    (void)err_set(&whole, err,
                  "%s; tables that have moved, and stay there: %" PRIu32 "%s; tables left: %" PRIu32
                  "; run `embtier apply` again to go on",
                  msg->text, moved, way.text, apply_left(a->apply));
    return cli_fail(err, whole.text);
}

static int apply_plan(struct cli *cli, struct applying *a)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = run(cli, a, &msg);

    if (err != EMBTIER_OK)
        return tell_failure(a, err, &msg);
    if (cli->json)
        return print_json(a, !a->arguments->dry_run);
    return a->arguments->dry_run ? print_dry_run(a) : print_applied(a);
}

/* Only moves are long work: a dry run asks, so a server that is silent is told after a while. */
static int connect_for(struct cli *cli, const struct applying *a)
{
    const uint64_t hot_rows = a->arguments->trace_path ? most_hot_rows(a->plan) : 0;

    return a->arguments->dry_run ? cli_connect(cli, 0)
                                 : cli_connect_patiently(cli, hot_rows_arena_bytes(hot_rows));
}

int command_apply(struct cli *cli, int argc, char **argv)
{
    struct arguments arguments = { .rate_bytes = RATE_DEFAULT };
    struct applying applying = { .arguments = &arguments };
    int exit_code = parse(cli, argc, argv, &arguments);
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (exit_code >= 0)
        return exit_code;
    err = plan_file_load(arguments.path, &applying.plan, &msg);
    if (err == EMBTIER_OK)
        err = hash_plan(applying.plan, &applying.hash, &msg);
    exit_code = err ? cli_fail(err, msg.text) : connect_for(cli, &applying);
    if (exit_code == EXIT_DONE)
        exit_code = apply_plan(cli, &applying);
    free_hot_rows(&applying);
    apply_free(applying.apply);
    free(applying.server.tables);
    plan_free(applying.plan);
    return exit_code;
}
