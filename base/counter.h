/* SPDX-License-Identifier: Apache-2.0 */
/* counter.h: figures that one thread counts and any thread reads, without a lock or a message.
 *
 * A counter has one writer at a time: the thread that owns its struct. The writer may read it
 * plainly, and changes it by these functions only. They compile to a plain load, an addition and a
 * plain store, without a locked instruction. Other threads read it by counter_get().
 *
 * A reader sees each counter whole. The counters of one struct may belong to different moments, so
 * a sum of two that change together may be off by all that changed while they were read.
 *
 * Order. All accesses are relaxed, and publish nothing themselves. So a thread counts work first,
 * and publishes the work's end afterwards, by a store with release or a message. A thread that has
 * seen that end, with acquire, reads counters that are at least as new. So does one that was told
 * by such a thread, through any number of messages, sockets or locks.
 *
 * Thread: any. */
#ifndef EMBTIER_BASE_COUNTER_H
#define EMBTIER_BASE_COUNTER_H

#include <assert.h>
#include <stdint.h>

static inline uint64_t counter_get(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void counter_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Not an atomic addition, since no other thread writes. */
static inline void counter_add(uint64_t *counter, uint64_t more)
{
    counter_set(counter, *counter + more);
}

static inline void counter_sub(uint64_t *counter, uint64_t less)
{
    assert(*counter >= less);
    counter_set(counter, *counter - less);
}

/* Reads @count counters that lie next to each other, such as all of a struct. */
static inline void counter_get_all(const uint64_t *counters, uint64_t *ret_values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        ret_values[i] = counter_get(&counters[i]);
}

#endif
