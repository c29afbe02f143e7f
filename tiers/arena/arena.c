/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c: reserves memory of a kind and touches every page of it.
 *
 * Pages are touched by MADV_POPULATE_WRITE, which returns an error where a store would be SIGBUS (a
 * full file system, too few huge pages). Kernels before 5.14 lack it and get plain stores. Neither
 * returns an error for a full NUMA node (arena_nodes.h), so its free memory is checked before.
 * Ordinary memory is requested as huge pages, because a gather over gigabytes is otherwise bound by
 * TLB misses. */
#include "tiers/arena/arena.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/machine.h"
#include "tiers/arena/arena_memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct arena {
    struct arena_memory memory;
};

static enum embtier_err check_available(const struct tier_spec *spec, uint64_t bytes,
                                        struct err_msg *msg)
{
    uint64_t available;

    if (spec->kind == TIER_KIND_FILE || spec->kind == TIER_KIND_DRAM_HUGE)
        return EMBTIER_OK;
    /* The kernel would promise the memory anyway, and kill the server while it touches the
     * pages. */
    TRY(arena_memory_check_nodes(spec, bytes, msg));
    available = machine_available_bytes();
    if (bytes <= available)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NO_MEMORY,
                   "tier %s: %" PRIu64 " bytes are wanted, %" PRIu64 " are available", spec->name,
                   bytes, available);
}

static void touch_by_stores(const struct arena_memory *memory)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    volatile char *base = memory->base;

    for (uint64_t at = 0; at < memory->bytes; at += page_bytes)
        base[at] = 0;
}

static enum embtier_err touch(const struct tier_spec *spec, const struct arena_memory *memory,
                              struct err_msg *msg)
{
    int rc;

    if (spec->kind != TIER_KIND_FILE && spec->kind != TIER_KIND_DRAM_HUGE)
        (void)madvise(memory->base, memory->bytes, MADV_HUGEPAGE); /* may be refused */
    do
        rc = madvise(memory->base, memory->bytes, MADV_POPULATE_WRITE);
    while (rc && (errno == EINTR || errno == EAGAIN));
    if (!rc)
        return EMBTIER_OK;
    if (errno == EINVAL) {
        touch_by_stores(memory);
        return EMBTIER_OK;
    }
    return err_set(msg, spec->kind == TIER_KIND_FILE ? EMBTIER_NO_SPACE : EMBTIER_NO_MEMORY,
                   "tier %s: the kernel reserved %" PRIu64 " bytes but cannot provide them: %s",
                   spec->name, memory->bytes, strerror(errno));
}

enum embtier_err arena_new(const struct tier_spec *spec, uint64_t bytes, struct arena **ret_arena,
                           struct err_msg *msg)
{
    _cleanup_(arena_freep) struct arena *arena = NULL;

    if (!bytes || bytes > UINT64_MAX / 2)
        return err_set(msg, EMBTIER_INVALID, "tier %s: %" PRIu64 " bytes", spec->name, bytes);
    bytes = align_up(bytes, ARENA_SLAB_BYTES);
    TRY(check_available(spec, bytes, msg));
    arena = calloc(1, sizeof(*arena));
    if (!arena)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: out of memory", spec->name);
    TRY(arena_memory_reserve(spec, bytes, &arena->memory, msg));
    TRY(touch(spec, &arena->memory, msg));
    *ret_arena = TAKE(arena);
    return EMBTIER_OK;
}

enum embtier_err arena_check(const struct tier_spec *spec, struct err_msg *msg)
{
    struct arena_memory memory;

    TRY(arena_memory_reserve(spec, ARENA_SLAB_BYTES, &memory, msg));
    arena_memory_release(&memory);
    return EMBTIER_OK;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    if (arena->memory.base)
        arena_memory_release(&arena->memory);
    free(arena);
}

const char *arena_library(void)
{
    return arena_memory_library();
}

void *arena_base(const struct arena *arena)
{
    return arena->memory.base;
}

uint64_t arena_bytes(const struct arena *arena)
{
    return arena->memory.bytes;
}

void arena_copy_in(const struct arena *arena, void *dest, const void *src, uint64_t bytes)
{
    if (arena->memory.far)
        arena_memory_copy_past_caches(dest, src, bytes);
    else
        memcpy(dest, src, bytes);
}

void arena_drain(const struct arena *arena)
{
    if (arena->memory.far)
        arena_memory_drain();
}
