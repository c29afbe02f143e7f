/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_channel.h: a channel (channel.h) over a plain buffer in this process, a transport without
 * shared memory. Submissions and completions lie outside its region, and its payload begins at
 * another offset than in transport/shm. Its client gets no descriptors. A transport over a network
 * does the same behind its sockets. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_ENGINE_SESSIONS_BUFFER_CHANNEL_H
#define EMBTIER_TESTS_UNIT_ENGINE_SESSIONS_BUFFER_CHANNEL_H

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/transport/transport.h"

#define BUFFER_CHANNEL_PAYLOAD 64 /* offset of the client's bytes */

struct buffer_channel {
    struct transport_channel base;
    uint8_t *region;
    uint64_t region_bytes;
    uint32_t slot_count;
    int doorbell_fd;
    struct op_submission *submissions;
    struct op_completion *completions;
    _Atomic uint32_t tail;
    _Atomic uint32_t must_ring;
    _Atomic uint32_t closed; /* enum embtier_err */
};

static inline void buffer_channel_complete(const struct channel *channel, uint32_t number,
                                           const struct answer *answer)
{
    const struct buffer_channel *const buffer = channel->transport;
    struct op_completion *const completion = &buffer->completions[number % channel->slot_count];

    completion->err = (uint32_t)answer->refusal.err;
    completion->segment = answer->refusal.segment;
    completion->value = answer->refusal.value;
    completion->limit = answer->refusal.limit;
    completion->field = answer->refusal.field;
    completion->hit_rows = answer->hit_rows;
    completion->ticket = answer->ticket;
    atomic_store(&completion->sequence, number + 1);
}

static inline void buffer_channel_set_polled(const struct channel *channel, bool is_polled)
{
    struct buffer_channel *const buffer = channel->transport;

    atomic_store(&buffer->must_ring, !is_polled);
}

static inline void buffer_channel_hang_up(const struct channel *channel, enum embtier_err why)
{
    struct buffer_channel *const buffer = channel->transport;

    atomic_store(&buffer->closed, (uint32_t)why);
}

static const struct channel_ops buffer_channel_ops = {
    .complete = buffer_channel_complete,
    .set_polled = buffer_channel_set_polled,
    .hang_up = buffer_channel_hang_up,
};

/* Maps zeroed memory that a forked process shares. */
static inline void *buffer_channel_map(uint64_t bytes)
{
    void *const place =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (place == MAP_FAILED)
        abort();
    return place;
}

/* ---- The transport ---- */

static inline struct buffer_channel *buffer_channel_of(const struct transport_channel *channel)
{
    return CONTAINER_OF(channel, struct buffer_channel, base);
}

static inline uint64_t buffer_channel_counted_bytes(const struct channel_spec *spec)
{
    return align_up(BUFFER_CHANNEL_PAYLOAD + spec->region_bytes, CACHE_LINE);
}

/* Makes all but the region. */
static inline enum embtier_err buffer_channel_prepare(const struct channel_spec *spec,
                                                      struct transport_channel **ret_channel,
                                                      struct err_msg *msg)
{
    struct buffer_channel *const buffer = buffer_channel_map(sizeof(*buffer));

    (void)msg;
    buffer->region_bytes = buffer_channel_counted_bytes(spec);
    buffer->slot_count = spec->slot_count;
    buffer->submissions = buffer_channel_map(spec->slot_count * sizeof(*buffer->submissions));
    buffer->completions = buffer_channel_map(spec->slot_count * sizeof(*buffer->completions));
    buffer->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    buffer->must_ring = 1;
    *ret_channel = &buffer->base;
    return EMBTIER_OK;
}

static inline enum embtier_err buffer_channel_reserve(struct transport_channel *channel,
                                                      uint64_t bytes, struct err_msg *msg)
{
    struct buffer_channel *const buffer = buffer_channel_of(channel);

    (void)bytes;
    (void)msg;
    buffer->region = buffer_channel_map(buffer->region_bytes);
    buffer->base.channel = (struct channel){
        .region = buffer->region,
        .region_bytes = buffer->region_bytes,
        .payload = BUFFER_CHANNEL_PAYLOAD,
        .slot_count = buffer->slot_count,
        .tail = &buffer->tail,
        .submissions = buffer->submissions,
        .doorbell_fd = buffer->doorbell_fd,
        .ops = &buffer_channel_ops,
        .transport = buffer,
    };
    return EMBTIER_OK;
}

static inline void buffer_channel_free(struct buffer_channel *buffer)
{
    close(buffer->doorbell_fd);
    if (buffer->region)
        munmap(buffer->region, buffer->region_bytes);
    munmap(buffer->submissions, buffer->slot_count * sizeof(*buffer->submissions));
    munmap(buffer->completions, buffer->slot_count * sizeof(*buffer->completions));
    munmap(buffer, sizeof(*buffer));
}

/* Makes a channel with room for @bytes of the client's. */
static inline struct buffer_channel *buffer_channel_new(uint64_t bytes, uint32_t slot_count)
{
    const struct channel_spec spec = { .region_bytes = bytes, .slot_count = slot_count };
    struct transport_channel *channel = NULL;

    if (buffer_channel_prepare(&spec, &channel, NULL) != EMBTIER_OK ||
        buffer_channel_reserve(channel, UINT64_MAX, NULL) != EMBTIER_OK)
        abort();
    return buffer_channel_of(channel);
}

#endif
