/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending lanes. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "config/config.h"
#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/memory/reserved.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/ops/tickets/caster.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/tables.h"
#include "kernels/cpu/cast/cast.h"
#include "store/store.h"
#include "tiers/array/row_arrays.h"

#define TABLE_MARKS_BYTES ((ROW_CACHE_TABLES_MAX + 1) * sizeof(uint32_t))
/* The two sets of arrays and the hot parts of split tables have these (row_arrays_new()). */
#define ARRAY_PLACES_BYTES   (3 * (ROW_CACHE_TABLES_MAX + 1) * sizeof(uint16_t))
#define SEGMENT_TABLES_BYTES (OP_POOL_SEGMENTS_MAX * sizeof(struct table *))

_Static_assert((sizeof(struct miss) + sizeof(uint32_t)) * ROWS_MISSES_MAX +
                       OP_SEGMENTS_MAX * sizeof(struct op_segment) + SEGMENT_TABLES_BYTES +
                       TABLE_MARKS_BYTES + ARRAY_PLACES_BYTES + READ_JOB_BYTES +
                       ROWS_GRADIENT_BYTES + sizeof(struct lane) +
                       CONFIG_LANES_MAX * (sizeof(struct mailbox *) + sizeof(struct caster *)) <=
                   LANE_FIXED_BYTES,
               "the configuration counts what a lane reserves");

static uint64_t hash_of_row(void *context, uint16_t table, uint64_t id)
{
    const struct lane *const lane = context;
    const struct table *const t = tables_at(lane->opts.tables, table);

    return row_hash(lane->ops.rules.hasher,
                    atomic_load_explicit(&t->table_id, memory_order_relaxed), id);
}

static bool write_row(void *context, uint16_t table, uint64_t hash, uint64_t id, const void *row,
                      uint32_t bytes)
{
    struct lane *const lane = context;

    (void)bytes;
    return write_queue_put(lane->rows.write_queue, tables_at(lane->opts.tables, table), hash, id,
                           row);
}

static bool is_mine(void *context, uint64_t hash)
{
    const struct lane *const lane = context;

    return row_routes_lane(lane->opts.routes, hash) == lane->opts.index;
}

_Static_assert(ROW_ARRAYS_SLAB_HEAP_BYTES <= HEAP_ARRAY_SLAB_BYTES,
               "the configuration counts arrays' counters");

static enum embtier_err homes_new(struct lane *lane, struct err_msg *msg)
{
    const struct row_arrays_opts arrays = {
        .hash = hash_of_row,
        .evict = write_row,
        .is_mine = is_mine,
        .context = lane,
    };
    struct row_cache_opts cache = {
        .arenas = lane->opts.arenas,
        .arena_count = lane->opts.arena_count,
        .map_slabs = lane->opts.map_slabs,
        .hash = hash_of_row,
        .evict = write_row,
        .context = lane,
    };

    memcpy(cache.arena_first_slab, lane->opts.arena_first_slab, sizeof(cache.arena_first_slab));
    memcpy(cache.arena_slab_count, lane->opts.arena_slab_count, sizeof(cache.arena_slab_count));
    memcpy(cache.arena_room_slabs, lane->opts.arena_room_slabs, sizeof(cache.arena_room_slabs));
    return rows_make_homes(&lane->rows, &(struct home_opts){ .cache = &cache, .arrays = &arrays },
                           msg);
}

static enum embtier_err events_new(struct lane *lane, struct err_msg *msg)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };

    TRY(mailbox_init(&lane->mailbox, "lane", lane->opts.index, msg));
    lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (lane->epoll_fd < 0 ||
        epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, lane->mailbox.wake_fd, &event) != 0)
        return err_set_errno(msg, errno, "lane %u: event descriptors", lane->opts.index);
    return EMBTIER_OK;
}

_Static_assert(sizeof(struct cast_pair) <= LANE_PAIR_BYTES &&
                   sizeof(struct cast_pair) + sizeof(uint32_t) >= LANE_PAIR_TICKET,
               "the configuration counts a caster's memory");

/* Returns the size of the largest group that a ticket may have: all ids of a request, if the memory
 * of tickets holds as many. */
static uint64_t cast_pairs_max(const struct lane_opts *opts)
{
    const uint64_t most =
        ticket_memory_largest(opts->ticket_memory) / (sizeof(struct cast_pair) + sizeof(uint32_t));

    return MAX(MIN(most, (uint64_t)opts->max_batch_rows), UINT64_C(1));
}

/* The parts know each other, but not the lane. */
static void parts_init(struct lane *lane)
{
    lane->schedule.lane = lane->opts.index;
    lane->gate.schedule = &lane->schedule;
    lane->rows.rules = &lane->ops.rules;
    lane->rows.schedule = &lane->schedule;
    lane->rows.lane = lane->opts.index;
    lane->rows.clock = lane->opts.clock;
    lane->rows.last_done_here = &lane->rows.done_here;
    lane->ops.index = lane->opts.index;
    lane->ops.lane_count = lane->opts.lane_count;
    lane->ops.clock = lane->opts.clock;
    lane->ops.take_ids = lane->opts.take_ids;
    lane->ops.rows = &lane->rows;
    lane->ops.schedule = &lane->schedule;
    lane->ops.gate = &lane->gate;
    lane->ops.settle = lane_settle;
}

enum embtier_err lane_new(const struct lane_opts *opts, struct lane **ret_lane, struct err_msg *msg)
{
    _cleanup_(lane_freep) struct lane *lane = NULL;

    lane = aligned_alloc(CACHE_LINE, align_up(sizeof(*lane), CACHE_LINE));
    if (!lane)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    memset(lane, 0, sizeof(*lane));
    lane->epoll_fd = lane->mailbox.wake_fd = -1;
    lane->opts = *opts;
    lane->slow_log.limit_ns = opts->slow_request_ns;
    parts_init(lane);
    lane->rows.request_base = request_memory_base(opts->memory);
    lane->rows.scratch_row = reserved_new(READ_JOB_BYTES);
    lane->ops.rules = (struct request_rules){
        .mailbox = &lane->mailbox,
        .hasher = store_hasher(opts->store),
        .store = opts->store,
        .tables = opts->tables,
        .memory = opts->memory,
        .ticket_memory = opts->ticket_memory,
        .ticket_ns = opts->ticket_ns,
        .routes = opts->routes,
        .clock = opts->clock,
        .latencies = &lane->latencies,
        .slow_log = &lane->slow_log,
        .lane_count = opts->lane_count,
        .max_batch_rows = opts->max_batch_rows,
        .scratch = reserved_new(OP_SEGMENTS_MAX * sizeof(struct op_segment)),
        .segment_tables = reserved_new(SEGMENT_TABLES_BYTES),
        .table_marks = reserved_new(TABLE_MARKS_BYTES),
    };
    lane->rows.gradients = reserved_new(ROWS_GRADIENT_BYTES);
    lane->mailboxes = calloc(opts->lane_count, sizeof(*lane->mailboxes));
    lane->casters = calloc(opts->lane_count, sizeof(*lane->casters));
    if (!lane->rows.scratch_row || !lane->ops.rules.scratch || !lane->ops.rules.segment_tables ||
        !lane->ops.rules.table_marks || !lane->rows.gradients || !lane->mailboxes || !lane->casters)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    TRY(events_new(lane, msg));
    TRY(homes_new(lane, msg));
    if (miss_table_new(ROWS_MISSES_MAX, &lane->rows.misses) != EMBTIER_OK ||
        read_order_new(lane->rows.misses, opts->routes->shard_count, &lane->rows.read_order) !=
            EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    TRY(write_queue_new(&lane->mailbox, opts->store, opts->routes, opts->write_queue_bytes,
                        &lane->rows.write_queue, msg));
    TRY(read_pool_new(&lane->mailbox, opts->store, opts->reader_count, &lane->rows.readers, msg));
    TRY(caster_new(opts->index, cast_pairs_max(opts), &lane->caster, msg));
    *ret_lane = TAKE(lane);
    return EMBTIER_OK;
}

enum embtier_err lane_start(struct lane *lane, struct err_msg *msg)
{
    char name[16];
    int rc;

    assert(!lane->has_thread);
    for (uint32_t i = 0; i < lane->opts.lane_count; i++) {
        lane->mailboxes[i] = &lane->opts.lanes[i]->mailbox;
        lane->casters[i] = lane->opts.lanes[i]->caster;
    }
    lane->rows.mailboxes = lane->ops.mailboxes = lane->mailboxes;
    lane->ops.casters = lane->casters;
    rc = pthread_create(&lane->thread, NULL, lane_main, lane);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start the thread of lane %u", lane->opts.index);
    snprintf(name, sizeof(name), "lane-%u", lane->opts.index);
    pthread_setname_np(lane->thread, name);
    lane->has_thread = true;
    return EMBTIER_OK;
}

static void call_stop(struct lane *lane, void *argument)
{
    (void)argument;
    lane->stopping = true;
}

void lane_stop(struct lane *lane)
{
    if (!lane || !lane->has_thread)
        return;
    lane_call(lane, call_stop, NULL);
    pthread_join(lane->thread, NULL);
    lane->has_thread = false;
    caster_free(TAKE(lane->caster)); /* it too may be about to wake another lane */
}

void lane_free(struct lane *lane)
{
    if (!lane)
        return;
    lane_stop(lane);
    assert(!lane->schedule.polled && lane->schedule.polled_count == 0);
    caster_free(lane->caster);
    read_pool_free(lane->rows.readers);
    write_queue_free(lane->rows.write_queue);
    rows_free_homes(&lane->rows);
    read_order_free(lane->rows.read_order);
    miss_table_free(lane->rows.misses);
    closep(&lane->epoll_fd);
    mailbox_destroy(&lane->mailbox);
    reserved_free(lane->ops.rules.scratch, OP_SEGMENTS_MAX * sizeof(struct op_segment));
    reserved_free(lane->ops.rules.segment_tables, SEGMENT_TABLES_BYTES);
    reserved_free(lane->ops.rules.table_marks, TABLE_MARKS_BYTES);
    reserved_free(lane->rows.gradients, ROWS_GRADIENT_BYTES);
    reserved_free(lane->rows.scratch_row, READ_JOB_BYTES);
    free(lane->mailboxes);
    free(lane->casters);
    free(lane);
}
