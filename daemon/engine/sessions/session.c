/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/access/rights.h"

enum embtier_err session_new(uint64_t id, const struct channel *channel, uint32_t lane_count,
                             struct session **ret_session, struct err_msg *msg)
{
    const uint64_t times_at = sizeof(struct session) + lane_count * sizeof(struct session_lane);
    const uint64_t bytes =
        align_up(times_at + channel->slot_count * sizeof(struct request_time), CACHE_LINE);
    struct session *const session = aligned_alloc(CACHE_LINE, bytes);

    assert(channel->payload > 0 && channel->payload <= channel->region_bytes);
    assert(lane_count > 0 && channel->ops && channel->tail && channel->submissions);
    assert(channel->slot_count > 0 && channel->slot_count <= OP_SLOTS_MAX);
    if (!session)
        return err_set(msg, EMBTIER_NO_MEMORY, "session: out of memory");
    memset(session, 0, bytes);
    session->slot_times = (struct request_time *)((uint8_t *)session + times_at);
    session->id = id;
    session->channel = *channel;
    session->lane_count = lane_count;
    session->home = (uint32_t)(id % lane_count);
    *ret_session = session;
    return EMBTIER_OK;
}

/* ---- Bytes under way ---- */

static uint64_t bytes_of(uint32_t lines)
{
    return lines * UINT64_C(1) * OP_ALIGN;
}

bool session_count(struct session *session, uint64_t bytes)
{
    const uint64_t lines = div_round_up(bytes, OP_ALIGN);

    assert(session->begin_lines == 0);
    if (lines > UINT32_MAX || !rights_take_bytes(session->rights, lines * OP_ALIGN))
        return false;
    session->begin_lines = (uint32_t)lines;
    return true;
}

void session_begun(struct session *session, uint32_t number, bool has_begun)
{
    const uint32_t lines = session->begin_lines;

    session->begin_lines = 0;
    if (!has_begun) {
        rights_give_bytes(session->rights, bytes_of(lines));
        return;
    }
    atomic_store_explicit(&session->counts_bytes, true, memory_order_relaxed);
    atomic_store_explicit(&session->slot_lines[number % session->channel.slot_count], lines,
                          memory_order_relaxed);
}

static void give_back(struct session *session, uint32_t slot)
{
    const uint32_t lines = atomic_load_explicit(&session->slot_lines[slot], memory_order_relaxed);

    if (lines == 0)
        return;
    atomic_store_explicit(&session->slot_lines[slot], 0, memory_order_relaxed);
    rights_give_bytes(session->rights, bytes_of(lines));
}

/* Gives back what requests have that were not answered, as the client has gone. */
static void give_back_all(struct session *session)
{
    if (atomic_load_explicit(&session->counts_bytes, memory_order_relaxed))
        for (uint32_t slot = 0; slot < session->channel.slot_count; slot++)
            give_back(session, slot);
}

void session_free(struct session *session)
{
    if (!session)
        return;
    give_back_all(session);
    assert(session->in_flight == 0 && session->unpinning == 0);
    assert(!session->groups && !session->memory_share.granted);
    free(session);
}

uint32_t session_under_way(const struct session *session)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < session->channel.slot_count; slot++)
        count += atomic_load_explicit(&session->slot_busy[slot], memory_order_relaxed);
    return count;
}

void session_answer(struct session *session, uint32_t number, const struct answer *answer)
{
    const uint32_t slot = number % session->channel.slot_count;

    assert(answer->refusal.err != EMBTIER_AGAIN);
    if (UNLIKELY(atomic_load_explicit(&session->counts_bytes, memory_order_relaxed)))
        give_back(session, slot);
    atomic_store_explicit(&session->slot_busy[slot], 0, memory_order_release);
    session->channel.ops->complete(&session->channel, number, answer);
}

enum embtier_err session_check_bytes(const struct session *session, uint64_t offset, uint64_t bytes,
                                     struct err_msg *msg)
{
    uint64_t begin, end;

    if (!session)
        return err_set(msg, EMBTIER_INVALID,
                       "this connection has no arena, so it cannot transfer rows: connect "
                       "with arena_bytes above 0");
    begin = session->channel.payload;
    end = session->channel.region_bytes;
    if (offset < begin || offset > end || bytes > end - offset)
        return err_set(msg, EMBTIER_OFFSET_RANGE,
                       "%" PRIu64 " bytes at offset %" PRIu64 " do not lie in the arena's %" PRIu64
                       " to %" PRIu64,
                       bytes, offset, begin, end);
    return EMBTIER_OK;
}
