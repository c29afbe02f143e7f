/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/trial/layout_trial.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/paths.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "store/database/database.h"
#include "store/files/file_tree.h"
#include "tools/trial/trial_load.h"
#include "tools/trial/trial_wire.h"

#define NS_PER_S UINT64_C(1000000000)
#define TICK_NS  (NS_PER_S / 10) /* between looks at the files' bytes */
#define NAP_NS   (NS_PER_S / 2000)
/* Part of the time after which RocksDB finds nothing in what it calls due, and its bounds. */
#define STUCK_PART     (1.0 / 120)
#define STUCK_LEAST_NS (NS_PER_S / 2)
#define STUCK_MOST_NS  (NS_PER_S * 5)
#define BATCH_MOST     1024 /* as the server's writer has them */
#define BUFFER_PARTS   16   /* least batches in a write buffer */
#define READ_ROWS      64   /* of one lookup that misses the cache */
#define READERS_MOST   64
#define SEED           7
#define PERIOD_S       0.1  /* of the compaction scheduler */
#define IDLE_MOST      0.5  /* of the trial's time, in which a turn finds too few rows to write */
#define OTHERS_MOST    0.95 /* of the time, in which other shards have the slots */

/* The turns that the server's scheduler would give this database, in seconds of the server's time:
 * bytes over their rate. */
struct turns {
    bool is_on;
    double now_s, next_s, on_since_s, wait_until_s;
    double on_s, last_on_s; /* all together; the last one */
    double others;          /* shards for each slot of the device, without this one */
    double period_s;        /* of the scheduler */
    struct random random;
};

struct layout_trial {
    const struct trial_spec *spec;
    enum config_layout layout;
    trial_tell_fn *tell;
    void *context;
    struct config *config;
    struct rocksdb_setup *setup;
    struct rocksdb_ext_activity *activity;
    struct database *database;
    struct trial_load *load;
    char *path;
    bool is_direct;
    uint32_t readers, batch_rows;
    double update_s;        /* of the server's time, for an update of this shard */
    struct store_row *rows; /* of a batch */
    uint32_t *numbers;
    unsigned char *bytes; /* of one row: weights do not compress, and are not compressed */
    uint64_t tick_ns, most_bytes, due_since_ns;
    uint64_t idle_flush_bytes; /* when it was due and found nothing */
    struct turns turns;
};

/* ---- The database ---- */

/* Gives the shard the part of the server's memory that it has, or less if it is a smaller one. */
static void scale_config(struct layout_trial *trial)
{
    const struct trial_spec *const spec = trial->spec;
    struct config *const config = trial->config;

    config->rocksdb.layout = trial->layout;
    config->rocksdb.memtable_bytes =
        spec->buffer_bytes * STORE_DATABASES_PER_SHARD * DATABASE_WRITE_BUFFERS;
    config->rocksdb.metadata_cache_bytes =
        MAX((uint64_t)((double)config->rocksdb.metadata_cache_bytes / spec->each_of), MIB);
}

static void scale_files(struct layout_trial *trial)
{
    rocksdb_options_t *const options = trial->setup->options;
    const double scale = trial->spec->scale;

    rocksdb_options_set_target_file_size_base(
        options,
        MAX((uint64_t)((double)rocksdb_options_get_target_file_size_base(options) * scale), KIB));
    rocksdb_options_set_max_bytes_for_level_base(
        options,
        MAX((uint64_t)((double)rocksdb_options_get_max_bytes_for_level_base(options) * scale),
            KIB));
    rocksdb_options_set_blob_file_size(
        options, MAX((uint64_t)((double)rocksdb_options_get_blob_file_size(options) * scale), KIB));
}

/* On a smaller scale the server's time passes faster: a write buffer is full sooner. */
static void take_turns(struct layout_trial *trial)
{
    const double shards = trial->config->data.shards_per_directory;
    const double slots = trial->config->rocksdb.compaction_parallel;

    trial->turns = (struct turns){ .others = MAX(shards - slots, 0.0) / slots,
                                   .period_s = PERIOD_S * trial->spec->scale,
                                   .random.state = SEED };
}

static enum embtier_err open_database(struct layout_trial *trial, struct err_msg *msg)
{
    const struct trial_spec *const spec = trial->spec;
    static const char *const words[] = TRIAL_LAYOUT_WORDS;

    TRY(config_load(spec->config_path, budget_unbudgeted, &trial->config, msg));
    scale_config(trial);
    trial->readers =
        MIN(trial->config->lanes.readers_per_lane * MAX(trial->config->lanes.count, 1u),
            (uint32_t)READERS_MOST);
    TRY(rocksdb_setup_new(trial->config, 1, &trial->setup, msg));
    scale_files(trial);
    trial->activity = rocksdb_ext_activity_new();
    trial->path = path_join(spec->directory, words[trial->layout]);
    if (!trial->activity || !trial->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(direct_io_probe(spec->directory, trial->config->rocksdb.direct_io, &trial->is_direct, msg));
    TRY(folder_make(trial->path, msg));
    TRY(database_open(&(struct database_opts){ .setup = trial->setup,
                                               .activity = trial->activity,
                                               .path = trial->path,
                                               .make = true,
                                               .logged = spec->is_logged,
                                               .direct_io = trial->is_direct },
                      &trial->database, msg));
    take_turns(trial);
    return EMBTIER_OK;
}

/* ---- Counts ---- */

static uint64_t stored_bytes(const struct layout_trial *trial)
{
    DIR *const folder = opendir(trial->path);
    struct dirent *file;
    uint64_t bytes = 0;

    while (folder && (file = readdir(folder))) {
        const char *const dot = strrchr(file->d_name, '.');
        struct stat info;

        if (dot && (strcmp(dot, ".sst") == 0 || strcmp(dot, ".blob") == 0) &&
            fstatat(dirfd(folder), file->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            bytes += (uint64_t)info.st_blocks * 512;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

static uint64_t system_bytes(void)
{
    FILE *const file = fopen("/proc/self/io", "re");
    unsigned long long bytes = 0;
    char line[64];

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "write_bytes: %llu", &bytes) == 1) // NOLINT(cert-err34-c)
            break;
    if (file)
        fclose(file);
    return bytes;
}

/* All that was written so far. Bytes of logs and blob files are those of all layouts. */
static void count(const struct layout_trial *trial, struct trial_turn *ret_counts)
{
    struct rocksdb_ext_written written;
    struct rocksdb_ext_file_bytes files;
    struct store_stats stats = { 0 };

    rocksdb_ext_activity_written(trial->activity, ROCKSDB_EXT_ALL_TABLES, &written);
    rocksdb_ext_file_bytes(&files);
    database_add_stats(trial->database, &stats);
    *ret_counts = (struct trial_turn){ .row_bytes = stats.row_bytes_written,
                                       .rows = stats.rows_written,
                                       .flush_bytes = written.flush_bytes,
                                       .compaction_bytes = written.compaction_bytes,
                                       .blob_bytes = files.blob_bytes,
                                       .log_bytes = files.log_bytes,
                                       .other_bytes = files.other_bytes,
                                       .system_bytes = system_bytes(),
                                       .updates = trial_load_updates(trial->load) };
}

static void tick(struct layout_trial *trial)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (now_ns < trial->tick_ns)
        return;
    trial->tick_ns = now_ns + TICK_NS;
    trial->most_bytes = MAX(trial->most_bytes, stored_bytes(trial));
    trial->tell(trial->context, trial->layout);
}

/* ---- Writes ---- */

static uint64_t flush_bytes(const struct layout_trial *trial)
{
    struct rocksdb_ext_written written;

    rocksdb_ext_activity_written(trial->activity, ROCKSDB_EXT_ALL_TABLES, &written);
    return written.flush_bytes;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

/* A short trial cannot wait as long as a busy machine may need. */
static uint64_t stuck_ns(const struct layout_trial *trial)
{
    const double part_ns = STUCK_PART * trial->spec->seconds * (double)NS_PER_S;

    return (uint64_t)MIN(MAX(part_ns, (double)STUCK_LEAST_NS), (double)STUCK_MOST_NS);
}

/* Says whether compactions have work. RocksDB may call a database due and find nothing in it: then
 * it has none before the next flush. */
static bool has_debt(struct layout_trial *trial)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    struct database_debt debt;

    database_poll_debt(trial->database, &debt);
    if (!debt.due || debt.running > 0 || !trial->turns.is_on ||
        rocksdb_ext_compactions_wait(trial->setup->options))
        trial->due_since_ns = now_ns;
    if (debt.due && now_ns - trial->due_since_ns >= stuck_ns(trial))
        trial->idle_flush_bytes = flush_bytes(trial);
    return debt.running > 0 || (debt.due && flush_bytes(trial) != trial->idle_flush_bytes);
}

static int compare_rows(const void *a, const void *b)
{
    const struct store_row *const x = a, *const y = b;

    if (x->table_id != y->table_id)
        return x->table_id < y->table_id ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void fill_row(const struct layout_trial *trial, uint32_t number, void *bytes,
                     struct store_row *ret_row)
{
    const struct trial_table *const table = trial_spec_table(trial->spec, number);

    *ret_row = (struct store_row){ .table_id = (uint32_t)(table - trial->spec->tables) + 1,
                                   .weight_bytes = table->row_bytes,
                                   .logged = trial->spec->is_logged,
                                   .id = number - table->first,
                                   .bytes = bytes };
}

static enum embtier_err turn_on(struct layout_trial *trial, struct err_msg *msg)
{
    trial->turns.is_on = true;
    trial->turns.on_since_s = trial->turns.next_s;
    trial->turns.wait_until_s = 0;
    return database_set_compacting(trial->database, true, msg);
}

static enum embtier_err turn_off(struct layout_trial *trial, struct err_msg *msg)
{
    const double spent_s = trial->turns.next_s - trial->turns.on_since_s;

    trial->turns.is_on = false;
    if (spent_s > 0) /* at the end of a turn of the trial, the server's time stands still */
        trial->turns.last_on_s = spent_s;
    trial->turns.on_s += MAX(spent_s, 0.0);
    return database_set_compacting(trial->database, false, msg);
}

/* Other shards compact as long as this one, at other times. If they have all slots when this one is
 * due, it waits for the rest of such a time. */
static double wait_for_slot(struct turns *turns)
{
    const double busy = MIN(turns->others * turns->on_s / MAX(turns->now_s, PERIOD_S), OTHERS_MOST);

    return random_unit(&turns->random) < busy ? random_unit(&turns->random) * turns->last_on_s : 0;
}

/* Does what the scheduler does once in each period (compaction_scheduler.c). */
static enum embtier_err give_turns(struct layout_trial *trial, double spent_s, struct err_msg *msg)
{
    struct turns *const turns = &trial->turns;

    turns->now_s += spent_s;
    while (turns->next_s <= turns->now_s) {
        const bool has_work = has_debt(trial);

        if (turns->is_on && !has_work)
            TRY(turn_off(trial, msg));
        else if (!turns->is_on && has_work && turns->wait_until_s == 0)
            turns->wait_until_s = turns->next_s + wait_for_slot(turns);
        if (!turns->is_on && has_work && turns->next_s >= turns->wait_until_s)
            TRY(turn_on(trial, msg));
        turns->next_s += turns->period_s;
        if (!turns->is_on && !has_work) /* nothing becomes due before the next rows */
            turns->next_s = MAX(turns->next_s, turns->now_s);
        else if (turns->is_on && has_work)
            break; /* real time passes until that is done */
    }
    return EMBTIER_OK;
}

static enum embtier_err write_rows(struct layout_trial *trial, uint32_t row_count,
                                   struct err_msg *msg)
{
    enum embtier_err err;

    for (uint32_t i = 0; i < row_count; i++)
        fill_row(trial, trial->numbers[i], trial->bytes, &trial->rows[i]);
    qsort(trial->rows, row_count, sizeof(*trial->rows), compare_rows);
    while ((err = database_write(trial->database, trial->rows, row_count, msg)) == EMBTIER_BUSY) {
        if (has_debt(trial) && !trial->turns.is_on) /* it is urgent */
            TRY(turn_on(trial, msg));
        nap();
        tick(trial);
    }
    tick(trial);
    return err;
}

/* Waits as long as the server would until it has the next rows, if that has not yet passed and
 * RocksDB compacts. */
static void pace(struct layout_trial *trial, uint64_t began_ns, double spent_s)
{
    const uint64_t next_ns = began_ns + (uint64_t)(spent_s * (double)NS_PER_S);

    while (trial->turns.is_on && has_debt(trial) && clock_now_ns(&clock_monotonic) < next_ns) {
        nap();
        tick(trial);
    }
}

static enum embtier_err load_rows(struct layout_trial *trial, struct err_msg *msg)
{
    for (uint32_t done = 0; done < trial->spec->rows;) {
        const uint32_t some = MIN(trial->batch_rows, trial->spec->rows - done);

        for (uint32_t i = 0; i < some; i++)
            trial->numbers[i] = done + i;
        TRY(write_rows(trial, some, msg));
        done += some;
    }
    return EMBTIER_OK;
}

/* Adds the time since @began_ns, in which the load found too few rows for a batch. */
static enum embtier_err add_idle(const struct layout_trial *trial, uint64_t began_ns,
                                 uint64_t *idle_ns, struct err_msg *msg)
{
    const double most_s = IDLE_MOST * trial->spec->seconds;

    *idle_ns += clock_since(clock_now_ns(&clock_monotonic), began_ns);
    if ((double)*idle_ns < most_s * (double)NS_PER_S)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "nearly no row is written with this --cache and --zipf, so layouts do not "
                   "differ; give fewer bytes of cache, a lower exponent or more --minutes");
}

static enum embtier_err write_share(struct layout_trial *trial, double bytes_to_write,
                                    struct err_msg *msg)
{
    uint64_t idle_ns = 0;

    for (double done = 0; done < bytes_to_write;) {
        const uint64_t began_ns = clock_now_ns(&clock_monotonic);
        const uint64_t updates = trial_load_updates(trial->load);
        bool is_checkpoint;
        const uint32_t some =
            trial_load_write(trial->load, trial->batch_rows, trial->numbers, &is_checkpoint);
        const double spent_s =
            (double)(trial_load_updates(trial->load) - updates) * trial->update_s;
        uint64_t bytes = 0;

        tick(trial);
        if (some < trial->batch_rows)
            TRY(add_idle(trial, began_ns, &idle_ns, msg));
        if (some > 0)
            TRY(write_rows(trial, some, msg));
        for (uint32_t i = 0; i < some; i++)
            bytes += trial->rows[i].weight_bytes;
        if (is_checkpoint)
            TRY(database_flush(trial->database, msg));
        TRY(give_turns(trial, spent_s, msg));
        pace(trial, began_ns, spent_s);
        done += (double)bytes;
    }
    return EMBTIER_OK;
}

/* Has all compact that is due, and lets nothing compact afterwards. */
static enum embtier_err settle(struct layout_trial *trial, struct err_msg *msg)
{
    if (!trial->turns.is_on && has_debt(trial))
        TRY(turn_on(trial, msg));
    while (has_debt(trial)) {
        nap();
        tick(trial);
    }
    return trial->turns.is_on ? turn_off(trial, msg) : EMBTIER_OK;
}

/* ---- Reads ---- */

struct reader {
    const struct layout_trial *trial;
    uint64_t until_ns, rows;
    struct random random;
    enum embtier_err err;
    struct err_msg msg;
};

static enum embtier_err read_rows(struct reader *reader, unsigned char *bytes,
                                  struct store_row *rows)
{
    const struct layout_trial *const trial = reader->trial;
    const uint32_t row_bytes = trial->spec->row_bytes_max;

    for (uint32_t i = 0; i < READ_ROWS; i++)
        fill_row(trial, trial_load_read(trial->load, &reader->random),
                 bytes + (size_t)i * row_bytes, &rows[i]);
    qsort(rows, READ_ROWS, sizeof(*rows), compare_rows);
    return database_read(trial->database, rows, READ_ROWS, &reader->msg);
}

static void *run_reader(void *argument)
{
    struct reader *const reader = argument;
    const size_t row_bytes = reader->trial->spec->row_bytes_max;
    _cleanup_(freep) unsigned char *bytes = malloc(READ_ROWS * row_bytes);
    struct store_row rows[READ_ROWS];

    if (!bytes)
        reader->err = err_set(&reader->msg, EMBTIER_NO_MEMORY, "out of memory");
    while (reader->err == EMBTIER_OK && clock_now_ns(&clock_monotonic) < reader->until_ns) {
        reader->err = read_rows(reader, bytes, rows);
        reader->rows += READ_ROWS;
    }
    return NULL;
}

/* Returns rows a second of as many threads as the server has readers. */
static enum embtier_err read_for(struct layout_trial *trial, double seconds, double *ret_rate,
                                 struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct reader readers[READERS_MOST];
    pthread_t threads[READERS_MOST];
    enum embtier_err err = EMBTIER_OK;
    uint32_t started = 0;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < trial->readers; i++) {
        readers[i] = (struct reader){ .trial = trial,
                                      .until_ns = began_ns + (uint64_t)(seconds * (double)NS_PER_S),
                                      .random.state = began_ns + i };
        if (pthread_create(&threads[i], NULL, run_reader, &readers[i]) != 0)
            break;
        started++;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        rows += readers[i].rows;
        if (err == EMBTIER_OK && readers[i].err != EMBTIER_OK) {
            err = readers[i].err;
            *msg = readers[i].msg;
        }
    }
    if (started < trial->readers)
        return err_set(msg, EMBTIER_BUSY, "the system gives no thread for a reader");
    *ret_rate = (double)rows * (double)NS_PER_S /
                (double)MAX(clock_since(clock_now_ns(&clock_monotonic), began_ns), UINT64_C(1));
    return err;
}

/* ---- The whole ---- */

/* Returns the trial's updates between two checkpoints, one at least; 0: there are no checkpoints.
 */
static uint64_t checkpoint_updates(const struct trial_spec *spec, uint32_t interval_s)
{
    const double updates = spec->updates_per_s * interval_s / spec->each_of;

    return interval_s == 0 ? 0 : (uint64_t)MAX(updates, 1.0);
}

static enum embtier_err make_load(struct layout_trial *trial, struct err_msg *msg)
{
    const struct trial_spec *const spec = trial->spec;
    const uint32_t interval_s = trial->config->checkpoints.interval_seconds;
    const double cache_rows = (double)spec->cache_bytes / spec->row_bytes / spec->each_of;
    const bool is_cached = !spec->is_logged && spec->cache_bytes > 0;

    if (is_cached && cache_rows >= spec->rows && interval_s == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the cache holds all rows and there are no checkpoints, so nothing is "
                       "written; give fewer bytes of cache");
    return trial_load_new(
        &(struct trial_load_opts){
            .rows = spec->rows,
            .each_of = spec->each_of,
            .zipf = spec->zipf,
            .cache_rows = is_cached ? (uint32_t)MIN(MAX(cache_rows, 1.0), (double)UINT32_MAX) : 0,
            .reads_share = spec->reads_share,
            .checkpoint_updates = checkpoint_updates(spec, interval_s),
            .seed = SEED },
        &trial->load, msg);
}

static enum embtier_err make_memory(struct layout_trial *trial, struct err_msg *msg)
{
    const double batch = (double)trial->spec->buffer_bytes / BUFFER_PARTS / trial->spec->row_bytes;
    struct random random = { SEED };

    trial->batch_rows = (uint32_t)MIN(MAX(batch, 1.0), (double)BATCH_MOST);
    trial->rows = calloc(trial->batch_rows, sizeof(*trial->rows));
    trial->numbers = calloc(trial->batch_rows, sizeof(*trial->numbers));
    trial->bytes = malloc(trial->spec->row_bytes_max);
    if (!trial->rows || !trial->numbers || !trial->bytes)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < trial->spec->row_bytes_max; i++)
        trial->bytes[i] = (unsigned char)random_u64(&random);
    return EMBTIER_OK;
}

enum embtier_err layout_trial_new(const struct trial_spec *spec, enum config_layout layout,
                                  trial_tell_fn *tell, void *context,
                                  struct layout_trial **ret_trial, struct err_msg *msg)
{
    _cleanup_(layout_trial_freep) struct layout_trial *trial = calloc(1, sizeof(*trial));

    if (!trial)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    trial->spec = spec;
    trial->layout = layout;
    trial->tell = tell;
    trial->context = context;
    trial->update_s = spec->shards / spec->updates_per_s;
    TRY(make_memory(trial, msg));
    TRY(open_database(trial, msg));
    TRY(make_load(trial, msg));
    TRY(load_rows(trial, msg));
    TRY(settle(trial, msg));
    *ret_trial = TAKE(trial);
    return EMBTIER_OK;
}

void layout_trial_free(struct layout_trial *trial)
{
    if (!trial)
        return;
    database_free(trial->database);
    if (trial->activity)
        rocksdb_ext_activity_free(trial->activity);
    rocksdb_setup_free(trial->setup);
    trial_load_free(trial->load);
    config_free(trial->config);
    free(trial->rows);
    free(trial->numbers);
    free(trial->bytes);
    free(trial->path);
    free(trial);
}

bool layout_trial_is_direct(const struct layout_trial *trial)
{
    return trial->is_direct;
}

enum embtier_err layout_trial_turn(struct layout_trial *trial, double share, double read_s,
                                   struct trial_turn *ret_turn, struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct trial_turn before, turn;

    count(trial, &before);
    trial->most_bytes = 0;
    TRY(write_share(trial, share * trial->spec->live_bytes, msg));
    TRY(settle(trial, msg));
    count(trial, &turn);
    turn.row_bytes -= before.row_bytes;
    turn.rows -= before.rows;
    turn.flush_bytes -= before.flush_bytes;
    turn.compaction_bytes -= before.compaction_bytes;
    turn.blob_bytes -= before.blob_bytes;
    turn.log_bytes -= before.log_bytes;
    turn.other_bytes -= before.other_bytes;
    turn.system_bytes -= before.system_bytes;
    turn.updates -= before.updates;
    turn.write_s = (double)clock_since(clock_now_ns(&clock_monotonic), began_ns) / (double)NS_PER_S;
    turn.stored_bytes = stored_bytes(trial);
    turn.stored_most_bytes = MAX(trial->most_bytes, turn.stored_bytes);
    if (read_s > 0)
        TRY(read_for(trial, read_s, &turn.reads_per_s, msg));
    *ret_turn = turn;
    return EMBTIER_OK;
}
