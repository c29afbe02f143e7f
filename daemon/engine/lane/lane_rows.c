/* SPDX-License-Identifier: Apache-2.0 */
/* The row work of a lane. What is said of a SET of weights here holds for a push as well: both
 * change a row that must be there first.
 *
 * A part's refs go to the cache in chunks. What the cache has is done at once. A row it has not is,
 * in this order, in the write queue (on its way to SSD), in the miss table (being read), or on SSD
 * only; the last makes a miss entry (lane_reads.c), and so does a SET of weights, if the row has a
 * state that stays. A SET is answered when its row has a place, or is logged (lane_log.c).
 *
 * When there is no free miss entry (GET), or no room for a dirty row in cache or write queue (SET),
 * the ref is kept in the part's retry list and the session is blocked on this lane until a read or
 * a write has finished; other sessions go on. Nothing of the same part or of later parts of the
 * session is looked up before the retry list is empty, but for what the same chunk already did,
 * which was for other rows or behind the retried ref. */
#include "daemon/engine/lane/lane_impl.h"

#include <assert.h>
#include <string.h>

/* ---- Places for rows that changed ---- */

bool lane_place_logged(struct lane *lane, struct table *table, uint64_t hash, uint64_t id,
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

void lane_ref_fail(struct lane *lane, struct part *part, uint32_t segment, uint64_t id,
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
        return lane_ref_read(lane, part, table, ref);
    }
    lane->stats.shared_reads++;
    lane_ref_wait(lane, part, ref, miss);
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

uint32_t lane_rows_find(struct lane *lane, const struct table *table, const struct row_ref *refs,
                        uint32_t count, void **ret_rows)
{
    return row_cache_find(lane->cache, table->index, refs, count, 0, (const void **)ret_rows);
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
    lane_ref_fail(lane, part, segment, id, err);
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
        if (!lane_place_logged(lane, table, ref->hash, ref->id, lane->scratch_row))
            return false;
        lane_log_note(lane, part);
        return true;
    }
    if (place_dirty(lane, table, ref->hash, ref->id, lane->scratch_row))
        return true;
    err = write_queue_refusal(lane->write_queue, table);
    if (err == EMBTIER_OK)
        return false;
    lane_ref_fail(lane, part, segment, ref->id, err);
    return true;
}

/* Has a row read that is to be changed. False: it must be tried again later. */
static bool change_read(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;

    if (!lane->parked.first)
        return lane_ref_read(lane, part, table, ref);
    err = write_queue_refusal(lane->write_queue, table); /* it would find no place either */
    if (err == EMBTIER_OK)
        return false;
    lane_ref_fail(lane, part, segment, ref->id, err);
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
        lane_ref_wait(lane, part, ref, miss);
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
        lane_ref_wait(lane, part, ref, miss);
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

/* A ref of a trial that the cache had not. The row is tried where it is on its way, or when it has
 * been read. False: it must be tried again later. */
static bool try_missed(struct lane *lane, struct part *part, uint32_t segment, struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    struct miss *miss;
    void *row;

    if (lane_rows_find(lane, table, ref, 1, &row) > 0) { /* else it has come meanwhile */
        miss = miss_table_find(lane->misses, table, ref->hash, ref->id);
        if (miss) {
            lane_ref_wait(lane, part, ref, miss);
            return true;
        }
        row = (void *)write_queue_find(lane->write_queue, table->index, ref->hash, ref->id);
        if (!row)
            return lane_ref_read(lane, part, table, ref);
    }
    lane_push_row(lane, part, segment, ref, row);
    return true;
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
        lane_ref_fail(lane, part, segment, ref->id, EMBTIER_PINS_FULL);
    if (pin != ROW_NOT_CACHED)
        return true;
    if (!miss)
        return lane_ref_read(lane, part, table, ref);
    lane->stats.shared_reads++;
    lane_ref_wait(lane, part, ref, miss);
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
        return part->request->is_trial ? try_missed(lane, part, segment, ref)
                                       : push_missed(lane, part, segment, ref);
    case SHM_OP_PREFETCH:
        return prefetch_missed(lane, part, segment, ref);
    case SHM_OP_POOL: /* its waves are GETs */
    case SHM_OP_RELEASE:
        break;
    }
    return true;
}

/* Refs that found no room, in order. False: still none. */
static bool part_retry(struct lane *lane, struct part *part, struct session_lane *session)
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
        schedule_charge(&lane->schedule, session, LANE_COST_MISS);
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

/* One call of the cache. Refs of the chunk that must be tried again go to the retry list. Returns
 * how many were not cached. */
static uint32_t part_chunk(struct lane *lane, struct part *part, uint32_t count)
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
        lane->stats.pushed_rows += part->request->is_trial ? 0 : count;
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
    return missed;
}

enum turn { TURN_MORE, TURN_BLOCKED, TURN_FINISHED };

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

static void spend(struct lane *lane, struct session_lane *session, uint64_t cost, uint64_t *left)
{
    schedule_charge(&lane->schedule, session, cost);
    *left -= MIN(*left, cost);
}

/* Looks up rows of @part, for about *@left. */
static enum turn part_turn(struct lane *lane, struct part *part, struct session_lane *session,
                           uint64_t *left)
{
    const uint32_t segments = part->request->segment_count;

    if (lane_part_is_abandoned(part) && !lane_part_is_looked_up(part)) {
        lane_part_abandon(lane, part, part->starts[segments] - part->next_ref);
        part->retry_first = part->retry_last = 0;
        part->segment = segments;
    }
    for (;;) {
        uint32_t count, row_cost;
        uint64_t work;

        if (part->retry_first && !part_retry(lane, part, session))
            return TURN_BLOCKED;
        while (*left > 0 && part->segment < segments &&
               part->next_ref == part->starts[part->segment + 1]) {
            part->segment++;
            spend(lane, session, LANE_COST_SEGMENT, left);
        }
        if (part->segment == segments)
            return TURN_FINISHED;
        if (*left == 0)
            return TURN_MORE;
        row_cost =
            lane_row_cost(part->request->segments[part->segment].row_bytes, part->request->is_cold);
        count = (uint32_t)MIN(MAX(*left / row_cost, UINT64_C(1)), (uint64_t)LANE_CHUNK_ROWS);
        count = MIN(count, part->starts[part->segment + 1] - part->next_ref);
        if (request_changes(part->request)) {
            count = rows_to_change(lane, part, count);
            if (count == 0 && part->next_ref < part->starts[part->segment + 1])
                return TURN_BLOCKED;
            if (count == 0)
                continue;
        }
        work = (uint64_t)count * row_cost;
        if (part->request->op == SHM_OP_PUSH)
            count = lane_push_chunk_rows(part, count, *left, &work);
        work += (uint64_t)part_chunk(lane, part, count) * LANE_COST_MISS;
        spend(lane, session, work, left);
        if (*left < row_cost)
            *left = 0; /* not for a single row */
    }
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
    if (!session->is_blocked)
        schedule_add_work(&lane->schedule, session, SESSION_PARTS);
}

static void block(struct lane *lane, struct session_lane *session)
{
    session->is_blocked = true;
    session->next_blocked = NULL;
    if (lane->blocked)
        lane->last_blocked->next_blocked = session;
    else
        lane->blocked = session;
    lane->last_blocked = session;
    schedule_remove_work(&lane->schedule, session, SESSION_PARTS);
}

void lane_parts_turn(struct lane *lane, struct session_lane *session)
{
    uint64_t left = schedule_turn_cost(&lane->schedule, session);
    bool goes_on = true;

    while (goes_on) {
        struct part *const part = session->first;
        const enum turn turn = part_turn(lane, part, session, &left);

        if (turn == TURN_BLOCKED)
            block(lane, session);
        if (turn != TURN_FINISHED)
            return;
        session->first = part->next;
        goes_on = session->first && left > 0;
        if (!session->first) {
            session->last = NULL;
            schedule_remove_work(&lane->schedule, session, SESSION_PARTS);
        }
        /* A SET's lookup may be over while rows still wait; the part ends with the last of them.
         * After this call the part, and with it the session if it was the last, may be gone: that
         * is why all else is in order by now. */
        if (part->waiting == 0)
            lane_part_finished(lane, part);
    }
}

/* Whose turn it is first is whose rows have cost least: one that has found room has been charged
 * for that, and does not take all there is, time and again, before any other gets some. */
void lane_unblock_all(struct lane *lane)
{
    struct session_lane *session = lane->blocked;

    lane->blocked = lane->last_blocked = NULL;
    while (session) {
        struct session_lane *const next = session->next_blocked;

        session->is_blocked = false;
        schedule_add_work(&lane->schedule, session, SESSION_PARTS);
        session = next;
    }
}
