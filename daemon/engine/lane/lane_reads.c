/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a lane has read from SSD, and those who wait for them.
 *
 * A row that is to be read has a miss entry; read_order.h says when it is read. Refs that must wait
 * for a read are chained to the entry, oldest first, GET and SET alike, and take effect in that
 * order when the row arrives: this is what keeps a session's requests for one row in order.
 *
 * What is said of a SET of weights here holds for a push as well. One that waited for a read may
 * find no place for its row: then the row is forgotten again, its miss entry keeps the SET and all
 * behind it, and it is read once more when the write queue has room (parked). While rows are parked
 * no read is begun for a SET. When the store refuses rows for good (disk full, I/O error) and no
 * place is left, SETs fail with its error instead of waiting. So sessions, drops and the end of the
 * server never hang on a broken disk, and no row without a place takes a read job away from GETs.
 *
 * A waiting ref no longer needs its hash (the miss entry has it), so that field then holds the part
 * it belongs to: see lane_ref_wait(). */
#include "daemon/engine/lane/lane_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "store/store.h"

#define READ_ERROR_LOG_NS (UINT64_C(1000) * 1000 * 1000)

/* ---- Waiting refs ---- */

static struct row_ref *waiter_at(const struct lane *lane, uint32_t link)
{
    return request_memory_place(lane->request_base, link);
}

static void waiter_append(struct lane *lane, struct miss *miss, struct row_ref *ref)
{
    const uint32_t link = request_memory_link(lane->request_base, ref);

    ref->link = 0;
    if (miss->last_waiter)
        waiter_at(lane, miss->last_waiter)->link = link;
    else
        miss->first_waiter = link;
    miss->last_waiter = link;
}

void lane_ref_wait(struct lane *lane, struct part *part, struct row_ref *ref, struct miss *miss)
{
    ref->hash = (uint64_t)(uintptr_t)part;
    waiter_append(lane, miss, ref);
    part->waiting++;
}

static struct part *ref_part(const struct row_ref *ref)
{
    return (struct part *)(uintptr_t)ref->hash;
}

/* ---- Reads ---- */

/* The session that made the miss, or that is now first among those who wait for it. */
static uint64_t miss_session(const struct lane *lane, const struct miss *miss)
{
    return ref_part(waiter_at(lane, miss->first_waiter))->request->session->id;
}

/* Has a row read for those who wait for it. */
static void miss_read(struct lane *lane, struct miss *miss)
{
    miss->state = MISS_PENDING;
    read_order_add(lane->read_order, row_hash_shard(miss->hash, lane->rules.shard_count),
                   miss_session(lane, miss), miss);
}

bool lane_ref_read(struct lane *lane, struct part *part, struct table *table, struct row_ref *ref)
{
    struct miss *const miss =
        miss_table_add(lane->misses, table, ref->hash, ref->id, part->request->session->id);

    if (!miss)
        return false;
    lane_ref_wait(lane, part, ref, miss);
    miss_read(lane, miss);
    return true;
}

/* ---- Rows that have been read ---- */

static void waiter_done(struct lane *lane, struct part *part)
{
    part->waiting--;
    if (part->waiting == 0 && lane_part_is_looked_up(part))
        lane_part_finished(lane, part);
}

/* Copies between a row that was read and those who wait for it, oldest first, and updates it for
 * pushes. Nobody is answered yet. Adds to @cost what that was, which those are charged that wait,
 * and stops at @most: thousands of one request's segments may ask for the same row. Then some are
 * left for the next time, and those that come to wait meanwhile are behind them. Returns whether
 * none is. */
static bool apply_waiters(struct lane *lane, struct read_job *job, const struct miss *miss,
                          const struct store_row *row, uint64_t *cost, uint64_t most)
{
    uint32_t link = job->waiter ? job->waiter : miss->first_waiter;

    for (; link && *cost < most; link = waiter_at(lane, link)->link) {
        const struct row_ref *const ref = waiter_at(lane, link);
        const struct part *const part = ref_part(ref);
        const uint32_t s = part_segment_of(part, (uint32_t)(ref - part->refs));
        const struct request_segment *const segment = &part->request->segments[s];
        const uint64_t at = (uint64_t)ref->position * segment->row_bytes;
        uint64_t work = LANE_COST_MISS + lane_row_cost(segment->row_bytes, false);

        if (part->request->op == SHM_OP_GET)
            memcpy(segment->rows + at, row->bytes, segment->row_bytes);
        else if (part->request->op == SHM_OP_SET)
            memcpy(row->bytes, segment->rows + at, segment->row_bytes);
        else if (part->request->op == SHM_OP_PUSH)
            work += lane_push_row(lane, part, s, ref, row->bytes);
        job->is_changed |= request_changes(part->request);
        lane_charge(lane, &part->request->session->lanes[lane->opts.index], work);
        *cost += work;
    }
    job->waiter = link;
    return link == 0;
}

/* The row has come into the cache, if there was room. */
static void pin_waiter(struct lane *lane, struct part *part, const struct row_ref *ref,
                       const struct miss *miss)
{
    const uint32_t segment = part_segment_of(part, (uint32_t)(ref - part->refs));
    const struct row_ref row = { .hash = miss->hash, .id = miss->id, .position = ref->position };

    if (lane_prefetch_row(lane, part, segment, &row, NULL) != ROW_PINNED)
        lane_ref_fail(lane, part, segment, miss->id, EMBTIER_PINS_FULL);
}

/* Answers those who wait for a row after apply_waiters(). @set_err says whether it found a place:
 * OK: all are answered. AGAIN, not now: those before the first SET or push are. Else, never: these
 * fail with it, but GETs behind one were given what must not be, and stay. Returns whether some
 * stay. */
static bool answer_waiters(struct lane *lane, struct miss *miss, const struct store_row *row,
                           enum embtier_err set_err)
{
    uint32_t link = miss->first_waiter;
    bool behind_set = false;

    miss->first_waiter = miss->last_waiter = 0;
    while (link) {
        struct row_ref *const ref = waiter_at(lane, link);
        struct part *const part = ref_part(ref);
        const bool is_set = request_changes(part->request);
        const bool is_pin = part->request->op == SHM_OP_PREFETCH;
        const bool is_get = part->request->op == SHM_OP_GET;

        link = ref->link; /* before the part, and this ref with it, may go */
        behind_set |= is_set;
        if (set_err != EMBTIER_OK && (behind_set || is_pin) &&
            (set_err == EMBTIER_AGAIN || !is_set)) {
            waiter_append(lane, miss, ref);
            continue;
        }
        if (is_set && set_err == EMBTIER_OK && miss->table->logged)
            lane_log_note(lane, part);
        if (is_set && set_err != EMBTIER_OK)
            lane_ref_fail(lane, part, part_segment_of(part, (uint32_t)(ref - part->refs)), row->id,
                          set_err);
        if (is_pin)
            pin_waiter(lane, part, ref, miss);
        lane->stats.stored_get_rows += is_get && row->found;
        lane->stats.initial_get_rows += is_get && !row->found;
        waiter_done(lane, part);
    }
    return miss->first_waiter != 0;
}

/* The row cannot be read. */
static void fail_waiters(struct lane *lane, struct miss *miss, const struct store_row *row)
{
    uint32_t link = miss->first_waiter;

    while (link) {
        const struct row_ref *const ref = waiter_at(lane, link);
        struct part *const part = ref_part(ref);

        link = ref->link;
        lane_ref_fail(lane, part, part_segment_of(part, (uint32_t)(ref - part->refs)), row->id,
                      row->err);
        waiter_done(lane, part);
    }
}

/* ---- Read jobs ---- */

static int compare_misses(const void *a, const void *b)
{
    const struct miss *const left = *(struct miss *const *)a;
    const struct miss *const right = *(struct miss *const *)b;
    const uint32_t left_table = atomic_load_explicit(&left->table->table_id, memory_order_relaxed);
    const uint32_t right_table =
        atomic_load_explicit(&right->table->table_id, memory_order_relaxed);

    if (left_table != right_table)
        return left_table < right_table ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static bool miss_is_abandoned(const struct lane *lane, const struct miss *miss)
{
    for (uint32_t link = miss->first_waiter; link; link = waiter_at(lane, link)->link)
        if (!lane_part_is_abandoned(ref_part(waiter_at(lane, link))))
            return false;
    return true;
}

/* Forgets a row that only clients that are gone wait for. */
static void miss_abandon(struct lane *lane, struct miss *miss)
{
    uint32_t link = miss->first_waiter;

    while (link) {
        const struct row_ref *const ref = waiter_at(lane, link);
        struct part *const part = ref_part(ref);

        link = ref->link; /* before the part, and this ref with it, may go */
        lane_part_abandon(lane, part, 1);
        waiter_done(lane, part);
    }
    miss_table_remove(lane->misses, miss);
}

/* Moves rows of a shard whose turn it is into @job, as many as have room, sorted for RocksDB.
 * Returns how many it forgot. */
static uint32_t fill_job(struct lane *lane, uint32_t shard, struct read_job *job)
{
    uint32_t abandoned = 0;
    struct miss *batch[READ_JOB_ROWS];
    struct miss *miss;
    uint32_t count = 0;
    uint64_t bytes = 0;

    while (count + abandoned < READ_JOB_ROWS &&
           (miss = read_order_first(lane->read_order, shard))) {
        if (miss_is_abandoned(lane, miss)) {
            read_order_pop(lane->read_order, shard);
            miss_abandon(lane, miss);
            abandoned++;
            continue;
        }
        bytes += align_up(miss->table->row_bytes, CACHE_LINE);
        if (bytes > READ_JOB_BYTES)
            break;
        read_order_pop(lane->read_order, shard);
        miss->state = MISS_READING;
        batch[count++] = miss;
    }
    qsort(batch, count, sizeof(batch[0]), compare_misses);
    job->shard = shard;
    for (uint32_t i = 0; i < count; i++)
        read_job_add(job, batch[i]->table, batch[i]->id, miss_table_index(lane->misses, batch[i]));
    if (abandoned > 0) /* as when they have been read */
        lane_unblock_all(lane);
    return abandoned;
}

bool lane_dispatch_reads(struct lane *lane)
{
    while (!read_order_empty(lane->read_order)) {
        struct read_job *const job = read_pool_take(lane->readers);
        uint32_t abandoned;

        if (!job) {
            lane->pressure = true;
            return false;
        }
        abandoned = fill_job(lane, read_order_next_shard(lane->read_order), job);
        if (job->count > 0) /* else it stays free */
            read_pool_send(lane->readers, job);
        if (abandoned > 0)
            return true; /* work for one turn */
    }
    return false;
}

/* Rows of one table, next to each other in a job, on their way into the cache. */
struct insert_run {
    struct row_ref refs[READ_JOB_ROWS];
    const void *bytes[READ_JOB_ROWS];
    const struct store_row *rows[READ_JOB_ROWS];
    struct miss *misses[READ_JOB_ROWS];
    uint64_t dirty[READ_JOB_ROWS / 64];
    uint32_t refused[READ_JOB_ROWS];
    uint32_t count;
};

static bool bit_is_set(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* Somebody wants the row to stay in the cache. */
static bool waits_for_pin(const struct lane *lane, const struct miss *miss)
{
    for (uint32_t link = miss->first_waiter; link; link = waiter_at(lane, link)->link)
        if (ref_part(waiter_at(lane, link))->request->op == SHM_OP_PREFETCH)
            return true;
    return false;
}

/* The cache refused a row. What a clean one was is on SSD; for a changed one the write queue is
 * left: returns whether that, too, has no room now (AGAIN), or never. */
static enum embtier_err place_refused(struct lane *lane, const struct miss *miss, const void *bytes,
                                      bool dirty)
{
    enum embtier_err err;

    if (!dirty && !(lane->in_epoch && waits_for_pin(lane, miss)))
        return EMBTIER_OK;
    if (lane->in_epoch) {
        lane->stats.held_rows++;
        return EMBTIER_AGAIN;
    }
    if (write_queue_put(lane->write_queue, miss->table, miss->hash, miss->id, bytes))
        return EMBTIER_OK;
    err = write_queue_refusal(lane->write_queue, miss->table);
    return err == EMBTIER_OK ? EMBTIER_AGAIN : err;
}

/* The same for a row of a logged table. */
static enum embtier_err place_read(struct lane *lane, struct table *table, const struct miss *miss,
                                   const void *bytes)
{
    uint32_t room;

    TRY(lane_log_room(lane, table, &room));
    return lane_place_logged(lane, table, miss->hash, miss->id, bytes) ? EMBTIER_OK : EMBTIER_AGAIN;
}

/* A row has, or has not, found a place. */
static void end_miss(struct lane *lane, struct miss *miss, const struct store_row *row,
                     enum embtier_err err)
{
    if (!answer_waiters(lane, miss, row, err)) {
        miss_table_remove(lane->misses, miss);
    } else if (err == EMBTIER_AGAIN) {
        miss->state = MISS_PARKED;
        miss_list_append(lane->misses, &lane->parked, miss);
    } else {
        miss_read(lane, miss);
    }
}

/* Finds places for a run of rows and answers those who wait for them. */
static void insert_run(struct lane *lane, struct table *table, struct insert_run *run)
{
    const uint32_t refused = row_cache_insert(lane->cache, table->index, run->refs, run->count,
                                              run->bytes, run->dirty, run->refused);
    uint32_t next_refused = 0;

    for (uint32_t i = 0; i < run->count; i++) {
        enum embtier_err err = EMBTIER_OK;

        if (next_refused < refused && run->refused[next_refused] == i) {
            next_refused++;
            err = place_refused(lane, run->misses[i], run->bytes[i], bit_is_set(run->dirty, i));
        }
        end_miss(lane, run->misses[i], run->rows[i], err);
    }
    memset(run->dirty, 0, sizeof(run->dirty));
    run->count = 0;
}

static void log_read_error(struct lane *lane, const struct read_job *job, enum embtier_err err)
{
    const uint64_t now_ns = clock_now_ns(lane->opts.clock);

    if (lane->read_error_logged_ns != 0 && now_ns - lane->read_error_logged_ns < READ_ERROR_LOG_NS)
        return;
    lane->read_error_logged_ns = now_ns;
    log_error("rows cannot be read", "shard=%u err=%s why=%s", job->shard, err_name(err),
              LOG_QUOTED(job->msg.text));
}

void lane_on_read_done(struct lane *lane, struct read_job *job)
{
    job->message.next = NULL;
    if (lane->read_done)
        lane->last_read_done->next = &job->message;
    else
        lane->read_done = &job->message;
    lane->last_read_done = &job->message;
}

/* Serves those who wait for the job's next rows, until that was a turn's work. A row that some
 * still wait for then has a place, and is answered, when all have been served. */
static void serve_rows(struct lane *lane, struct read_job *job)
{
    const uint64_t most = lane_turn_cost(lane, NULL);
    struct insert_run run = { .count = 0 };
    uint64_t work = 0;

    while (job->served < job->count && work < most) {
        const uint32_t i = job->served;
        const struct store_row *const row = &job->rows[i];
        struct miss *const miss = miss_table_at(lane->misses, job->owners[i]);
        bool changed;

        work += LANE_COST_MISS;
        if (row->err != EMBTIER_OK) {
            log_read_error(lane, job, row->err);
            fail_waiters(lane, miss, row);
            miss_table_remove(lane->misses, miss);
        } else if (!apply_waiters(lane, job, miss, row, &work, most)) {
            break;
        } else {
            changed = job->is_changed;
            job->is_changed = false;
            run.refs[run.count] = (struct row_ref){ .hash = miss->hash, .id = miss->id };
            run.bytes[run.count] = row->bytes;
            run.rows[run.count] = row;
            run.misses[run.count] = miss;
            if (changed && miss->table->logged) {
                end_miss(lane, miss, row, place_read(lane, miss->table, miss, row->bytes));
            } else {
                run.dirty[run.count / 64] |= (uint64_t)changed << (run.count % 64);
                run.count++;
            }
        }
        job->served++;
        if (run.count > 0 && job->served < job->count && job->tables[i + 1] != job->tables[i])
            insert_run(lane, job->tables[i], &run);
    }
    if (run.count > 0)
        insert_run(lane, job->tables[job->served - 1], &run);
}

bool lane_serve_read(struct lane *lane)
{
    struct read_job *job;

    if (!lane->read_done)
        return false;
    job = CONTAINER_OF(lane->read_done, struct read_job, message);
    serve_rows(lane, job);
    if (job->served == job->count) {
        lane->read_done = job->message.next;
        read_pool_put_back(lane->readers, job);
    }
    lane_unblock_all(lane);
    return true;
}

/* As many parked rows as there may be room for now, or all when no more room will come. */
static void unpark(struct lane *lane, uint64_t rows)
{
    struct miss *miss;

    if (!write_queue_goes_on(lane->write_queue))
        rows = UINT64_MAX;
    for (; rows > 0 && (miss = miss_list_first(lane->misses, &lane->parked)); rows--) {
        miss_list_pop(lane->misses, &lane->parked);
        miss_read(lane, miss);
    }
}

void lane_on_written(struct lane *lane)
{
    unpark(lane, write_queue_reap(lane->write_queue));
    lane_log_on_written(lane);
    lane_unblock_all(lane);
}

void lane_rows_try_again(struct lane *lane)
{
    unpark(lane, UINT64_MAX);
    lane_unblock_all(lane);
}
