/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a lane has read from SSD, and the refs that wait for them.
 *
 * A row that is to be read has a miss entry; read_order.h decides when it is read. Refs that must
 * wait for a read are chained to the entry, oldest first, GET and SET alike. They take effect in
 * that order when the row arrives, which keeps a session's requests for one row in order.
 *
 * Statements about a SET of weights hold here for a push as well. A SET that waited for a read may
 * find no place for its row. Then the row is forgotten again, and its miss entry keeps the SET and
 * all refs behind it. The row is parked: it is read once more when the write queue has room. While
 * rows are parked, no read is begun for a SET. When the store refuses rows for good (disk full, I/O
 * error) and no place is left, SETs fail with its error instead of waiting. So sessions, drops and
 * the end of the server never hang on a broken disk. Nor does a row without a place take a read job
 * away from GETs.
 *
 * A waiting ref needs no hash, which the miss entry has, but has to know its part. So while a ref
 * waits, a struct waiting_ref takes its place in memory. */
#include "daemon/engine/rows/rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/turns/cost.h"
#include "store/store.h"

#define READ_ERROR_LOG_NS (UINT64_C(1000) * 1000 * 1000)

/* ---- Waiting refs ---- */

/* A ref of a part while it waits for a read, where it was as a struct row_ref. */
struct waiting_ref {
    struct part *part;
    uint64_t id;
    uint32_t position;
    uint32_t link; /* the next in the miss entry's chain */
};
_Static_assert(sizeof(struct waiting_ref) == sizeof(struct row_ref), "takes the place of a ref");

static struct waiting_ref *waiter_at(const struct rows *rows, uint32_t link)
{
    return request_memory_place(rows->request_base, link);
}

static void waiter_append(struct rows *rows, struct miss *miss, struct waiting_ref *waiter)
{
    const uint32_t link = request_memory_link(rows->request_base, waiter);

    waiter->link = 0;
    if (miss->last_waiter)
        waiter_at(rows, miss->last_waiter)->link = link;
    else
        miss->first_waiter = link;
    miss->last_waiter = link;
}

static void ref_wait(struct rows *rows, struct part *part, struct row_ref *ref, struct miss *miss)
{
    const struct row_ref from = *ref;
    struct waiting_ref *const waiter = (struct waiting_ref *)ref;

    assert(miss->state != MISS_FREE && from.hash == miss->hash && from.id == miss->id);
    *waiter = (struct waiting_ref){ .part = part, .id = from.id, .position = from.position };
    waiter_append(rows, miss, waiter);
    part->waiting++;
}

/* Returns the waiter's index in part->refs. */
static uint32_t waiter_index(const struct waiting_ref *waiter)
{
    return (uint32_t)((const struct row_ref *)waiter - waiter->part->refs);
}

static uint32_t waiter_segment(const struct waiting_ref *waiter)
{
    return part_segment_of(waiter->part, waiter_index(waiter));
}

/* Returns the ref that waits, as it was before. */
static struct row_ref waiter_ref(const struct waiting_ref *waiter, const struct miss *miss)
{
    return (struct row_ref){ .hash = miss->hash, .id = waiter->id, .position = waiter->position };
}

/* ---- Reads ---- */

/* Returns the id of the session that made the miss, or that is now first among its waiters. */
static uint64_t miss_session(const struct rows *rows, const struct miss *miss)
{
    return waiter_at(rows, miss->first_waiter)->part->request->session->id;
}

/* Has a row read for the refs that wait for it. */
static void miss_read(struct rows *rows, struct miss *miss)
{
    assert(miss->first_waiter);
    read_order_add(rows->read_order, row_routes_shard(rows->rules->routes, miss->hash),
                   miss_session(rows, miss), miss);
}

bool rows_join_read(struct rows *rows, struct part *part, struct table *table, struct row_ref *ref)
{
    struct miss *const miss = miss_table_find(rows->misses, table, ref->hash, ref->id);

    if (!miss)
        return false;
    assert(!write_queue_find(rows->write_queue, table->index, ref->hash, ref->id));
    ref_wait(rows, part, ref, miss);
    return true;
}

enum outcome rows_read(struct rows *rows, struct part *part, struct table *table,
                       struct row_ref *ref)
{
    struct miss *const miss =
        miss_table_add(rows->misses, table, ref->hash, ref->id, part->request->session->id);

    if (!miss)
        return OUTCOME_RETRY;
    ref_wait(rows, part, ref, miss);
    miss_read(rows, miss);
    return OUTCOME_DONE;
}

/* Has a row read again. */
static void miss_read_again(struct rows *rows, struct miss *miss)
{
    miss_set_state(miss, MISS_PENDING);
    miss_read(rows, miss);
}

/* ---- Rows that have been read ---- */

static void waiter_done(struct rows *rows, struct part *part)
{
    assert(part->waiting > 0);
    part->waiting--;
    if (part->waiting == 0 && part_is_looked_up(part))
        rows_part_finished(rows, part);
}

/* Copies between a row that was read and the refs that wait for it, oldest first, and updates the
 * row for pushes. It answers no ref yet. It adds the cost to @cost and charges it to the waiting
 * sessions. It stops at @most, since thousands of one request's segments may ask for the same row.
 * The rest are left for the next call, and refs that join meanwhile come behind them. Returns true
 * if none is left. */
static bool apply_waiters(struct rows *rows, struct read_job *job, const struct miss *miss,
                          const struct store_row *row, uint64_t *cost, uint64_t most)
{
    uint32_t link = job->waiter ? job->waiter : miss->first_waiter;

    for (; link && *cost < most; link = waiter_at(rows, link)->link) {
        const struct waiting_ref *const waiter = waiter_at(rows, link);
        const struct part *const part = waiter->part;
        const uint32_t s = waiter_segment(waiter);
        const struct request_segment *const segment = &part->request->segments[s];
        const struct row_ref ref = waiter_ref(waiter, miss);
        uint64_t work = LANE_COST_MISS + lane_row_cost(segment->row_bytes, false);

        if (part->request->row_op->read)
            work += part->request->row_op->read(rows, part, s, &ref, row->bytes);
        job->is_changed |= request_changes(part->request);
        schedule_charge(rows->schedule, &part->request->session->lanes[rows->lane], work);
        *cost += work;
    }
    job->waiter = link;
    return link == 0;
}

/* Answers the refs that wait for a row, after apply_waiters(). @set_err says whether the row found
 * a place. OK: all are answered. AGAIN (not now): those before the first SET or push are answered.
 * Any other error (never): SETs and pushes fail with it. GETs behind one stay, since they were
 * given a value that must not be. Returns true if some stay. */
static bool answer_waiters(struct rows *rows, struct miss *miss, const struct store_row *row,
                           enum embtier_err set_err)
{
    uint32_t link = miss->first_waiter;
    bool behind_set = false;

    miss->first_waiter = miss->last_waiter = 0;
    while (link) {
        struct waiting_ref *const waiter = waiter_at(rows, link);
        const struct row_ref ref = waiter_ref(waiter, miss);
        const uint32_t index = waiter_index(waiter);
        struct part *const part = waiter->part;
        const struct row_op *const op = part->request->row_op;
        const bool is_set = op->changes;

        link = waiter->link; /* read now: the part, and this ref with it, may be freed below */
        behind_set |= is_set;
        if (set_err != EMBTIER_OK && (behind_set || op->pins) &&
            (set_err == EMBTIER_AGAIN || !is_set)) {
            waiter_append(rows, miss, waiter);
            continue;
        }
        if (is_set && set_err == EMBTIER_OK && miss->table->logged)
            rows_log_note(rows, part);
        if (is_set && set_err != EMBTIER_OK)
            rows_ref_fail(rows, part, part_segment_of(part, index), row->id, set_err);
        if (op->placed)
            op->placed(rows, part, index, &ref, row->found);
        waiter_done(rows, part);
    }
    return miss->first_waiter != 0;
}

/* Takes a miss out of the table, with the chain of its waiters, none of which stays. It comes
 * before their answers, so that a client that has one finds no row of its own counted as being
 * read. */
static struct miss miss_take(struct rows *rows, struct miss *miss)
{
    const struct miss taken = *miss;

    miss_table_remove(rows->misses, miss);
    return taken;
}

/* Fails the refs that wait for a row that cannot be read. */
static void fail_waiters(struct rows *rows, struct miss *miss, const struct store_row *row)
{
    uint32_t link = miss_take(rows, miss).first_waiter;

    while (link) {
        const struct waiting_ref *const waiter = waiter_at(rows, link);
        struct part *const part = waiter->part;

        link = waiter->link; /* read now: the part, and this ref with it, may be freed below */
        rows_ref_fail(rows, part, waiter_segment(waiter), row->id, row->err);
        waiter_done(rows, part);
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

static bool miss_is_abandoned(const struct rows *rows, const struct miss *miss)
{
    for (uint32_t link = miss->first_waiter; link; link = waiter_at(rows, link)->link)
        if (!part_is_abandoned(waiter_at(rows, link)->part))
            return false;
    return true;
}

/* Forgets a row whose waiters all belong to clients that are gone. */
static void miss_abandon(struct rows *rows, struct miss *miss)
{
    uint32_t link = miss_take(rows, miss).first_waiter;

    while (link) {
        const struct waiting_ref *const waiter = waiter_at(rows, link);
        struct part *const part = waiter->part;

        link = waiter->link; /* read now: the part, and this ref with it, may be freed below */
        rows_part_abandon(rows, part, 1);
        waiter_done(rows, part);
    }
}

/* Moves the next rows of a shard into @job, as many as fit, sorted for RocksDB. Returns how many
 * abandoned rows it forgot. */
static uint32_t fill_job(struct rows *rows, uint32_t shard, struct read_job *job)
{
    uint32_t abandoned = 0;
    struct miss *batch[READ_JOB_ROWS];
    struct miss *miss;
    uint32_t count = 0;
    uint64_t bytes = 0;

    while (count + abandoned < READ_JOB_ROWS &&
           (miss = read_order_first(rows->read_order, shard))) {
        if (miss_is_abandoned(rows, miss)) {
            read_order_pop(rows->read_order, shard);
            miss_abandon(rows, miss);
            abandoned++;
            continue;
        }
        bytes += align_up(miss->table->row_bytes, CACHE_LINE);
        if (bytes > READ_JOB_BYTES)
            break;
        read_order_pop(rows->read_order, shard);
        assert(miss->first_waiter);
        /* Else the read would bring back an older version than the queue has. */
        assert(!write_queue_find(rows->write_queue, miss->table->index, miss->hash, miss->id));
        miss_set_state(miss, MISS_READING);
        batch[count++] = miss;
    }
    qsort(batch, count, sizeof(batch[0]), compare_misses);
    job->shard = shard;
    for (uint32_t i = 0; i < count; i++)
        read_job_add(job, batch[i]->table, batch[i]->id, miss_table_index(rows->misses, batch[i]));
    if (abandoned > 0) /* as after a read: miss entries are free */
        rows_unblock_all(rows);
    return abandoned;
}

bool rows_dispatch_reads(struct rows *rows)
{
    while (!read_order_empty(rows->read_order)) {
        struct read_job *const job = read_pool_take(rows->readers);
        uint32_t abandoned;

        if (!job) {
            counter_add(&rows->counts.reader_waits, 1);
            return false;
        }
        abandoned = fill_job(rows, read_order_next_shard(rows->read_order), job);
        if (job->count > 0) /* else the job stays free */
            read_pool_send(rows->readers, job);
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

/* True if a request wants the row to stay in the cache. */
static bool waits_for_pin(const struct rows *rows, const struct miss *miss)
{
    for (uint32_t link = miss->first_waiter; link; link = waiter_at(rows, link)->link)
        if (waiter_at(rows, link)->part->request->row_op->pins)
            return true;
    return false;
}

/* Handles a row that the cache refused. A clean one is on SSD; a changed one goes to the write
 * queue. AGAIN: the queue has no room now. Any other error: it never will. */
static enum embtier_err place_refused(struct rows *rows, const struct miss *miss, const void *bytes,
                                      bool dirty)
{
    enum embtier_err err;

    if (!dirty && !(rows->in_epoch && waits_for_pin(rows, miss)))
        return EMBTIER_OK;
    if (rows->in_epoch) {
        counter_add(&rows->counts.held_rows, 1);
        return EMBTIER_AGAIN;
    }
    if (write_queue_put(rows->write_queue, miss->table, miss->hash, miss->id, bytes))
        return EMBTIER_OK;
    err = write_queue_refusal(rows->write_queue, miss->table);
    return err == EMBTIER_OK ? EMBTIER_AGAIN : err;
}

/* Finds a place for a changed row of a logged table, with the same results. */
static enum embtier_err place_read(struct rows *rows, struct table *table, const struct miss *miss,
                                   const void *bytes)
{
    uint32_t room;

    TRY(rows_log_room(rows, table, &room));
    return rows_place_logged(rows, table, miss->hash, miss->id, bytes) ? EMBTIER_OK : EMBTIER_AGAIN;
}

/* Answers the waiters of a row that has found a place (OK), or has not, and settles its miss. */
static void end_miss(struct rows *rows, struct miss *miss, const struct store_row *row,
                     enum embtier_err err)
{
    if (err == EMBTIER_OK) {
        struct miss taken = miss_take(rows, miss);
        const bool stays = answer_waiters(rows, &taken, row, err);

        assert(!stays);
        (void)stays;
    } else if (!answer_waiters(rows, miss, row, err)) {
        miss_table_remove(rows->misses, miss);
    } else if (err == EMBTIER_AGAIN) {
        miss_set_state(miss, MISS_PARKED);
        miss_list_append(rows->misses, &rows->parked, miss);
    } else {
        miss_read_again(rows, miss);
    }
}

/* Finds places for a run of rows, and answers their waiters. */
static void insert_run(struct rows *rows, struct table *table, struct insert_run *run)
{
    const uint32_t refused =
        home_insert(rows, table, run->refs, run->count, run->bytes, run->dirty, run->refused);
    uint32_t next_refused = 0;

    assert(run->count > 0 && run->count <= READ_JOB_ROWS);
    for (uint32_t i = 0; i < run->count; i++) {
        enum embtier_err err = EMBTIER_OK;

        if (next_refused < refused && run->refused[next_refused] == i) {
            next_refused++;
            err = place_refused(rows, run->misses[i], run->bytes[i], bit_is_set(run->dirty, i));
        }
        end_miss(rows, run->misses[i], run->rows[i], err);
    }
    assert(next_refused == refused);
    memset(run->dirty, 0, sizeof(run->dirty));
    run->count = 0;
}

static void log_read_error(struct rows *rows, const struct read_job *job, enum embtier_err err)
{
    const uint64_t now_ns = clock_now_ns(rows->clock);

    if (rows->read_error_logged_ns != 0 && now_ns - rows->read_error_logged_ns < READ_ERROR_LOG_NS)
        return;
    rows->read_error_logged_ns = now_ns;
    log_error("rows cannot be read", "shard=%u err=%s why=%s", job->shard, err_name(err),
              LOG_QUOTED(job->msg.text));
}

static void on_read_done(struct rows *rows, struct read_job *job)
{
    assert(atomic_load_explicit(&job->state, memory_order_relaxed) == READ_JOB_DONE);
    job->message.next = NULL;
    if (rows->read_done)
        rows->last_read_done->next = &job->message;
    else
        rows->read_done = &job->message;
    rows->last_read_done = &job->message;
}

MESSAGE_KIND(message_read_done, on_read_done, rows, struct read_job, message)

/* Serves the waiters of the job's next rows, for one turn's work. If some waiters of a row are left
 * then, the row gets its place and its answers when all have been served. */
static void serve_rows(struct rows *rows, struct read_job *job)
{
    const uint64_t most = schedule_turn_cost(rows->schedule, NULL);
    struct insert_run run = { .count = 0 };
    uint64_t work = 0;

    assert(job->served < job->count);
    while (job->served < job->count && work < most) {
        const uint32_t i = job->served;
        const struct store_row *const row = &job->rows[i];
        struct miss *const miss = miss_table_at(rows->misses, job->owners[i]);
        bool changed;

        assert(miss->state == MISS_READING && miss->first_waiter);
        work += LANE_COST_MISS;
        if (row->err != EMBTIER_OK) {
            log_read_error(rows, job, row->err);
            fail_waiters(rows, miss, row);
        } else if (!apply_waiters(rows, job, miss, row, &work, most)) {
            break;
        } else {
            changed = job->is_changed;
            job->is_changed = false;
            run.refs[run.count] = (struct row_ref){ .hash = miss->hash, .id = miss->id };
            run.bytes[run.count] = row->bytes;
            run.rows[run.count] = row;
            run.misses[run.count] = miss;
            if (changed && miss->table->logged) {
                end_miss(rows, miss, row, place_read(rows, miss->table, miss, row->bytes));
            } else {
                if (changed)
                    run.dirty[run.count / 64] |= UINT64_C(1) << (run.count % 64);
                run.count++;
            }
        }
        job->served++;
        if (run.count > 0 && job->served < job->count && job->tables[i + 1] != job->tables[i])
            insert_run(rows, job->tables[i], &run);
    }
    if (run.count > 0)
        insert_run(rows, job->tables[job->served - 1], &run);
}

bool rows_serve_read(struct rows *rows)
{
    struct read_job *job;

    if (!rows->read_done)
        return false;
    job = CONTAINER_OF(rows->read_done, struct read_job, message);
    serve_rows(rows, job);
    if (job->served == job->count) {
        rows->read_done = job->message.next;
        read_pool_put_back(rows->readers, job);
    }
    rows_unblock_all(rows);
    return true;
}

/* Has up to @count parked rows read again, since there may be room for them; or all, when no more
 * room will come. */
static void unpark(struct rows *rows, uint64_t count)
{
    struct miss *miss;

    if (!write_queue_goes_on(rows->write_queue))
        count = UINT64_MAX;
    for (; count > 0 && (miss = miss_list_first(rows->misses, &rows->parked)); count--) {
        assert(miss->state == MISS_PARKED);
        miss_list_pop(rows->misses, &rows->parked);
        miss_read_again(rows, miss);
    }
}

/* The write queue has more room, or will have none: lets parked rows and blocked sessions go on. */
static void on_written(struct rows *rows)
{
    unpark(rows, write_queue_reap(rows->write_queue));
    rows_log_on_written(rows);
    rows_unblock_all(rows);
}

static void take_written(const struct receiver *to, struct message *message)
{
    (void)message;
    on_written(to->rows);
}

const struct message_kind message_written = { .take = take_written };

void rows_try_again(struct rows *rows)
{
    unpark(rows, UINT64_MAX);
    rows_unblock_all(rows);
}
