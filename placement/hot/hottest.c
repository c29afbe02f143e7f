/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/hot/hottest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/text/text_escape.h"
#include "placement/profile/tracked_rows.h"
#include "placement/trace/trace_reader.h"

#define SLOTS_MIN   1024
#define SHOWN_EVERY (16 * MIB)

/* Rows whose hash lies from @low to @high, with the lookups of one pass. */
struct counting {
    struct hot_row *slots; /* no lookups: the slot is free */
    uint64_t slot_count;   /* a power of two */
    uint64_t slots_max;    /* the same */
    uint64_t row_count;
    uint64_t low, high;
    uint64_t key; /* random, so that no file can aim all its rows at one slot */
};

/* The work on one trace. */
struct search {
    const char *path;
    const struct hottest_opts *opts;
    struct counting counting;
    struct hot_rows *found; /* of all passes so far */
    bool can_read_again;
    uint64_t shown_bytes; /* of progress */
};

void hot_rows_free(struct hot_rows *rows)
{
    if (!rows)
        return;
    free(rows->rows);
    free(rows);
}

/* ---- Counting ---- */

static struct hot_row *slot_of(const struct counting *counting, uint64_t hash, uint64_t id)
{
    const uint64_t mask = counting->slot_count - 1;
    uint64_t at = hash & mask;

    while (counting->slots[at].lookups > 0 && counting->slots[at].id != id)
        at = (at + 1) & mask;
    return &counting->slots[at];
}

/* Moves the rows up to @high into @slot_count new slots. */
static enum embtier_err rebuild(struct counting *counting, uint64_t slot_count)
{
    struct hot_row *const old = counting->slots;
    const uint64_t old_count = counting->slot_count;
    struct hot_row *const slots = calloc(slot_count, sizeof(*slots));

    if (!slots)
        return EMBTIER_NO_MEMORY;
    counting->slots = slots;
    counting->slot_count = slot_count;
    counting->row_count = 0;
    for (uint64_t i = 0; i < old_count; i++) {
        const uint64_t hash = tracked_rows_hash(counting->key, old[i].id);

        if (old[i].lookups == 0 || hash > counting->high)
            continue;
        *slot_of(counting, hash, old[i].id) = old[i];
        counting->row_count++;
    }
    free(old);
    return EMBTIER_OK;
}

static enum embtier_err too_many_passes(const struct search *search, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_TOO_LARGE,
                   "%s: table '%s' has so many rows that counting takes over %d passes; allow more "
                   "memory",
                   search->path, search->opts->table, HOTTEST_PASSES_MAX);
}

/* Makes room for a row: more slots, or else a narrower range of hashes. */
static enum embtier_err make_room(struct search *search, struct err_msg *msg)
{
    struct counting *const counting = &search->counting;
    enum embtier_err err;

    if (counting->slot_count < counting->slots_max) {
        err = rebuild(counting, counting->slot_count * 2);
        return err ? err_set(msg, err, "%s: out of memory", search->path) : EMBTIER_OK;
    }
    if (!search->can_read_again)
        return err_set(
            msg, EMBTIER_INVALID,
            "%s: table '%s' has too many rows to be counted in one pass, and this is no "
            "file that can be read again; write the trace to a file, or allow more memory",
            search->path, search->opts->table);
    if (counting->high - counting->low < UINT64_MAX / HOTTEST_PASSES_MAX)
        return too_many_passes(search, msg);
    counting->high = counting->low + (counting->high - counting->low) / 2;
    err = rebuild(counting, counting->slot_count);
    return err ? err_set(msg, err, "%s: out of memory", search->path) : EMBTIER_OK;
}

static enum embtier_err count_row(struct search *search, uint64_t id, struct err_msg *msg)
{
    struct counting *const counting = &search->counting;
    const uint64_t hash = tracked_rows_hash(counting->key, id);
    struct hot_row *slot;

    if (hash < counting->low || hash > counting->high)
        return EMBTIER_OK;
    slot = slot_of(counting, hash, id);
    if (slot->lookups == 0) {
        while (counting->row_count >= counting->slot_count / 4 * 3)
            TRY(make_room(search, msg));
        if (hash > counting->high)
            return EMBTIER_OK;
        slot = slot_of(counting, hash, id);
        slot->id = id;
        counting->row_count++;
    }
    slot->lookups++;
    return EMBTIER_OK;
}

/* ---- One pass ---- */

/* Tells how far the work is: the share of hashes that earlier passes counted, and this pass's part
 * of its range. */
static void show_progress(struct search *search, const struct trace_reader *reader)
{
    const struct counting *const counting = &search->counting;
    const uint64_t total = trace_reader_file_bytes(reader);
    const uint64_t at = trace_reader_offset(reader);
    double share;
    uint64_t done;

    if (!search->opts->progress)
        return;
    share = total > 0 ? (double)at / (double)total : 0;
    share = ((double)counting->low + (double)(counting->high - counting->low) * share) * 0x1p-64;
    done = total > 0 ? (uint64_t)(share * (double)total) : at;
    search->shown_bytes = MAX(search->shown_bytes, done); /* a range that narrows takes some back */
    search->opts->progress(search->opts->ctx, search->shown_bytes, total, "bytes");
}

static enum embtier_err count_blocks(struct search *search, struct trace_reader *reader,
                                     uint32_t table, uint64_t *ret_lookups, struct err_msg *msg)
{
    struct trace_lookups lookups;
    uint64_t shown = 0;
    bool end = false;

    *ret_lookups = 0;
    for (;;) {
        TRY(trace_reader_next(reader, &lookups, &end, msg));
        if (end)
            return EMBTIER_OK;
        if (trace_reader_offset(reader) - shown >= SHOWN_EVERY) {
            shown = trace_reader_offset(reader);
            show_progress(search, reader);
        }
        if (lookups.table != table)
            continue;
        *ret_lookups += lookups.id_count;
        for (uint32_t i = 0; i < lookups.id_count; i++)
            TRY(count_row(search, lookups.ids[i], msg));
    }
}

static enum embtier_err find_table(const struct search *search, const struct trace_reader *reader,
                                   uint32_t *ret_table, struct err_msg *msg)
{
    uint32_t count;
    const struct trace_table *const tables = trace_reader_tables(reader, &count);

    for (uint32_t i = 0; i < count; i++)
        if (strcmp(tables[i].name, search->opts->table) == 0) {
            *ret_table = i;
            search->found->table = tables[i];
            return EMBTIER_OK;
        }
    return err_set(msg, EMBTIER_NO_TABLE, "%s: the trace has no table '%s'", search->path,
                   TEXT_SHOWN(search->opts->table));
}

static enum embtier_err run_pass(struct search *search, struct err_msg *msg)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = NULL;
    uint64_t lookups;
    uint32_t table = 0;

    TRY(trace_reader_open(search->path, &reader, msg));
    TRY(find_table(search, reader, &table, msg));
    search->can_read_again = trace_reader_file_bytes(reader) > 0;
    TRY(count_blocks(search, reader, table, &lookups, msg));
    if (search->counting.low > 0 && lookups != search->found->lookups)
        return err_set(msg, EMBTIER_MISMATCH, "%s: the trace changed while it was read",
                       search->path);
    search->found->lookups = lookups;
    return EMBTIER_OK;
}

/* ---- The hottest of all passes ---- */

static int by_hotness(const void *a, const void *b)
{
    const struct hot_row *const x = a, *const y = b;

    if (x->lookups != y->lookups)
        return x->lookups > y->lookups ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Moves the counted rows to the first slots, sorted. */
static void sort_counted(struct counting *counting)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < counting->slot_count; i++)
        if (counting->slots[i].lookups > 0)
            counting->slots[count++] = counting->slots[i];
    assert(count == counting->row_count);
    if (count > 0)
        qsort(counting->slots, count, sizeof(*counting->slots), by_hotness);
}

/* Keeps the hottest of those found so far and of those that this pass has counted. */
static enum embtier_err keep_hottest(struct search *search)
{
    struct counting *const counting = &search->counting;
    struct hot_rows *const found = search->found;
    const uint64_t count = MIN(search->opts->rows, found->count + counting->row_count);
    struct hot_row *const kept = calloc(MAX(count, (uint64_t)1), sizeof(*kept));
    uint64_t from_old = 0, from_new = 0;

    if (!kept)
        return EMBTIER_NO_MEMORY;
    sort_counted(counting);
    for (uint64_t i = 0; i < count; i++) {
        const bool takes_new = from_old == found->count ||
                               (from_new < counting->row_count &&
                                by_hotness(&counting->slots[from_new], &found->rows[from_old]) < 0);

        kept[i] = takes_new ? counting->slots[from_new++] : found->rows[from_old++];
    }
    free(found->rows);
    found->rows = kept;
    found->count = count;
    found->distinct += counting->row_count;
    return EMBTIER_OK;
}

/* ---- All passes ---- */

/* The bytes that @slots and the rows take at most: both exist twice for a moment. */
static uint64_t memory_needed(uint64_t slots, uint64_t rows)
{
    return 2 * sizeof(struct hot_row) * (slots + rows);
}

static enum embtier_err start(struct search *search, struct err_msg *msg)
{
    const struct hottest_opts *const opts = search->opts;
    struct counting *const counting = &search->counting;
    const uint64_t memory =
        opts->memory_bytes > 0 ? opts->memory_bytes : HOTTEST_MEMORY_BYTES_DEFAULT;

    if (opts->rows > memory || memory_needed(SLOTS_MIN, opts->rows) > memory)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%" PRIu64 " rows do not fit into %" PRIu64
                       " bytes; a row takes %zu of them",
                       opts->rows, memory, 2 * sizeof(struct hot_row));
    counting->slots_max = SLOTS_MIN;
    while (memory_needed(counting->slots_max * 2, opts->rows) <= memory)
        counting->slots_max *= 2;
    if (getrandom(&counting->key, sizeof(counting->key), GRND_NONBLOCK) < 0)
        counting->key = (uintptr_t)search;
    counting->slot_count = SLOTS_MIN;
    counting->slots = calloc(counting->slot_count, sizeof(*counting->slots));
    search->found = calloc(1, sizeof(*search->found));
    return counting->slots && search->found ? EMBTIER_OK : EMBTIER_NO_MEMORY;
}

static enum embtier_err run_passes(struct search *search, struct err_msg *msg)
{
    struct counting *const counting = &search->counting;

    TRY(start(search, msg));
    for (counting->high = UINT64_MAX;; counting->high = UINT64_MAX) {
        TRY(run_pass(search, msg));
        TRY(keep_hottest(search));
        if (counting->high == UINT64_MAX)
            return EMBTIER_OK;
        counting->low = counting->high + 1;
        counting->row_count = 0;
        memset(counting->slots, 0, sizeof(*counting->slots) * counting->slot_count);
    }
}

enum embtier_err hottest_rows(const char *path, const struct hottest_opts *opts,
                              struct hot_rows **ret_rows, struct err_msg *msg)
{
    struct search search = { .path = path, .opts = opts };
    enum embtier_err err;

    assert(opts->rows > 0);
    err = run_passes(&search, msg);
    free(search.counting.slots);
    if (err != EMBTIER_OK)
        hot_rows_free(search.found);
    else
        *ret_rows = search.found;
    return err;
}
