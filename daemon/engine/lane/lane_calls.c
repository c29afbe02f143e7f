/* SPDX-License-Identifier: Apache-2.0 */
/* Other threads call a lane, which serves calls between its turns. They read its counters
 * themselves. */
#include <errno.h>
#include <time.h>

#include "base/counter.h"
#include "base/log/log.h"
#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/ops/tickets/caster.h"
#include "daemon/engine/tables/tables.h"

/* So many rows are handed to the writer in one step of a write-back. */
#define WRITE_BACK_STEP_ROWS 1024
#define PURGE_STEP_SETS      4096
#define SHRINK_STEP_ROWS     1024

void lane_send(struct lane *lane, struct message *message)
{
    mailbox_send(&lane->mailbox, message);
}

struct mailbox *lane_mailbox(struct lane *lane)
{
    return &lane->mailbox;
}

void lane_attach(struct lane *lane, struct session *session)
{
    session->attach_message.kind = &message_attach;
    lane_send(lane, &session->attach_message);
}

void lane_detach(struct lane *lane, struct session *session)
{
    session->detach_message.kind = &message_detach;
    lane_send(lane, &session->detach_message);
}

static void on_call(struct lane *lane, struct lane_call *call)
{
    call->fn(lane, call->argument);
    sem_post(&call->done);
}

MESSAGE_KIND(message_call, on_call, lane, struct lane_call, message)

void lane_call(struct lane *lane, void (*fn)(struct lane *lane, void *argument), void *argument)
{
    struct lane_call call = { .message.kind = &message_call, .fn = fn, .argument = argument };

    sem_init(&call.done, 0, 0);
    lane_send(lane, &call.message);
    while (sem_wait(&call.done) != 0 && errno == EINTR)
        continue;
    sem_destroy(&call.done);
}

struct add_table {
    const struct table *table;
    enum embtier_err err;
};

static void call_add_table(struct lane *lane, void *argument)
{
    struct add_table *const add = argument;

    add->err = rows_add_table(&lane->rows, add->table);
}

enum embtier_err lane_add_table(struct lane *lane, const struct table *table)
{
    struct add_table add = { .table = table };

    lane_call(lane, call_add_table, &add);
    return add.err;
}

/* How long a purge waits for a store that takes no writes. */
#define PURGE_PATIENCE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

struct purge {
    const struct table *table;
    uint64_t mark; /* all of the table's rows in the write queue are before this */
    bool cache_done;
    bool done;
    enum embtier_err write_err; /* why the queue does not drain */
};

static void call_purge(struct lane *lane, void *argument)
{
    struct purge *const purge = argument;
    struct write_queue_stats stats;

    if (!purge->cache_done) {
        purge->cache_done = rows_purge_table(&lane->rows, purge->table, PURGE_STEP_SETS);
        purge->mark = write_queue_mark(lane->rows.write_queue);
    }
    purge->done = purge->cache_done && write_queue_passed(lane->rows.write_queue, purge->mark);
    write_queue_stats(lane->rows.write_queue, &stats);
    purge->write_err = (enum embtier_err)stats.err;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

enum embtier_err lane_purge_table(struct lane *lane, const struct table *table,
                                  const _Atomic bool *give_up)
{
    struct purge purge = { .table = table };
    uint64_t healthy_ns = clock_now_ns(lane->opts.clock);

    while (!purge.done) {
        const uint64_t now_ns = clock_now_ns(lane->opts.clock);

        if (atomic_load(give_up))
            return EMBTIER_SHUTDOWN;
        if (purge.write_err == EMBTIER_OK)
            healthy_ns = now_ns;
        else if (purge.cache_done && now_ns - healthy_ns > PURGE_PATIENCE_NS)
            return purge.write_err;
        lane_call(lane, call_purge, &purge);
        if (purge.cache_done && !purge.done)
            pause_ms(1);
    }
    return EMBTIER_OK;
}

static void call_sample(struct lane *lane, void *sampler)
{
    lane->ops.rules.sampler = sampler;
}

void lane_sample(struct lane *lane, struct sampler_lane *sampler)
{
    lane_call(lane, call_sample, sampler);
}

static void call_set_ticket(struct lane *lane, void *ticket_ns)
{
    lane->ops.rules.ticket_ns = *(const uint64_t *)ticket_ns;
}

void lane_set_ticket_ns(struct lane *lane, uint64_t ticket_ns)
{
    lane_call(lane, call_set_ticket, &ticket_ns);
}

static void call_read_ticket(struct lane *lane, void *ret_ticket_ns)
{
    *(uint64_t *)ret_ticket_ns = lane->ops.rules.ticket_ns;
}

uint64_t lane_ticket_ns(struct lane *lane)
{
    uint64_t ticket_ns = 0;

    lane_call(lane, call_read_ticket, &ticket_ns);
    return ticket_ns;
}

static void call_set_slow(struct lane *lane, void *limit_ns)
{
    lane->slow_log.limit_ns = *(const uint64_t *)limit_ns;
}

void lane_set_slow_request_ns(struct lane *lane, uint64_t slow_request_ns)
{
    lane_call(lane, call_set_slow, &slow_request_ns);
}

static void call_read_slow(struct lane *lane, void *ret_limit_ns)
{
    *(uint64_t *)ret_limit_ns = lane->slow_log.limit_ns;
}

uint64_t lane_slow_request_ns(struct lane *lane)
{
    uint64_t limit_ns = 0;

    lane_call(lane, call_read_slow, &limit_ns);
    return limit_ns;
}

/* ---- Readers ---- */

/* How long a change of their number waits for readers that wait for SSD. */
#define READERS_PATIENCE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

static void call_use_readers(struct lane *lane, void *count)
{
    read_pool_use(lane->rows.readers, *(const uint32_t *)count);
}

static void call_readers_idle(struct lane *lane, void *ret_is_idle)
{
    *(bool *)ret_is_idle = read_pool_is_idle_behind(lane->rows.readers);
}

static void call_read_readers(struct lane *lane, void *ret_count)
{
    *(uint32_t *)ret_count = read_pool_used(lane->rows.readers);
}

uint32_t lane_readers(struct lane *lane)
{
    uint32_t count = 0;

    lane_call(lane, call_read_readers, &count);
    return count;
}

/* True if nothing is left of readers that the lane does not use. */
static bool readers_are_gone(struct lane *lane)
{
    bool is_idle = false;

    lane_call(lane, call_readers_idle, &is_idle);
    if (is_idle)
        read_pool_trim(lane->rows.readers);
    return read_pool_have_ended(lane->rows.readers) && is_idle;
}

enum embtier_err lane_set_readers(struct lane *lane, uint32_t count, const _Atomic bool *give_up,
                                  struct err_msg *msg)
{
    struct read_pool *const pool = lane->rows.readers;
    const uint64_t began_ns = clock_now_ns(lane->opts.clock);

    TRY(read_pool_grow(pool, count, msg));
    lane_call(lane, call_use_readers, &count);
    read_pool_end_readers(pool, count);
    while (!readers_are_gone(lane)) {
        if (atomic_load(give_up))
            return err_shutdown(msg);
        if (clock_since(clock_now_ns(lane->opts.clock), began_ns) > READERS_PATIENCE_NS) {
            log_warn("readers that are too many still wait for SSD; they end after their reads",
                     "lane=%u readers=%u", lane->opts.index, count);
            break;
        }
        pause_ms(1);
    }
    return EMBTIER_OK;
}

/* ---- Tiers ---- */

/* A new size of a tier, or a step towards it. */
struct tier_call {
    uint32_t tier;
    uint32_t slabs;
    struct err_msg *msg;
    enum embtier_err err;
    struct row_cache_leaving leaving;
};

static struct row_cache *cache_of(struct lane *lane)
{
    return lane->rows.homes[HOME_CACHE].rows;
}

static void call_check_tier(struct lane *lane, void *argument)
{
    struct tier_call *const call = argument;

    call->err = row_cache_check_resize(cache_of(lane), call->tier, call->slabs, call->msg);
}

enum embtier_err lane_check_tier(struct lane *lane, uint32_t tier, uint32_t slabs,
                                 struct err_msg *msg)
{
    struct tier_call call = { .tier = tier, .slabs = slabs, .msg = msg };

    lane_call(lane, call_check_tier, &call);
    return call.err;
}

static void call_resize_tier(struct lane *lane, void *argument)
{
    const struct tier_call *const call = argument;

    row_cache_resize(cache_of(lane), call->tier, call->slabs);
}

void lane_resize_tier(struct lane *lane, uint32_t tier, uint32_t slabs)
{
    struct tier_call call = { .tier = tier, .slabs = slabs };

    lane_call(lane, call_resize_tier, &call);
}

static void call_shrink_tier(struct lane *lane, void *argument)
{
    struct tier_call *const call = argument;

    call->leaving = row_cache_resize_step(cache_of(lane), call->tier, SHRINK_STEP_ROWS);
}

struct row_cache_leaving lane_shrink_tier(struct lane *lane, uint32_t tier)
{
    struct tier_call call = { .tier = tier };

    lane_call(lane, call_shrink_tier, &call);
    return call.leaving;
}

static void move_step(struct lane *lane, struct table_move_act *act)
{
    const uint64_t began_ns = clock_now_ns(lane->opts.clock);
    const struct rows_moved moved = rows_move_step(&lane->rows, act->table, act->most_rows);
    struct write_queue_stats queue;

    write_queue_stats(lane->rows.write_queue, &queue);
    act->moved_rows = moved.rows;
    act->left_rows = moved.left;
    act->has_epoch = moved.has_epoch;
    act->is_full = moved.is_full;
    act->write_err = (enum embtier_err)queue.err;
    act->spent_ns = clock_since(clock_now_ns(lane->opts.clock), began_ns);
}

struct moving {
    struct table_move_act *act;
    enum embtier_err err;
};

static void call_move(struct lane *lane, void *argument)
{
    struct moving *const moving = argument;
    struct table_move_act *const act = moving->act;

    switch (act->act) {
    case MOVE_PREPARE:
        moving->err = rows_move_prepare(&lane->rows, act->table, (enum home_kind)act->from,
                                        (enum home_kind)act->to, act->array);
        break;
    case MOVE_LOOK:
        act->pinned_rows = rows_move_pinned(&lane->rows, act->table);
        break;
    case MOVE_START:
        rows_move_start(&lane->rows, act->table);
        break;
    case MOVE_STEP:
        move_step(lane, act);
        break;
    case MOVE_TURN_BACK:
        rows_move_turn_back(&lane->rows, act->table);
        break;
    case MOVE_ARRIVE:
        rows_move_arrive(&lane->rows, act->table);
        break;
    case MOVE_END:
        rows_move_end(&lane->rows, act->table);
        break;
    }
}

enum embtier_err lane_move_table(struct lane *lane, struct table_move_act *act)
{
    struct moving moving = { .act = act };

    lane_call(lane, call_move, &moving);
    return moving.err;
}

const struct tables_rows lane_tables_rows = { .add = lane_add_table,
                                              .purge = lane_purge_table,
                                              .move = lane_move_table };

struct write_back {
    struct rows_cursor *cursor;
    bool done;
};

static void call_write_back(struct lane *lane, void *argument)
{
    struct write_back *const step = argument;
    bool cache_done = false;

    (void)rows_write_back(&lane->rows, step->cursor, WRITE_BACK_STEP_ROWS, &cache_done);
    step->done = cache_done && write_queue_passed(lane->rows.write_queue,
                                                  write_queue_mark(lane->rows.write_queue));
}

bool lane_write_back_step(struct lane *lane, struct rows_cursor *cursor)
{
    struct write_back step = { .cursor = cursor };

    lane_call(lane, call_write_back, &step);
    return step.done;
}

/* ---- Counters, read on the caller's thread ---- */

void lane_stats(const struct lane *lane, struct lane_stats *ret_stats)
{
    const struct row_counts *const counts = &lane->rows.counts;

    *ret_stats = (struct lane_stats){
        .requests = counter_get(&lane->requests),
        .segments = counter_get(&lane->segments),
        .expired_tickets = counter_get(&lane->ops.expired_tickets),
        .set_rows = counter_get(&counts->set_rows),
        .pushed_rows = counter_get(&counts->pushed_rows),
        .logged_rows = counter_get(&counts->logged_rows),
        .held_rows = counter_get(&counts->held_rows),
        .prefetched_rows = counter_get(&counts->prefetched_rows),
        .queued_get_rows = counter_get(&counts->queued_get_rows),
        .stored_get_rows = counter_get(&counts->stored_get_rows),
        .initial_get_rows = counter_get(&counts->initial_get_rows),
        .failed_rows = counter_get(&counts->failed_rows),
        .abandoned_rows = counter_get(&counts->abandoned_rows),
        .shared_reads = counter_get(&counts->shared_reads),
        .missed_rows = counter_get(&counts->missed_rows),
        .casting_ns = caster_busy_ns(lane->caster),
        .reading_rows = miss_table_count(lane->rows.misses),
    };
    for (uint32_t h = 0; h < HOME_KINDS; h++)
        ret_stats->homes[h] = rows_home_stats(&lane->rows, (enum home_kind)h);
    row_cache_stats(lane->rows.homes[HOME_CACHE].rows, &ret_stats->cache);
    ret_stats->get_rows = counter_get(&counts->get_rows); /* after the hits, which are among them */
    write_queue_stats(lane->rows.write_queue, &ret_stats->write_queue);
}

void lane_latencies(const struct lane *lane, struct latencies *sum)
{
    for (uint32_t op = 0; op < LATENCY_OPS; op++)
        for (uint32_t t = 0; t < TRANSPORT_KINDS; t++)
            latency_sum(&sum->of[op][t], &lane->latencies.of[op][t]);
}

void lane_pulse(const struct lane *lane, struct lane_pulse *ret_pulse)
{
    struct write_queue_stats queue;

    *ret_pulse =
        (struct lane_pulse){ .reader_waits = counter_get(&lane->rows.counts.reader_waits) };
    for (uint32_t h = 0; h < HOME_KINDS; h++) {
        const struct home_stats stats = rows_home_stats(&lane->rows, (enum home_kind)h);

        ret_pulse->unwritten_rows += stats.dirty_rows;
        ret_pulse->unwritten_bytes += stats.dirty_bytes;
    }
    /* Rows go from their home to the queue, so in this order they are seldom missed. Nothing
     * depends on it: the next reading has them. */
    write_queue_stats(lane->rows.write_queue, &queue);
    ret_pulse->unwritten_rows += queue.rows;
    ret_pulse->unwritten_bytes += queue.bytes;
}
