/* SPDX-License-Identifier: Apache-2.0 */
/* The row work of a lane. What is said of a SET of weights here holds for a push as well: both
 * change a row that must be there first.
 *
 * A part's refs go to the cache in chunks. What the cache has is done at once. A row it has not is,
 * in this order, in the write queue (on its way to SSD), in the miss table (being read), or on SSD
 * only; the last makes a miss entry, and read_order.h says when it is read. Refs that must wait
 * for a read are chained to the miss entry, oldest first, GET and SET alike, and take effect in
 * that order when the row arrives: this is what keeps a session's requests for one row in order.
 *
 * A SET is answered when its row has a place, or is logged (lane_log.c). One that waited for a read
 * may find none: then the row is forgotten again, its miss entry keeps the SET and all behind it,
 * and it is read once more when the write queue has room (parked). While rows are parked no read is
 * begun for a SET. When the store refuses rows for good (disk full, I/O error) and no place is
 * left, SETs fail with its error instead of waiting. So sessions, drops and the end of the server
 * never hang on a broken disk, and no row without a place takes a read job away from GETs.
 *
 * A waiting ref no longer needs its hash (the miss entry has it), so that field then holds the part
 * it belongs to: see ref_wait().
 *
 * When there is no free miss entry (GET), or no room for a dirty row in cache or write queue (SET),
 * the ref is kept in the part's retry list and the session is blocked on this lane until a read or
 * a write has finished; other sessions go on. Nothing of the same part or of later parts of the
 * session is looked up before the retry list is empty, but for what the same chunk already did,
 * which was for other rows or behind the retried ref. */
#include "daemon/lane_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
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

static void ref_wait(struct lane *lane, struct part *part, struct row_ref *ref, struct miss *miss)
{
    ref->hash = (uint64_t)(uintptr_t)part;
    waiter_append(lane, miss, ref);
    part->waiting++;
}

/* The client is gone: what is not begun of its requests need not be. But for a push: of that all
 * rows are to change, or none. */
static bool part_is_abandoned(const struct part *part)
{
    return part->request->op != SHM_OP_PUSH &&
           atomic_load_explicit(&part->request->session->gone, memory_order_relaxed);
}

/* Whether all of its rows, some or none are then as the client asked, it is not told: who hangs up
 * may still look at the shared memory. */
static void part_abandon(struct lane *lane, struct part *part, uint64_t rows)
{
    request_fail(part->request, EMBTIER_DISCONNECTED, UINT32_MAX, 0);
    lane->stats.abandoned_rows += rows;
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

/* Has a row read that is not being read yet. False: no miss entry is to be had. */
static bool ref_read(struct lane *lane, struct part *part, struct table *table, struct row_ref *ref)
{
    struct miss *const miss =
        miss_table_add(lane->misses, table, ref->hash, ref->id, part->request->session->id);

    if (!miss)
        return false;
    ref_wait(lane, part, ref, miss);
    miss_read(lane, miss);
    return true;
}

/* ---- Places for rows that changed ---- */

/* Has a row of a logged table written that is not cached, and puts it into the cache if there is
 * room. False: no room in the write queue. */
static bool place_logged(struct lane *lane, struct table *table, uint64_t hash, uint64_t id,
                         const void *row)
{
    const struct row_ref ref = { .hash = hash, .id = id };
    const void *const rows[] = { row };
    uint32_t refused;

    if (!lane_log_row(lane, table, hash, id, row))
        return false;
    /* No place in the cache is no harm. */
    refused = row_cache_insert(lane->cache, table->index, &ref, 1, rows, NULL, &refused);
    return true;
}

/* Puts a dirty row that is not cached into the cache, or failing that into the write queue. False:
 * neither has room. */
static bool place_dirty(struct lane *lane, struct table *table, uint64_t hash, uint64_t id,
                        const void *row)
{
    const struct row_ref ref = { .hash = hash, .id = id };
    const void *const rows[] = { row };
    const uint64_t dirty = 1;
    uint32_t refused;

    if (row_cache_insert(lane->cache, table->index, &ref, 1, rows, &dirty, &refused) == 0)
        return true;
    if (lane->in_epoch) { /* it is newer than what the queue may take */
        lane->stats.held_rows++;
        return false;
    }
    return write_queue_put(lane->write_queue, table, hash, id, row);
}

static void ref_fail(struct lane *lane, struct part *part, uint32_t segment, uint64_t id,
                     enum embtier_err err)
{
    request_fail(part->request, err, segment, id);
    lane->stats.failed_rows++;
}

/* ---- GET ---- */

/* A ref the cache has not. False: it must be tried again later. */
static bool get_missed(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    const struct request_segment *const to = &part->request->segments[segment];
    struct table *const table = to->table;
    struct miss *const miss = miss_table_find(lane->misses, table, ref->hash, ref->id);
    const void *queued;

    if (!miss) {
        queued = write_queue_find(lane->write_queue, table->index, ref->hash, ref->id);
        if (queued) {
            memcpy(to->rows + (uint64_t)ref->position * to->row_bytes, queued, to->row_bytes);
            lane->stats.queued_get_rows++;
            part->hit_rows++;
            return true;
        }
        return ref_read(lane, part, table, ref);
    }
    lane->stats.shared_reads++;
    ref_wait(lane, part, ref, miss);
    return true;
}

/* ---- SET and push ---- */

uint32_t lane_rows_change(struct lane *lane, const struct table *table, const struct row_ref *refs,
                          uint32_t count, void **ret_rows)
{
    return table->logged
               ? row_cache_change_through(lane->cache, table->index, refs, count, ret_rows)
               : row_cache_change(lane->cache, table->index, refs, count, ret_rows);
}

void lane_rows_log(struct lane *lane, struct part *part, struct table *table,
                   const struct row_ref *refs, void *const *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] && !lane_log_row(lane, table, refs[i].hash, refs[i].id, rows[i])) {
            assert(!"there was room");
            request_fail(part->request, EMBTIER_BUSY, UINT32_MAX, refs[i].id);
        }
        lane_log_note(lane, part);
    }
}

/* How many rows of a table may be changed now; or why none will be for some time. */
static enum embtier_err change_room(struct lane *lane, const struct table *table,
                                    uint32_t *ret_rows)
{
    if (table->logged)
        return lane_log_room(lane, table, ret_rows);
    *ret_rows = UINT32_MAX;
    if (!lane->in_epoch)
        return EMBTIER_OK;
    *ret_rows = write_queue_room(lane->write_queue, table); /* each may be an old one */
    lane->stats.held_rows += *ret_rows == 0;
    return EMBTIER_OK;
}

/* Whether a row may be changed now. False: it must be tried again later. *@ret_refused: nor then.
 */
static bool may_change(struct lane *lane, struct part *part, uint32_t segment, uint64_t id,
                       bool *ret_refused)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;
    uint32_t room;

    *ret_refused = false;
    if (!request_changes(part->request))
        return true;
    err = change_room(lane, table, &room);
    if (err == EMBTIER_OK)
        return room > 0;
    ref_fail(lane, part, segment, id, err);
    *ret_refused = true;
    return true;
}

/* Finds a place for the row in lane->scratch_row. False: it must be tried again later. */
static bool set_place(struct lane *lane, struct part *part, uint32_t segment,
                      const struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;

    if (table->logged) {
        if (!place_logged(lane, table, ref->hash, ref->id, lane->scratch_row))
            return false;
        lane_log_note(lane, part);
        return true;
    }
    if (place_dirty(lane, table, ref->hash, ref->id, lane->scratch_row))
        return true;
    err = write_queue_refusal(lane->write_queue, table);
    if (err == EMBTIER_OK)
        return false;
    ref_fail(lane, part, segment, ref->id, err);
    return true;
}

/* Has a row read that is to be changed. False: it must be tried again later. */
static bool change_read(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;

    if (!lane->parked.first)
        return ref_read(lane, part, table, ref);
    err = write_queue_refusal(lane->write_queue, table); /* it would find no place either */
    if (err == EMBTIER_OK)
        return false;
    ref_fail(lane, part, segment, ref->id, err);
    return true;
}

/* A row of a logged table that may have come into the cache meanwhile. Returns whether it has. */
static bool set_cached_logged(struct lane *lane, struct part *part, uint32_t segment,
                              const struct row_ref *ref)
{
    const struct request_segment *const from = &part->request->segments[segment];
    void *row;

    if (row_cache_change_through(lane->cache, from->table->index, ref, 1, &row) > 0)
        return false;
    memcpy(row, from->rows + (uint64_t)ref->position * from->row_bytes, from->row_bytes);
    lane_rows_log(lane, part, from->table, ref, &row, 1);
    row_cache_changed(lane->cache, from->table->index, ref, 1, &row);
    return true;
}

/* A ref the cache had not when its chunk was looked up. False: it must be tried again later. */
static bool set_missed(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    const struct request_segment *const from = &part->request->segments[segment];
    struct table *const table = from->table;
    const uint8_t *const row = from->rows + (uint64_t)ref->position * from->row_bytes;
    struct miss *miss;
    const uint8_t *queued;
    uint32_t missed;

    /* An earlier ref of the chunk may have brought the row in. */
    if (table->logged ? set_cached_logged(lane, part, segment, ref)
                      : row_cache_set(lane->cache, table->index, ref, 1, from->rows,
                                      from->row_bytes, from->row_bytes, &missed) == 0)
        return true;
    lane->second_looks++;
    miss = miss_table_find(lane->misses, table, ref->hash, ref->id);
    if (miss) {
        ref_wait(lane, part, ref, miss);
        return true;
    }
    /* The client may change its rows while they are copied; then it stores a mixture, which is its
     * own affair: the row is copied once and whole, and no later decision looks at it. */
    if (from->row_bytes == table->row_bytes) { /* nothing of the old row stays */
        memcpy(lane->scratch_row, row, table->row_bytes);
        return set_place(lane, part, segment, ref);
    }
    queued = write_queue_find(lane->write_queue, table->index, ref->hash, ref->id);
    if (queued) {
        memcpy(lane->scratch_row + table->weight_bytes, queued + table->weight_bytes,
               table->state_bytes);
        memcpy(lane->scratch_row, row, table->weight_bytes);
        return set_place(lane, part, segment, ref);
    }
    /* The optimizer's state stays, so it has to be read first. */
    return change_read(lane, part, segment, ref);
}

/* A ref the cache had not when its chunk was updated. False: it must be tried again later. What is
 * computed now and finds no place is computed again then, from the row as it is by then. */
static bool push_missed(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    struct miss *miss;
    const void *queued;
    void *row;

    if (lane_rows_change(lane, table, ref, 1, &row) == 0) { /* come meanwhile */
        lane_push_row(lane, part, segment, ref, row);
        if (table->logged)
            lane_rows_log(lane, part, table, ref, &row, 1);
        row_cache_changed(lane->cache, table->index, ref, 1, &row);
        return true;
    }
    lane->second_looks++;
    miss = miss_table_find(lane->misses, table, ref->hash, ref->id);
    if (miss) {
        ref_wait(lane, part, ref, miss);
        return true;
    }
    queued = write_queue_find(lane->write_queue, table->index, ref->hash, ref->id);
    if (queued) {
        memcpy(lane->scratch_row, queued, table->row_bytes);
        lane_push_row(lane, part, segment, ref, lane->scratch_row);
        return set_place(lane, part, segment, ref);
    }
    return change_read(lane, part, segment, ref);
}

/* ---- Prefetch ---- */

/* A ref that was not pinned. False: it must be tried again later. */
static bool prefetch_missed(struct lane *lane, struct part *part, uint32_t segment,
                            struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    struct miss *const miss = miss_table_find(lane->misses, table, ref->hash, ref->id);
    const void *const queued =
        miss ? NULL : write_queue_find(lane->write_queue, table->index, ref->hash, ref->id);
    const enum row_pin pin = lane_prefetch_row(lane, part, segment, ref, queued);

    if (pin == ROW_NOT_PINNED && lane->in_epoch) { /* there may be room when that is over */
        lane->stats.held_rows++;
        return false;
    }
    if (pin == ROW_NOT_PINNED)
        ref_fail(lane, part, segment, ref->id, EMBTIER_PINS_FULL);
    if (pin != ROW_NOT_CACHED)
        return true;
    if (!miss)
        return ref_read(lane, part, table, ref);
    lane->stats.shared_reads++;
    ref_wait(lane, part, ref, miss);
    return true;
}

/* ---- Parts ---- */

static void part_retry_later(struct part *part, uint32_t index)
{
    part->refs[index].link = 0;
    if (part->retry_last)
        part->refs[part->retry_last - 1].link = index + 1;
    else
        part->retry_first = index + 1;
    part->retry_last = index + 1;
}

static bool ref_missed(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    bool refused;

    if (!may_change(lane, part, segment, ref->id, &refused))
        return false;
    if (refused)
        return true;
    switch (part->request->op) {
    case SHM_OP_GET:
        return get_missed(lane, part, segment, ref);
    case SHM_OP_SET:
        return set_missed(lane, part, segment, ref);
    case SHM_OP_PUSH:
        return push_missed(lane, part, segment, ref);
    case SHM_OP_PREFETCH:
        return prefetch_missed(lane, part, segment, ref);
    case SHM_OP_POOL: /* its waves are GETs */
    case SHM_OP_RELEASE:
        break;
    }
    return true;
}

/* Refs that found no room, in order. False: still none. */
static bool part_retry(struct lane *lane, struct part *part)
{
    while (part->retry_first) {
        const uint32_t index = part->retry_first - 1;
        struct row_ref *const ref = &part->refs[index];
        const uint32_t next = ref->link;
        const uint32_t segment = part_segment_of(part, index);
        const struct request_segment *const to = &part->request->segments[segment];
        uint32_t missed;

        if (part->request->op == SHM_OP_GET &&
            row_cache_get(lane->cache, to->table->index, ref, 1, to->rows, to->row_bytes,
                          to->row_bytes, &missed) == 0) {
            part->hit_rows++;
        } else {
            lane->second_looks += part->request->op == SHM_OP_GET;
            if (!ref_missed(lane, part, segment, ref))
                return false;
        }
        part->retry_first = next;
        if (!next)
            part->retry_last = 0;
    }
    return true;
}

/* As row_cache_set(), of a logged table: rows that are there are changed and written. */
static uint32_t set_logged(struct lane *lane, struct part *part, const struct row_ref *refs,
                           uint32_t count)
{
    const struct request_segment *const from = &part->request->segments[part->segment];
    void **const rows = lane->chunk_rows;
    uint32_t missed = 0;

    (void)lane_rows_change(lane, from->table, refs, count, rows);
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i])
            memcpy(rows[i], from->rows + (uint64_t)refs[i].position * from->row_bytes,
                   from->row_bytes);
        else
            lane->chunk_missed[missed++] = i;
    }
    lane_rows_log(lane, part, from->table, refs, rows, count);
    row_cache_changed(lane->cache, from->table->index, refs, count, rows);
    return missed;
}

/* One call of the cache. Refs of the chunk that must be tried again go to the retry list. */
static void part_chunk(struct lane *lane, struct part *part, uint32_t count)
{
    const enum shm_op op = part->request->op;
    const struct request_segment *const segment = &part->request->segments[part->segment];
    struct row_ref *const refs = part->refs + part->next_ref;
    const uint32_t bytes = segment->row_bytes;
    uint32_t missed;

    if (op == SHM_OP_GET) {
        missed = row_cache_get(lane->cache, segment->table->index, refs, count, segment->rows,
                               bytes, bytes, lane->chunk_missed);
        lane->stats.get_rows += count;
    } else if (op == SHM_OP_SET) {
        missed = segment->table->logged
                     ? set_logged(lane, part, refs, count)
                     : row_cache_set(lane->cache, segment->table->index, refs, count, segment->rows,
                                     bytes, bytes, lane->chunk_missed);
        lane->stats.set_rows += count;
    } else if (op == SHM_OP_PUSH) {
        missed = lane_push_chunk(lane, part, refs, count);
        lane->stats.pushed_rows += count;
    } else {
        missed = lane_prefetch_chunk(lane, part, refs, count);
        lane->stats.prefetched_rows += count;
    }
    if (request_changes(part->request))
        atomic_fetch_add_explicit(&segment->table->updated_rows, count, memory_order_relaxed);
    part->hit_rows += count - missed;
    for (uint32_t i = 0; i < missed; i++) {
        struct row_ref *const ref = refs + lane->chunk_missed[i];

        /* Once one ref waits for room all behind it do, so that two of the same row keep their
         * order. */
        if (part->retry_first || !ref_missed(lane, part, part->segment, ref))
            part_retry_later(part, (uint32_t)(ref - part->refs));
    }
    part->next_ref += count;
}

enum turn { TURN_MORE, TURN_BLOCKED, TURN_FINISHED };

static bool part_is_looked_up(const struct part *part)
{
    return part->segment == part->request->segment_count && !part->retry_first;
}

/* How many of the next @count rows, all of the part's segment, may be changed now; 0: try later. If
 * the store takes none, the segment's are refused, and passed over. */
static uint32_t rows_to_change(struct lane *lane, struct part *part, uint32_t count)
{
    const uint32_t end = part->starts[part->segment + 1];
    enum embtier_err err;
    uint32_t room;

    err = change_room(lane, part->request->segments[part->segment].table, &room);
    if (err == EMBTIER_OK)
        return MIN(count, room);
    request_fail(part->request, err, part->segment, part->refs[part->next_ref].id);
    lane->stats.failed_rows += end - part->next_ref;
    part->next_ref = end;
    return 0;
}

/* Looks up rows of @part, at most LANE_TURN_ROWS, and fewer if they are long. */
static enum turn part_turn(struct lane *lane, struct part *part)
{
    const uint32_t segments = part->request->segment_count;
    uint32_t budget = LANE_TURN_ROWS;
    uint32_t cost; /* of a row, in rows of usual length */

    if (part_is_abandoned(part) && !part_is_looked_up(part)) {
        part_abandon(lane, part, part->starts[segments] - part->next_ref);
        part->retry_first = part->retry_last = 0;
        part->segment = segments;
    }
    for (;;) {
        uint32_t count, work;

        if (part->retry_first && !part_retry(lane, part))
            return TURN_BLOCKED;
        while (part->segment < segments && part->next_ref == part->starts[part->segment + 1])
            part->segment++;
        if (part->segment == segments)
            return TURN_FINISHED;
        if (budget == 0)
            return TURN_MORE;
        cost = (uint32_t)div_round_up(part->request->segments[part->segment].row_bytes,
                                      LANE_TURN_BYTES / LANE_TURN_ROWS);
        count = MIN(part->starts[part->segment + 1] - part->next_ref, MAX(budget / cost, 1u));
        count = MIN(count, (uint32_t)LANE_CHUNK_ROWS);
        if (request_changes(part->request)) {
            count = rows_to_change(lane, part, count);
            if (count == 0 && part->next_ref < part->starts[part->segment + 1])
                return TURN_BLOCKED;
            if (count == 0)
                continue;
        }
        work = count * cost;
        if (part->request->op == SHM_OP_PUSH)
            count = lane_push_chunk_rows(part, count, budget, &work);
        part_chunk(lane, part, count);
        budget -= MIN(budget, work);
    }
}

static void queue_append(struct session_queue *queue, struct session_lane *session)
{
    session->next = NULL;
    if (queue->last)
        queue->last->next = session;
    else
        queue->first = session;
    queue->last = session;
}

static struct session_lane *queue_pop(struct session_queue *queue)
{
    struct session_lane *const session = queue->first;

    if (session) {
        queue->first = session->next;
        if (!queue->first)
            queue->last = NULL;
    }
    return session;
}

void lane_add_part(struct lane *lane, struct part *part)
{
    struct session_lane *const session = &part->request->session->lanes[lane->opts.index];

    part->next = NULL;
    if (session->last)
        session->last->next = part;
    else
        session->first = part;
    session->last = part;
    if (session->state == SESSION_LANE_IDLE) {
        session->state = SESSION_LANE_RUNNABLE;
        queue_append(&lane->runnable, session);
    }
}

bool lane_run_turn(struct lane *lane)
{
    struct session_lane *const session = queue_pop(&lane->runnable);
    struct part *part;
    enum turn turn;

    if (!session)
        return false;
    part = session->first;
    turn = part_turn(lane, part);
    if (turn == TURN_FINISHED) {
        session->first = part->next;
        if (!session->first)
            session->last = NULL;
        /* A SET's lookup may be over while rows still wait; the part ends with the last of them.
         * After this call the part, and with it the session if it was the last, may be gone: the
         * queue is put in order first. */
        session->state = session->first ? SESSION_LANE_RUNNABLE : SESSION_LANE_IDLE;
        if (session->first)
            queue_append(&lane->runnable, session);
        if (part->waiting == 0)
            lane_part_finished(lane, part);
    } else if (turn == TURN_BLOCKED) {
        session->state = SESSION_LANE_BLOCKED;
        queue_append(&lane->blocked, session);
    } else {
        queue_append(&lane->runnable, session);
    }
    return true;
}

/* They run again in their order, but for the first, which is the last this time: else one session
 * with many rows would take all the room there is, time and again, before any other got some. */
static void unblock_all(struct lane *lane)
{
    struct session_lane *session = queue_pop(&lane->blocked);

    if (session)
        queue_append(&lane->blocked, session);
    while ((session = queue_pop(&lane->blocked))) {
        session->state = SESSION_LANE_RUNNABLE;
        queue_append(&lane->runnable, session);
    }
}

/* ---- Rows that have been read ---- */

static void waiter_done(struct lane *lane, struct part *part)
{
    part->waiting--;
    if (part->waiting == 0 && part_is_looked_up(part))
        lane_part_finished(lane, part);
}

/* Copies between a row that was read and those who wait for it, oldest first, and updates it for
 * pushes. Nobody is answered yet. Adds to @work, in rows of usual length, what that was beside
 * copying. Returns whether the row was changed. */
static bool apply_waiters(struct lane *lane, const struct miss *miss, const struct store_row *row,
                          uint64_t *work)
{
    bool changed = false;

    for (uint32_t link = miss->first_waiter; link; link = waiter_at(lane, link)->link) {
        const struct row_ref *const ref = waiter_at(lane, link);
        const struct part *const part = ref_part(ref);
        const uint32_t s = part_segment_of(part, (uint32_t)(ref - part->refs));
        const struct request_segment *const segment = &part->request->segments[s];
        const uint64_t at = (uint64_t)ref->position * segment->row_bytes;

        if (part->request->op == SHM_OP_GET)
            memcpy(segment->rows + at, row->bytes, segment->row_bytes);
        else if (part->request->op == SHM_OP_SET)
            memcpy(row->bytes, segment->rows + at, segment->row_bytes);
        else if (part->request->op == SHM_OP_PUSH)
            *work += lane_push_row(lane, part, s, ref, row->bytes);
        changed |= request_changes(part->request);
    }
    return changed;
}

/* The row has come into the cache, if there was room. */
static void pin_waiter(struct lane *lane, struct part *part, const struct row_ref *ref,
                       const struct miss *miss)
{
    const uint32_t segment = part_segment_of(part, (uint32_t)(ref - part->refs));
    const struct row_ref row = { .hash = miss->hash, .id = miss->id, .position = ref->position };

    if (lane_prefetch_row(lane, part, segment, &row, NULL) != ROW_PINNED)
        ref_fail(lane, part, segment, miss->id, EMBTIER_PINS_FULL);
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
            ref_fail(lane, part, part_segment_of(part, (uint32_t)(ref - part->refs)), row->id,
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
        ref_fail(lane, part, part_segment_of(part, (uint32_t)(ref - part->refs)), row->id,
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
        if (!part_is_abandoned(ref_part(waiter_at(lane, link))))
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
        part_abandon(lane, part, 1);
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
        unblock_all(lane);
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
    return place_logged(lane, table, miss->hash, miss->id, bytes) ? EMBTIER_OK : EMBTIER_AGAIN;
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

/* Serves those who wait for the job's next rows, until that was a turn's work. */
static void serve_rows(struct lane *lane, struct read_job *job)
{
    struct insert_run run = { .count = 0 };
    uint64_t work = 0;

    while (job->served < job->count && work < LANE_TURN_ROWS) {
        const uint32_t i = job->served++;
        const struct store_row *const row = &job->rows[i];
        struct miss *const miss = miss_table_at(lane->misses, job->owners[i]);
        bool changed;

        work++;
        if (row->err != EMBTIER_OK) {
            log_read_error(lane, job, row->err);
            fail_waiters(lane, miss, row);
            miss_table_remove(lane->misses, miss);
        } else {
            run.refs[run.count] = (struct row_ref){ .hash = miss->hash, .id = miss->id };
            run.bytes[run.count] = row->bytes;
            run.rows[run.count] = row;
            run.misses[run.count] = miss;
            changed = apply_waiters(lane, miss, row, &work);
            if (changed && miss->table->logged) {
                end_miss(lane, miss, row, place_read(lane, miss->table, miss, row->bytes));
            } else {
                run.dirty[run.count / 64] |= (uint64_t)changed << (run.count % 64);
                run.count++;
            }
        }
        if (run.count > 0 && (job->served == job->count || work >= LANE_TURN_ROWS ||
                              job->tables[i + 1] != job->tables[i]))
            insert_run(lane, job->tables[i], &run);
    }
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
    unblock_all(lane);
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
    unblock_all(lane);
}

void lane_rows_try_again(struct lane *lane)
{
    unpark(lane, UINT64_MAX);
    unblock_all(lane);
}
