/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/rights.h"

#include <assert.h>
#include <stddef.h>

#include "base/macros.h"

#define NS_PER_S UINT64_C(1000000000)

static struct rights everything = {
    .role = ROLE_ADMIN,
    .tables = { [0 ... RIGHTS_USES - 1] = { [0 ... RIGHTS_WORDS - 1] = UINT64_MAX } },
};

struct rights *rights_everything(void)
{
    return &everything;
}

static const enum role least_roles[] = { [RIGHTS_READ] = ROLE_READ, [RIGHTS_CHANGE] = ROLE_TRAIN };

/* Only one thread writes at a time, so no atomic read-modify-write is needed. */
static void set_bit(_Atomic uint64_t *word, uint32_t bit, bool value)
{
    const uint64_t mask = UINT64_C(1) << bit;
    const uint64_t before = atomic_load_explicit(word, memory_order_relaxed);

    atomic_store_explicit(word, value ? before | mask : before & ~mask, memory_order_relaxed);
}

void rights_set(struct rights *rights, uint16_t index, bool is_granted)
{
    for (uint32_t use = 0; use < RIGHTS_USES; use++)
        set_bit(&rights->tables[use][index / 64], index % 64,
                is_granted && rights_role(rights) >= least_roles[use]);
}

void rights_replace(struct rights *rights, enum role role, const uint64_t *granted)
{
    atomic_store_explicit(&rights->role, (uint32_t)role, memory_order_relaxed);
    for (uint32_t use = 0; use < RIGHTS_USES; use++)
        for (uint32_t w = 0; w < RIGHTS_WORDS; w++)
            atomic_store_explicit(&rights->tables[use][w],
                                  granted && role >= least_roles[use] ? granted[w] : 0,
                                  memory_order_relaxed);
}

void rights_pace(struct rights *rights, uint64_t per_second)
{
    atomic_store_explicit(&rights->interval_ns,
                          per_second > 0 ? MAX(NS_PER_S / per_second, UINT64_C(1)) : 0,
                          memory_order_relaxed);
}

uint64_t rights_per_second(const struct rights *rights)
{
    const uint64_t interval_ns = atomic_load_explicit(&rights->interval_ns, memory_order_relaxed);

    return interval_ns > 0 ? NS_PER_S / interval_ns : 0;
}

/* Sessions of a user have several home lanes, so more than one thread may be here. */
bool rights_begin(struct rights *rights, uint64_t now_ns)
{
    const uint64_t interval_ns = atomic_load_explicit(&rights->interval_ns, memory_order_relaxed);
    uint64_t due_ns = atomic_load_explicit(&rights->due_ns, memory_order_relaxed);
    uint64_t next_ns;

    do {
        next_ns = MAX(due_ns, now_ns) + interval_ns;
        if (next_ns > now_ns + NS_PER_S)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&rights->due_ns, &due_ns, next_ns,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void rights_limit_bytes(struct rights *rights, uint64_t most)
{
    atomic_store_explicit(&rights->most_bytes, most, memory_order_relaxed);
}

bool rights_take_bytes(struct rights *rights, uint64_t bytes)
{
    const uint64_t most = rights_most_bytes(rights);
    uint64_t before = atomic_load_explicit(&rights->bytes, memory_order_relaxed);

    do {
        if (most != 0 && (before > most || bytes > most - before))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&rights->bytes, &before, before + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void rights_give_bytes(struct rights *rights, uint64_t bytes)
{
    const uint64_t before = atomic_fetch_sub_explicit(&rights->bytes, bytes, memory_order_relaxed);

    assert(before >= bytes);
    (void)before;
}
