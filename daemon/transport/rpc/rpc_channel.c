/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc_channel.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/tsan.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* The client's bytes begin behind it, because offset 0 means "none" (ops.h). */
#define PAYLOAD_OFFSET OP_ALIGN
/* Least space for segments, ids and rows, however little a client asks for. */
#define PAYLOAD_BYTES_MIN (UINT64_C(64) << 10)

static struct rpc_channel *rpc_of(const struct transport_channel *channel)
{
    assert(channel->transport == &rpc_transport);
    return CONTAINER_OF(channel, struct rpc_channel, base);
}

static uint64_t region_bytes_of(const struct channel_spec *spec)
{
    return align_up(MAX(spec->region_bytes, PAYLOAD_OFFSET + PAYLOAD_BYTES_MIN), 4096);
}

/* The configuration counts the rest for each session. */
static uint64_t counted_bytes(const struct channel_spec *spec)
{
    const uint64_t each = sizeof(struct rpc_slot) + sizeof(struct op_submission) +
                          2 * RPC_SPANS_MAX * sizeof(uint64_t);

    return region_bytes_of(spec) + spec->slot_count * each + session_slot_bytes(spec->slot_count);
}

/* ---- The channel's functions ---- */

static void complete(const struct channel *channel, uint32_t number, const struct answer *answer)
{
    struct rpc_channel *const rpc = channel->transport;
    struct rpc_slot *const slot = &rpc->slots[number % rpc->slot_count];

    slot->answer = *answer;
    TSAN_RELEASE(channel);
    mailbox_send(slot->peer->mailbox, &slot->answered);
}

static void set_polled(const struct channel *channel, bool is_polled)
{
    struct rpc_channel *const rpc = channel->transport;

    atomic_store_explicit(&rpc->is_unpolled, !is_polled, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in advance() */
}

/* The control thread closes its end of the stream, which tells the client. */
static void hang_up(const struct channel *channel, enum embtier_err why)
{
    (void)channel;
    (void)why;
}

static const struct channel_ops rpc_channel_ops = {
    .complete = complete,
    .set_polled = set_polled,
    .hang_up = hang_up,
};

/* ---- Requests ---- */

enum embtier_err rpc_channel_check_spans(const struct rpc_channel *channel, const uint64_t *spans,
                                         size_t count, struct err_msg *msg)
{
    for (size_t i = 0; i < count; i += 2)
        if (!channel_holds(&channel->base.channel, spans[i], spans[i + 1], 1))
            return err_set(msg, EMBTIER_PROTOCOL,
                           "a span of %" PRIu64 " bytes at %" PRIu64
                           " is outside the region, which has %" PRIu64,
                           spans[i + 1], spans[i], channel->region_bytes);
    return EMBTIER_OK;
}

/* Copies the spans that the answer brings. */
static enum embtier_err keep_wanted(const Embtier__RpcSubmit *submit, struct rpc_slot *slot,
                                    struct err_msg *msg)
{
    const size_t bytes = submit->n_wanted * sizeof(uint64_t);

    assert(!slot->wanted);
    slot->wanted_numbers = submit->n_wanted;
    if (bytes == 0)
        return EMBTIER_OK;
    slot->wanted = malloc(bytes);
    if (!slot->wanted)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    memcpy(slot->wanted, submit->wanted, bytes);
    return EMBTIER_OK;
}

/* Takes the slot of a request for the stream of @peer. */
static enum embtier_err take_slot(struct rpc_channel *channel, struct transport_peer *peer,
                                  uint32_t number, struct err_msg *msg)
{
    struct rpc_slot *const slot = &channel->slots[number % channel->slot_count];

    if (number - channel->submitted >= channel->slot_count)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "request %" PRIu32 " came when %" PRIu32 " was next, and at most %" PRIu32
                       " may be under way",
                       number, channel->submitted, channel->slot_count);
    if (slot->state != RPC_FREE)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "request %" PRIu32 " came twice, or before the answer to request %" PRIu32,
                       number, number - channel->slot_count);
    if (slot->peer && slot->peer != peer)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "request %" PRIu32 " came on another connection than request %" PRIu32
                       ", whose slot it uses",
                       number, number - channel->slot_count);
    slot->peer = peer;
    slot->state = RPC_ARRIVING;
    slot->number = number;
    return EMBTIER_OK;
}

enum embtier_err rpc_channel_begin(struct rpc_channel *channel, struct transport_peer *peer,
                                   uint32_t number, const Embtier__RpcSubmit *submit,
                                   struct rpc_slot **ret_slot, struct err_msg *msg)
{
    struct rpc_slot *const slot = &channel->slots[number % channel->slot_count];
    enum embtier_err err;

    TRY(rpc_channel_check_spans(channel, submit->sent, submit->n_sent, msg));
    TRY(rpc_channel_check_spans(channel, submit->wanted, submit->n_wanted, msg));
    pthread_mutex_lock(&channel->lock);
    err = take_slot(channel, peer, number, msg);
    pthread_mutex_unlock(&channel->lock);
    if (err != EMBTIER_OK)
        return err;
    TRY(keep_wanted(submit, slot, msg)); /* an error ends the session */
    channel->submissions[number % channel->slot_count] = (struct op_submission){
        .op = submit->op,
        .flags = submit->flags,
        .segment_count = submit->segment_count,
        .segments_offset = submit->segments_offset,
        .step = submit->step,
        .ticket = submit->ticket,
        .prefetch = submit->prefetch,
        .group = submit->group,
    };
    *ret_slot = slot;
    return EMBTIER_OK;
}

/* Makes those requests known to the home lane that have arrived with all before them. */
static void advance(struct rpc_channel *channel)
{
    const uint32_t before = channel->submitted;
    const uint64_t one = 1;
    struct rpc_slot *slot;

    while ((slot = &channel->slots[channel->submitted % channel->slot_count])->state ==
           RPC_WAITING) {
        slot->state = RPC_SUBMITTED;
        channel->submitted++;
    }
    if (channel->submitted == before)
        return;
    atomic_store_explicit(&channel->tail, channel->submitted, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in set_polled() */
    if (atomic_load_explicit(&channel->is_unpolled, memory_order_relaxed))
        (void)!write(channel->doorbell_fd, &one, sizeof(one)); /* full: it is ringing */
}

void rpc_channel_submit(struct rpc_channel *channel, struct rpc_slot *slot)
{
    pthread_mutex_lock(&channel->lock);
    assert(slot->state == RPC_ARRIVING);
    slot->state = RPC_WAITING;
    advance(channel);
    pthread_mutex_unlock(&channel->lock);
}

static void set_state(struct rpc_slot *slot, enum rpc_slot_state state)
{
    pthread_mutex_lock(&slot->channel->lock);
    slot->state = state;
    pthread_mutex_unlock(&slot->channel->lock);
}

void rpc_channel_answered(struct rpc_slot *slot)
{
    set_state(slot, RPC_ANSWERED);
}

void rpc_channel_end(struct rpc_slot *slot)
{
    free(TAKE(slot->wanted));
    set_state(slot, RPC_FREE);
}

/* ---- Memory ---- */

bool rpc_channel_leave_region(struct rpc_channel *channel)
{
    return atomic_fetch_sub(&channel->region_holders, 1) == 1 && channel->region;
}

bool rpc_channel_free_region(struct rpc_channel *channel, uint64_t bytes)
{
    const uint64_t some = MIN(bytes, channel->region_bytes - channel->freed_bytes);

    munmap(channel->region + channel->freed_bytes, some);
    channel->freed_bytes += some;
    return channel->freed_bytes == channel->region_bytes;
}

static void leave_whole_region(struct rpc_channel *channel)
{
    if (rpc_channel_leave_region(channel))
        (void)!rpc_channel_free_region(channel, UINT64_MAX);
}

static void destroy(struct rpc_channel *rpc)
{
    assert(atomic_load(&rpc->region_holders) == 0);
    for (uint32_t i = 0; rpc->slots && i < rpc->slot_count; i++)
        free(rpc->slots[i].wanted);
    closep(&rpc->doorbell_fd);
    pthread_mutex_destroy(&rpc->lock);
    free(rpc->submissions);
    free(rpc->slots);
    free(rpc);
}

void rpc_channel_put(struct rpc_channel *channel)
{
    if (atomic_fetch_sub(&channel->holders, 1) == 1)
        destroy(channel);
}

/* Also one that was not released. */
static void free_channel(struct transport_channel *channel)
{
    struct rpc_channel *const rpc = rpc_of(channel);

    if (!rpc->is_released)
        leave_whole_region(rpc);
    rpc_channel_put(rpc);
}

static enum embtier_err prepare(const struct channel_spec *spec,
                                struct transport_channel **ret_channel, struct err_msg *msg)
{
    struct rpc_channel *const rpc = aligned_alloc(CACHE_LINE, align_up(sizeof(*rpc), CACHE_LINE));

    if (!rpc)
        return err_set(msg, EMBTIER_NO_MEMORY, "session: out of memory");
    *rpc = (struct rpc_channel){
        .base.transport = &rpc_transport,
        .peer = spec->peer,
        .holders = 1,
        .region_holders = 1,
        .region_bytes = region_bytes_of(spec),
        .slot_count = spec->slot_count,
        .doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .submissions = calloc(spec->slot_count, sizeof(struct op_submission)),
        .slots = calloc(spec->slot_count, sizeof(struct rpc_slot)),
        .is_unpolled = 1,
    };
    pthread_mutex_init(&rpc->lock, NULL);
    *ret_channel = &rpc->base;
    if (rpc->doorbell_fd < 0)
        return err_set_errno(msg, errno, "cannot make an event descriptor (eventfd)");
    if (!rpc->submissions || !rpc->slots)
        return err_set(msg, EMBTIER_NO_MEMORY, "session: out of memory");
    for (uint32_t i = 0; i < spec->slot_count; i++) {
        rpc->slots[i].channel = rpc;
        rpc->slots[i].answered.kind = &message_rpc_answered;
    }
    return EMBTIER_OK;
}

static enum embtier_err no_region(const struct rpc_channel *rpc, int err, struct err_msg *msg)
{
    return err_set_errno(msg, err, "cannot have %" PRIu64 " bytes for a session",
                         rpc->region_bytes);
}

/* All of its pages are taken at once, so large ones cost no more memory. The copies into and out of
 * them are faster. */
static enum embtier_err map_region(struct rpc_channel *rpc, struct err_msg *msg)
{
    void *const region =
        mmap(NULL, rpc->region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (region == MAP_FAILED)
        return no_region(rpc, errno, msg);
    (void)madvise(region, rpc->region_bytes, MADV_HUGEPAGE); /* may be refused */
    rpc->region = region;
    return EMBTIER_OK;
}

/* Takes pages for more of the region now. A lack of memory would otherwise end the server when the
 * client's bytes arrive. A kernel before Linux 5.14 gives pages only then. */
static enum embtier_err take_pages(struct rpc_channel *rpc, uint64_t bytes, struct err_msg *msg)
{
    if (madvise(rpc->region + rpc->reserved_bytes, bytes, MADV_POPULATE_WRITE) != 0 &&
        errno != EINVAL)
        return no_region(rpc, errno == EFAULT ? ENOMEM : errno, msg);
    rpc->reserved_bytes += bytes;
    return EMBTIER_OK;
}

static enum embtier_err reserve(struct transport_channel *channel, uint64_t bytes,
                                struct err_msg *msg)
{
    struct rpc_channel *const rpc = rpc_of(channel);

    if (!rpc->region)
        TRY(map_region(rpc, msg));
    TRY(take_pages(rpc, MIN(bytes, rpc->region_bytes - rpc->reserved_bytes), msg));
    if (rpc->reserved_bytes < rpc->region_bytes)
        return EMBTIER_AGAIN;
    rpc->base.channel = (struct channel){
        .region = rpc->region,
        .region_bytes = rpc->region_bytes,
        .payload = PAYLOAD_OFFSET,
        .slot_count = rpc->slot_count,
        .tail = &rpc->tail,
        .submissions = rpc->submissions,
        .doorbell_fd = rpc->doorbell_fd,
        .ops = &rpc_channel_ops,
        .transport = rpc,
    };
    return EMBTIER_OK;
}

/* The client may send requests as soon as it has the answer to its hello, which goes through the
 * loop too, so the loop is told first. */
static void join(struct transport_channel *channel, struct transport_peer *peer)
{
    struct rpc_channel *const rpc = rpc_of(channel);

    atomic_fetch_add(&rpc->holders, 1);
    atomic_fetch_add(&rpc->region_holders, 1);
    peer->bound = channel;
    mailbox_send(peer->mailbox, &peer->bound_message);
}

static uint32_t announce(struct transport_channel *channel, int ret_fds[TRANSPORT_FDS_MAX])
{
    (void)ret_fds;
    join(channel, rpc_of(channel)->peer);
    return 0;
}

/* A loop that is still sending answers from the region frees it later. */
static void release(struct transport_channel *channel, bool is_abandoned)
{
    struct rpc_channel *const rpc = rpc_of(channel);

    (void)is_abandoned;
    rpc->is_released = true;
    leave_whole_region(rpc);
}

const struct transport rpc_transport = {
    .counted_bytes = counted_bytes,
    .prepare = prepare,
    .reserve = reserve,
    .announce = announce,
    .join = join,
    .release = release,
    .free = free_channel,
};
