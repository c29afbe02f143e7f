/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer_memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/config.h"

struct transfer_memory {
    uint64_t bytes;
    _Atomic uint64_t used_bytes; /* what is given is free before it is taken again */
};

enum embtier_err transfer_memory_new(uint64_t bytes, struct transfer_memory **ret_memory,
                                     struct err_msg *msg)
{
    struct transfer_memory *const memory = calloc(1, sizeof(*memory));

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "memory of exports and imports: out of memory");
    memory->bytes = bytes;
    *ret_memory = memory;
    return EMBTIER_OK;
}

void transfer_memory_free(struct transfer_memory *memory)
{
    free(memory);
}

enum embtier_err transfer_memory_take(struct transfer_memory *memory, uint64_t bytes,
                                      const char *what, uint64_t *taken, struct err_msg *msg)
{
    uint64_t used = transfer_memory_used(memory);

    assert(*taken == 0);
    bytes = align_up(bytes, MIB);
    if (bytes > memory->bytes)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s needs %s of memory, and all exports and imports together may have %s: "
                       "checkpoints.transfer_bytes has to be greater",
                       what, BYTES_TEXT(bytes), BYTES_TEXT(memory->bytes));
    do {
        if (bytes > memory->bytes - used)
            return err_set(msg, EMBTIER_BUSY,
                           "%s needs %s of memory, and exports and imports have %s of the %s of "
                           "checkpoints.transfer_bytes: try again when one has ended",
                           what, BYTES_TEXT(bytes), BYTES_TEXT(used), BYTES_TEXT(memory->bytes));
    } while (!atomic_compare_exchange_weak_explicit(&memory->used_bytes, &used, used + bytes,
                                                    memory_order_acquire, memory_order_relaxed));
    *taken = bytes;
    return EMBTIER_OK;
}

void transfer_memory_give(struct transfer_memory *memory, uint64_t *taken)
{
    atomic_fetch_sub_explicit(&memory->used_bytes, *taken, memory_order_release);
    *taken = 0;
}

uint64_t transfer_memory_used(const struct transfer_memory *memory)
{
    return atomic_load_explicit(&memory->used_bytes, memory_order_relaxed);
}
