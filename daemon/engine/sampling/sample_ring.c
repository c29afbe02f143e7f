/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sampling/sample_ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define HEAD_UNITS (sizeof(struct sample_head) / sizeof(struct sample))

/* Places count up for ever. The ring has those from `taken` up to `put`. */
struct sample_ring {
    uint64_t units; /* a power of two; a unit has a sample's size */
    struct sample *at;
    _Alignas(CACHE_LINE) _Atomic uint64_t put; /* the lane's */
    uint64_t seen_taken;                       /* so that the lane seldom reads the other's line */
    _Alignas(CACHE_LINE) _Atomic uint64_t taken; /* the profiling thread's */
    uint64_t next_taken;                         /* behind the record that was peeked at */
    struct sample_head head;
};

enum embtier_err sample_ring_new(uint64_t bytes, struct sample_ring **ret_ring)
{
    _cleanup_(sample_ring_freep) struct sample_ring *ring =
        aligned_alloc(CACHE_LINE, align_up(sizeof(*ring), CACHE_LINE));

    assert(bytes >= 4096 && (bytes & (bytes - 1)) == 0);
    if (!ring)
        return EMBTIER_NO_MEMORY;
    memset(ring, 0, sizeof(*ring));
    ring->units = bytes / sizeof(struct sample);
    ring->at = malloc(bytes);
    if (!ring->at)
        return EMBTIER_NO_MEMORY;
    memset(ring->at, 0, bytes);
    *ret_ring = TAKE(ring);
    return EMBTIER_OK;
}

void sample_ring_free(struct sample_ring *ring)
{
    if (!ring)
        return;
    free(ring->at);
    free(ring);
}

uint32_t sample_ring_used_eighths(struct sample_ring *ring)
{
    const uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);

    if ((put - ring->seen_taken) * 2 >= ring->units)
        ring->seen_taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    return (uint32_t)((put - ring->seen_taken) * 8 / ring->units);
}

static struct sample *unit(const struct sample_ring *ring, uint64_t place)
{
    return &ring->at[place & (ring->units - 1)];
}

/* Copies units into the ring, which may begin again at its front. */
static void copy_in(struct sample_ring *ring, uint64_t place, const void *from, uint64_t count)
{
    const uint64_t to_end = ring->units - (place & (ring->units - 1));
    const uint64_t first = MIN(count, to_end);

    memcpy(unit(ring, place), from, first * sizeof(struct sample));
    memcpy(ring->at, (const struct sample *)from + first, (count - first) * sizeof(struct sample));
}

static void copy_out(const struct sample_ring *ring, uint64_t place, void *to, uint64_t count)
{
    const uint64_t to_end = ring->units - (place & (ring->units - 1));
    const uint64_t first = MIN(count, to_end);

    memcpy(to, unit(ring, place), first * sizeof(struct sample));
    memcpy((struct sample *)to + first, ring->at, (count - first) * sizeof(struct sample));
}

bool sample_ring_put(struct sample_ring *ring, const struct sample_head *head,
                     const struct sample *samples)
{
    const uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    const uint64_t count = HEAD_UNITS + head->count;

    if (put + count - ring->seen_taken > ring->units)
        ring->seen_taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    if (put + count - ring->seen_taken > ring->units)
        return false;
    copy_in(ring, put, head, HEAD_UNITS);
    copy_in(ring, put + HEAD_UNITS, samples, head->count);
    atomic_store_explicit(&ring->put, put + count, memory_order_release);
    return true;
}

bool sample_ring_peek(struct sample_ring *ring, struct sample_head *ret_head)
{
    const uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);

    if (ring->next_taken == taken) {
        if (atomic_load_explicit(&ring->put, memory_order_acquire) == taken)
            return false;
        copy_out(ring, taken, &ring->head, HEAD_UNITS);
        ring->next_taken = taken + HEAD_UNITS + ring->head.count;
    }
    *ret_head = ring->head;
    return true;
}

void sample_ring_take(struct sample_ring *ring, struct sample *ret_samples)
{
    const uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);

    assert(ring->next_taken > taken);
    copy_out(ring, taken + HEAD_UNITS, ret_samples, ring->head.count);
    atomic_store_explicit(&ring->taken, ring->next_taken, memory_order_release);
}
