/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/array/row_arrays.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/macros.h"
#include "base/spec/array_shape.h"
#include "tiers/arena/arena.h"
#include "tiers/spots/row_spot.h"

/* As in row_cache.c: refs whose spot is being prefetched, refs whose row is, and lines of such a
 * row. A row is prefetched only when its spot has arrived. Its place is known before, but
 * prefetching it at once measured a sixth slower. */
#define SPOTS_AHEAD 56
#define ROWS_AHEAD  32
#define LINES_AHEAD 16
/* A lane counts the dirty rows of a block together, so that a scan skips clean blocks. */
#define BLOCK_ROWS 4096
/* Spots that one step of a scan reads, for each row that it may hand over. */
#define SCAN_SPOTS 64

_Static_assert(sizeof(struct row_spot) == ARRAY_SPOT_BYTES, "the shape counts spots");

/* Lies in the first page of its memory. */
struct row_array {
    struct row_spot *spots; /* by id */
    uint8_t *base;          /* of row 0 */
    uint64_t rows;
    uint64_t stride;
    uint32_t row_bytes;
    uint8_t shift; /* log2 of a granule */
    struct row_remap *remap;
};

_Static_assert(ROW_CACHE_TABLES_MAX <= UINT16_MAX, "a table's place is 16 bits");

struct arrays_table {
    struct row_array *array; /* NULL: unknown */
    uint64_t rows;           /* rows of this lane that are present */
    uint64_t dirty_rows;     /* of these rows */
    uint16_t *block_dirty;   /* dirty rows of each block; up to BLOCK_ROWS */
    uint16_t number;
};

/* The shortest rows are on granules of 16 bytes. An allocation has up to 32 bytes more. While the
 * table of entries grows, it is there twice, and the new one is up to twice as long as needed. */
_Static_assert(3 * sizeof(struct arrays_table) + 32 +
                       (ARENA_SLAB_BYTES / (sizeof(struct row_spot) + 16) / BLOCK_ROWS + 1) *
                           sizeof(uint16_t) <=
                   ROW_ARRAYS_SLAB_HEAP_BYTES,
               "as the header says");

struct row_arrays {
    struct row_arrays_opts opts;
    struct arrays_table *tables; /* may have gaps, because scans keep their places in it */
    uint32_t table_count;
    uint32_t table_room;
    uint16_t *places; /* by table number: index into tables + 1; 0: unknown */
    uint16_t epoch;   /* mark for the spots of rows that become dirty now: 1 or 2 */
    bool in_epoch;
    bool save_failed;
    struct row_arrays_stats stats; /* counters (base/counter.h), which any thread reads */
};

/* ---- A table's array ---- */

uint64_t row_array_memory_bytes(uint64_t rows, uint32_t row_bytes)
{
    assert(row_bytes > 0);
    return rows == 0 ? 0 : array_shape_of(rows, row_bytes).bytes;
}

struct row_array *row_array_new(void *memory, uint64_t rows, uint32_t row_bytes)
{
    const struct array_shape shape = array_shape_of(rows, row_bytes);
    struct row_array *const array = memory;

    assert(shape.bytes > 0 && (uintptr_t)memory % ARRAY_HEAD_BYTES == 0);
    *array = (struct row_array){
        .spots = (struct row_spot *)((uint8_t *)memory + ARRAY_HEAD_BYTES),
        .base = (uint8_t *)memory + shape.rows_at,
        .rows = rows,
        .stride = shape.stride,
        .row_bytes = row_bytes,
        .shift = shape.shift,
    };
    memset(array->spots, 0, rows * sizeof(*array->spots));
    return array;
}

void row_array_set_remap(struct row_array *array, struct row_remap *remap)
{
    array->remap = remap;
}

struct row_remap *row_array_remap(const struct row_array *array)
{
    return array->remap;
}

static void *row_of(const struct row_array *array, uint64_t id)
{
    assert(id < array->rows);
    return array->base + id * array->stride;
}

static bool is_there(const struct row_array *array, uint64_t id)
{
    return array->spots[id].slot_and_1 != 0;
}

static void ask_for_spot(const struct row_array *array, const struct row_ref *ref)
{
    __builtin_prefetch(&array->spots[ref->id]);
}

/* Prefetches the first @lines of a row into the second-level cache. */
static inline __attribute__((always_inline)) void
ask_for_row(const struct row_array *array, const struct row_ref *ref, uint32_t lines)
{
    const uint8_t *const row = array->base + ref->id * array->stride;

    if (is_there(array, ref->id))
        for (uint32_t line = 0; line < lines; line++)
            __builtin_prefetch(row + line * CACHE_LINE, 0, 2);
}

static uint32_t lines_of(uint32_t bytes)
{
    return MIN(div_round_up(bytes, CACHE_LINE), LINES_AHEAD);
}

/* Returns the epoch in which a row became dirty, or 0. Only the row's lane writes it; scans of
 * other lanes read it before they know the owner. */
static uint16_t dirty_of(const struct row_array *array, uint64_t id)
{
    return __atomic_load_n(&array->spots[id].dirty, __ATOMIC_RELAXED);
}

static void set_dirty(struct row_array *array, uint64_t id, uint16_t epoch)
{
    __atomic_store_n(&array->spots[id].dirty, epoch, __ATOMIC_RELAXED);
}

/* ---- A lane's share ---- */

enum embtier_err row_arrays_new(const struct row_arrays_opts *opts, struct row_arrays **ret_arrays,
                                struct err_msg *msg)
{
    _cleanup_(row_arrays_freep) struct row_arrays *arrays = calloc(1, sizeof(*arrays));

    if (!arrays)
        return err_set(msg, EMBTIER_NO_MEMORY, "arrays: out of memory");
    arrays->places = calloc(ROW_CACHE_TABLES_MAX + 1, sizeof(*arrays->places));
    if (!arrays->places)
        return err_set(msg, EMBTIER_NO_MEMORY, "arrays: out of memory");
    arrays->opts = *opts;
    arrays->epoch = 1;
    *ret_arrays = TAKE(arrays);
    return EMBTIER_OK;
}

void row_arrays_free(struct row_arrays *arrays)
{
    if (!arrays)
        return;
    for (uint32_t t = 0; t < arrays->table_count; t++)
        free(arrays->tables[t].block_dirty);
    free(arrays->tables);
    free(arrays->places);
    free(arrays);
}

static struct arrays_table *table_at(const struct row_arrays *arrays, uint16_t table)
{
    const uint32_t place = arrays->places[table];

    assert(place > 0);
    return &arrays->tables[place - 1];
}

bool row_arrays_has(const struct row_arrays *arrays, uint16_t table)
{
    return arrays->places[table] > 0;
}

struct row_array *row_arrays_array(const struct row_arrays *arrays, uint16_t table)
{
    return table_at(arrays, table)->array;
}

enum embtier_err row_arrays_add_table(struct row_arrays *arrays, uint16_t table,
                                      struct row_array *array)
{
    const uint64_t blocks = div_round_up(array->rows, BLOCK_ROWS);
    uint16_t *block_dirty;
    uint32_t place = 0;

    assert(!row_arrays_has(arrays, table));
    while (place < arrays->table_count && arrays->tables[place].array)
        place++;
    if (place == arrays->table_room) {
        const uint32_t room = MAX(2 * arrays->table_room, 16u);
        struct arrays_table *const tables = realloc(arrays->tables, room * sizeof(*tables));

        if (!tables)
            return EMBTIER_NO_MEMORY;
        arrays->tables = tables;
        arrays->table_room = room;
    }
    block_dirty = calloc(blocks, sizeof(*block_dirty));
    if (!block_dirty)
        return EMBTIER_NO_MEMORY;
    arrays->tables[place] =
        (struct arrays_table){ .array = array, .block_dirty = block_dirty, .number = table };
    arrays->table_count = MAX(arrays->table_count, place + 1);
    arrays->places[table] = (uint16_t)(place + 1);
    counter_add(&arrays->stats.tables, 1);
    return EMBTIER_OK;
}

void row_arrays_remove_table(struct row_arrays *arrays, uint16_t table)
{
    struct row_arrays_stats *const stats = &arrays->stats;
    struct arrays_table *gone;

    if (!row_arrays_has(arrays, table))
        return;
    gone = table_at(arrays, table);
    counter_sub(&stats->tables, 1);
    counter_sub(&stats->rows, gone->rows);
    counter_sub(&stats->bytes, gone->rows * gone->array->row_bytes);
    counter_sub(&stats->dirty_rows, gone->dirty_rows);
    counter_sub(&stats->dirty_bytes, gone->dirty_rows * gone->array->row_bytes);
    free(gone->block_dirty);
    *gone = (struct arrays_table){ .array = NULL };
    arrays->places[table] = 0;
}

static void count_dirty(struct arrays_table *table, uint64_t id)
{
    assert(table->block_dirty[id / BLOCK_ROWS] < BLOCK_ROWS);
    table->dirty_rows++;
    table->block_dirty[id / BLOCK_ROWS]++;
}

static void count_clean(struct arrays_table *table, uint64_t id)
{
    assert(table->dirty_rows > 0 && table->block_dirty[id / BLOCK_ROWS] > 0);
    table->dirty_rows--;
    table->block_dirty[id / BLOCK_ROWS]--;
}

/* Called at the end of a call that may have made rows dirty or clean. @before: the table's dirty
 * rows at its beginning. */
static void count_change(struct row_arrays *arrays, const struct arrays_table *table,
                         uint64_t before)
{
    const uint64_t more = table->dirty_rows - before; /* below zero if they have become fewer */

    if (more == 0)
        return;
    counter_add(&arrays->stats.dirty_rows, more);
    counter_add(&arrays->stats.dirty_bytes, more * table->array->row_bytes);
}

static bool hand_over(struct row_arrays *arrays, struct arrays_table *table, uint64_t hash,
                      uint64_t id)
{
    struct row_array *const array = table->array;

    if (!arrays->opts.evict(arrays->opts.context, table->number, hash, id, row_of(array, id),
                            array->row_bytes))
        return false;
    set_dirty(array, id, 0);
    count_clean(table, id);
    return true;
}

/* Called before the row changes; hands an old row over first. */
static void make_dirty(struct row_arrays *arrays, struct arrays_table *table,
                       const struct row_ref *ref)
{
    const uint16_t dirty = dirty_of(table->array, ref->id);

    if (dirty == arrays->epoch)
        return;
    if (dirty != 0 && arrays->in_epoch && !hand_over(arrays, table, ref->hash, ref->id))
        arrays->save_failed = true;
    if (dirty_of(table->array, ref->id) == 0)
        count_dirty(table, ref->id);
    set_dirty(table->array, ref->id, arrays->epoch);
}

/* The same for a row that is written to SSD as soon as it has changed: a clean row stays clean. */
static void keep_old(struct row_arrays *arrays, struct arrays_table *table,
                     const struct row_ref *ref)
{
    if (dirty_of(table->array, ref->id) != 0)
        make_dirty(arrays, table, ref);
}

struct copying {
    const struct row_ref *refs;
    uint32_t count;
    uint32_t bytes;
    uint64_t stride;
    uint8_t *dest; /* or src */
    const uint8_t *src;
};

/* Calls @use for each present row after prefetching: first its spot, then the row. The other refs
 * are misses. */
static inline __attribute__((always_inline)) uint32_t
run(struct row_arrays *arrays, struct arrays_table *table, const struct copying *copying,
    void (*use)(struct row_arrays *arrays, struct arrays_table *table,
                const struct copying *copying, const struct row_ref *ref),
    uint32_t *ret_missed)
{
    const struct row_array array = *table->array;
    const struct row_ref *const refs = copying->refs;
    const uint32_t count = copying->count;
    const uint32_t lines = lines_of(copying->bytes);
    const uint32_t ahead = MIN(count, (uint32_t)ROWS_AHEAD);
    uint32_t missed = 0;

    assert(copying->bytes <= array.row_bytes);
    for (uint32_t i = 0; i < MIN(count, (uint32_t)SPOTS_AHEAD); i++)
        ask_for_spot(&array, &refs[i]);
    for (uint32_t i = 0; i < count + ahead; i++) {
        if (i + SPOTS_AHEAD < count)
            ask_for_spot(&array, &refs[i + SPOTS_AHEAD]);
        if (i < count)
            ask_for_row(&array, &refs[i], lines);
        if (i < ahead)
            continue;
        if (is_there(&array, refs[i - ahead].id))
            use(arrays, table, copying, &refs[i - ahead]);
        else
            ret_missed[missed++] = i - ahead;
    }
    counter_add(&arrays->stats.hits, count - missed);
    return missed;
}

static inline void copy_out(struct row_arrays *arrays, struct arrays_table *table,
                            const struct copying *copying, const struct row_ref *ref)
{
    (void)arrays;
    memcpy(copying->dest + ref->position * copying->stride, row_of(table->array, ref->id),
           copying->bytes);
}

static inline void copy_in(struct row_arrays *arrays, struct arrays_table *table,
                           const struct copying *copying, const struct row_ref *ref)
{
    make_dirty(arrays, table, ref);
    memcpy(row_of(table->array, ref->id), copying->src + ref->position * copying->stride,
           copying->bytes);
}

uint32_t row_arrays_get(struct row_arrays *arrays, uint16_t number, const struct row_ref *refs,
                        uint32_t count, void *dest, uint64_t stride, uint32_t bytes,
                        uint32_t *ret_missed)
{
    const struct copying copying = {
        .refs = refs, .count = count, .dest = dest, .stride = stride, .bytes = bytes
    };
    const uint32_t missed = run(arrays, table_at(arrays, number), &copying, copy_out, ret_missed);

    counter_add(&arrays->stats.get_hits, count - missed);
    return missed;
}

uint32_t row_arrays_set(struct row_arrays *arrays, uint16_t number, const struct row_ref *refs,
                        uint32_t count, const void *src, uint64_t stride, uint32_t bytes,
                        uint32_t *ret_missed)
{
    struct arrays_table *const table = table_at(arrays, number);
    const struct copying copying = {
        .refs = refs, .count = count, .src = src, .stride = stride, .bytes = bytes
    };
    const uint64_t dirty = table->dirty_rows;
    const uint32_t missed = run(arrays, table, &copying, copy_in, ret_missed);

    count_change(arrays, table, dirty);
    return missed;
}

uint32_t row_arrays_find(struct row_arrays *arrays, uint16_t number, const struct row_ref *refs,
                         uint32_t count, const void **ret_rows)
{
    const struct row_array *const array = table_at(arrays, number)->array;
    uint32_t missed = 0;

    for (uint32_t i = 0; i < count; i++) {
        ret_rows[i] = is_there(array, refs[i].id) ? row_of(array, refs[i].id) : NULL;
        missed += !ret_rows[i];
    }
    return missed;
}

/* Finds rows that are to be changed, and calls @before for each present one. */
static uint32_t find_to_change(struct row_arrays *arrays, uint16_t number,
                               const struct row_ref *refs, uint32_t count, void **ret_rows,
                               void (*before)(struct row_arrays *arrays, struct arrays_table *table,
                                              const struct row_ref *ref))
{
    struct arrays_table *const table = table_at(arrays, number);
    const uint64_t dirty = table->dirty_rows;
    uint32_t missed = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (i + SPOTS_AHEAD < count)
            ask_for_spot(table->array, &refs[i + SPOTS_AHEAD]);
        ret_rows[i] = is_there(table->array, refs[i].id) ? row_of(table->array, refs[i].id) : NULL;
        if (ret_rows[i])
            before(arrays, table, &refs[i]);
        missed += !ret_rows[i];
    }
    count_change(arrays, table, dirty);
    counter_add(&arrays->stats.hits, count - missed);
    return missed;
}

uint32_t row_arrays_change(struct row_arrays *arrays, uint16_t table, const struct row_ref *refs,
                           uint32_t count, void **ret_rows)
{
    return find_to_change(arrays, table, refs, count, ret_rows, make_dirty);
}

uint32_t row_arrays_change_through(struct row_arrays *arrays, uint16_t table,
                                   const struct row_ref *refs, uint32_t count, void **ret_rows)
{
    return find_to_change(arrays, table, refs, count, ret_rows, keep_old);
}

void row_arrays_insert(struct row_arrays *arrays, uint16_t number, const struct row_ref *refs,
                       uint32_t count, const void *const *rows, const uint64_t *dirty)
{
    struct arrays_table *const table = table_at(arrays, number);
    struct row_array *const array = table->array;
    const uint64_t dirty_before = table->dirty_rows;
    uint64_t added = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = refs[i].id;
        const bool is_dirty = dirty && (dirty[i / 64] >> i % 64 & 1);

        if (is_there(array, id))
            continue;
        memcpy(row_of(array, id), rows[i], array->row_bytes);
        array->spots[id].slot_and_1 = (uint32_t)(id * (array->stride >> array->shift)) + 1;
        set_dirty(array, id, is_dirty ? arrays->epoch : 0);
        assert(table->rows < array->rows);
        table->rows++;
        added++;
        if (is_dirty)
            count_dirty(table, id);
    }
    count_change(arrays, table, dirty_before);
    counter_add(&arrays->stats.rows, added);
    counter_add(&arrays->stats.bytes, added * array->row_bytes);
}

static void forget(struct arrays_table *table, uint64_t id)
{
    if (dirty_of(table->array, id) != 0) {
        set_dirty(table->array, id, 0);
        count_clean(table, id);
    }
    table->array->spots[id].slot_and_1 = 0;
    assert(table->rows > 0);
    table->rows--;
}

/* Gives the row of an id, if it is here. False: it was not taken. */
static bool give_row(const struct row_arrays *arrays, struct arrays_table *table, uint64_t id,
                     const struct row_giving *giving, uint32_t *count)
{
    const uint64_t hash = arrays->opts.hash(arrays->opts.context, table->number, id);
    const struct row_ref ref = { .hash = hash, .id = id };

    if (!arrays->opts.is_mine(arrays->opts.context, hash) || !is_there(table->array, id))
        return true;
    if (*count == giving->most_rows ||
        !giving->take(giving->context, &ref, row_of(table->array, id),
                      dirty_of(table->array, id) != 0))
        return false;
    forget(table, id);
    ++*count;
    return true;
}

uint32_t row_arrays_give(struct row_arrays *arrays, uint16_t number, struct row_giving *giving)
{
    struct arrays_table *const table = table_at(arrays, number);
    const uint64_t dirty = table->dirty_rows;
    uint64_t id = giving->cursor;
    uint32_t count = 0;

    assert(!arrays->in_epoch && !giving->wants);
    for (uint32_t steps = giving->most_steps;
         steps > 0 && table->rows > 0 && id < table->array->rows; steps--, id++)
        if (!give_row(arrays, table, id, giving, &count))
            break;
    giving->cursor = id < table->array->rows ? id : 0;
    count_change(arrays, table, dirty);
    counter_sub(&arrays->stats.rows, count);
    counter_sub(&arrays->stats.bytes, (uint64_t)count * table->array->row_bytes);
    return count;
}

uint64_t row_arrays_table_rows(const struct row_arrays *arrays, uint16_t table)
{
    return table_at(arrays, table)->rows;
}

void row_arrays_used(struct row_arrays *arrays, uint32_t count)
{
    counter_add(&arrays->stats.hits, count);
    counter_add(&arrays->stats.get_hits, count);
}

bool row_arrays_spots(const struct row_arrays *arrays, uint16_t number, struct row_spots *ret_spots)
{
    const struct arrays_table *table;
    const struct row_array *array;

    if (!row_arrays_has(arrays, number))
        return false;
    table = table_at(arrays, number);
    array = table->array;
    *ret_spots = (struct row_spots){
        .spots = array->spots,
        .base = array->base,
        .slot_end = UINT32_MAX,
        .slot_shift = array->shift,
        .now = 0, /* all rows have the same age */
        /* With several lanes, no lane has all rows. */
        .row_stride = table->rows == array->rows ? array->stride : 0,
    };
    return true;
}

/* ---- Handing over dirty rows ---- */

/* Visits a row; false: the scan stops at this row. */
typedef bool row_visit(struct row_arrays *arrays, struct arrays_table *table, uint64_t hash,
                       uint64_t id, void *context);

/* A scan's position: a table's index and a row. */
static uint64_t cursor_of(uint32_t table, uint64_t row)
{
    return (uint64_t)table << 40 | row;
}

/* Calls @visit for each dirty row of this lane in @table, from *@id on. Returns false when @visit
 * does, or when *@budget is used up; *@id is then the next row. */
static bool scan_table(struct row_arrays *arrays, struct arrays_table *table, uint64_t *id,
                       uint64_t *budget, row_visit *visit, void *context)
{
    while (table->dirty_rows > 0 && *id < table->array->rows) {
        uint64_t hash;

        if (*budget == 0)
            return false;
        --*budget;
        if (table->block_dirty[*id / BLOCK_ROWS] == 0) {
            *id = align_up(*id + 1, BLOCK_ROWS);
            continue;
        }
        if (dirty_of(table->array, *id) != 0) {
            hash = arrays->opts.hash(arrays->opts.context, table->number, *id);
            if (arrays->opts.is_mine(arrays->opts.context, hash) &&
                !visit(arrays, table, hash, *id, context))
                return false;
        }
        ++*id;
    }
    return true;
}

/* The same for all tables. Returns true when the scan has finished. */
static bool scan(struct row_arrays *arrays, uint64_t *cursor, uint64_t budget, row_visit *visit,
                 void *context)
{
    uint32_t t = (uint32_t)(*cursor >> 40);
    uint64_t id = *cursor & ((UINT64_C(1) << 40) - 1);

    for (; t < arrays->table_count; t++, id = 0) {
        struct arrays_table *const table = &arrays->tables[t];
        const uint64_t dirty = table->dirty_rows;
        bool is_over;

        if (!table->array)
            continue;
        is_over = scan_table(arrays, table, &id, &budget, visit, context);
        count_change(arrays, table, dirty);
        if (!is_over)
            break;
    }
    *cursor = cursor_of(t, id);
    return t == arrays->table_count;
}

struct writing {
    uint32_t most;
    uint32_t count;
};

static bool write_row(struct row_arrays *arrays, struct arrays_table *table, uint64_t hash,
                      uint64_t id, void *context)
{
    struct writing *const writing = context;

    if (arrays->in_epoch && dirty_of(table->array, id) == arrays->epoch)
        return true; /* dirty since the epoch began */
    if (writing->count == writing->most || !hand_over(arrays, table, hash, id))
        return false;
    writing->count++;
    return true;
}

uint32_t row_arrays_write_back(struct row_arrays *arrays, uint64_t *cursor, uint32_t most_rows,
                               bool *ret_done)
{
    struct writing writing = { .most = most_rows };

    *ret_done =
        scan(arrays, cursor, MAX((uint64_t)most_rows * SCAN_SPOTS, UINT64_C(0) + BLOCK_ROWS),
             write_row, &writing);
    return writing.count;
}

void row_arrays_begin_epoch(struct row_arrays *arrays)
{
    assert(!arrays->in_epoch);
    arrays->epoch = 3 - arrays->epoch;
    arrays->in_epoch = true;
    arrays->save_failed = false;
}

bool row_arrays_end_epoch(struct row_arrays *arrays)
{
    assert(arrays->in_epoch);
    arrays->in_epoch = false;
    return !arrays->save_failed;
}

static bool forget_row(struct row_arrays *arrays, struct arrays_table *table, uint64_t hash,
                       uint64_t id, void *context)
{
    (void)hash;
    (void)context;
    set_dirty(table->array, id, arrays->epoch);
    return true;
}

bool row_arrays_forget_epoch(struct row_arrays *arrays, uint64_t *cursor, uint32_t step)
{
    assert(!arrays->in_epoch);
    return scan(arrays, cursor, step, forget_row, NULL);
}

_Static_assert(sizeof(struct row_arrays_stats) % sizeof(uint64_t) == 0, "all of it are counters");

void row_arrays_stats(const struct row_arrays *arrays, struct row_arrays_stats *ret_stats)
{
    counter_get_all((const uint64_t *)&arrays->stats, (uint64_t *)ret_stats,
                    sizeof(*ret_stats) / sizeof(uint64_t));
}
