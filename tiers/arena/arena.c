/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c: reserves addresses of a kind of memory, and touches every page of the slabs that are
 * there.
 *
 * Pages are touched by MADV_POPULATE_WRITE, which returns an error where a store would be SIGBUS (a
 * full file system, too few huge pages). Kernels before 5.14 lack it and get plain stores. Neither
 * returns an error for a full NUMA node (arena_nodes.h), so its free memory is checked before.
 * Ordinary memory is requested as huge pages, because a gather over gigabytes is otherwise bound by
 * TLB misses. */
#include "tiers/arena/arena.h"

#include <assert.h>
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
    struct tier_spec spec;
};

/* Some of an arena's bytes. */
struct extent {
    char *base;
    uint64_t at;
    uint64_t bytes;
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

static void touch_by_stores(const struct extent *extent)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    volatile char *base = extent->base;

    for (uint64_t at = 0; at < extent->bytes; at += page_bytes)
        base[at] = 0;
}

/* Returns 0 or an errno. */
static int touch(const struct arena *arena, const struct extent *extent)
{
    int rc;

    if (arena->spec.kind != TIER_KIND_FILE && arena->spec.kind != TIER_KIND_DRAM_HUGE)
        (void)madvise(extent->base, extent->bytes, MADV_HUGEPAGE); /* may be refused */
    do
        rc = madvise(extent->base, extent->bytes, MADV_POPULATE_WRITE);
    while (rc && (errno == EINTR || errno == EAGAIN));
    if (rc && errno == EINVAL) {
        touch_by_stores(extent);
        return 0;
    }
    return rc ? errno : 0;
}

static struct extent extent_of(const struct arena *arena, uint64_t first_slab, uint64_t slab_count)
{
    const struct extent extent = { .base =
                                       (char *)arena->memory.base + first_slab * ARENA_SLAB_BYTES,
                                   .at = first_slab * ARENA_SLAB_BYTES,
                                   .bytes = slab_count * ARENA_SLAB_BYTES };

    assert(extent.at + extent.bytes <= arena->memory.bytes);
    return extent;
}

/* Returns 0 or an errno. */
static int give_back(const struct arena *arena, const struct extent *extent)
{
    if (arena->spec.kind == TIER_KIND_FILE)
        return arena_memory_drop_blocks(&arena->memory, extent->at, extent->bytes);
    return madvise(extent->base, extent->bytes, MADV_DONTNEED) == 0 ? 0 : errno;
}

enum embtier_err arena_fill(struct arena *arena, uint64_t first_slab, uint64_t slab_count,
                            struct err_msg *msg)
{
    const struct extent extent = extent_of(arena, first_slab, slab_count);
    const bool is_file = arena->spec.kind == TIER_KIND_FILE;
    int errnum;

    if (slab_count == 0)
        return EMBTIER_OK;
    errnum = arena_memory_add_blocks(&arena->memory, extent.at, extent.bytes);
    if (errnum != 0) {
        (void)arena_memory_drop_blocks(&arena->memory, extent.at, extent.bytes);
        return err_set_errno(msg, errnum, "tier %s: cannot map %" PRIu64 " bytes in %s",
                             arena->spec.name, extent.bytes, arena->spec.path);
    }
    errnum = touch(arena, &extent);
    if (errnum == 0)
        return EMBTIER_OK;
    (void)give_back(arena, &extent);
    return err_set(msg, is_file ? EMBTIER_NO_SPACE : EMBTIER_NO_MEMORY,
                   "tier %s: the kernel reserved %" PRIu64 " bytes but cannot provide them: %s",
                   arena->spec.name, extent.bytes, strerror(errnum));
}

enum embtier_err arena_empty(struct arena *arena, uint64_t first_slab, uint64_t slab_count,
                             struct err_msg *msg)
{
    const struct extent extent = extent_of(arena, first_slab, slab_count);
    const int errnum = slab_count > 0 ? give_back(arena, &extent) : 0;

    return errnum == 0 ? EMBTIER_OK
                       : err_set_errno(msg, errnum, "tier %s: cannot give %" PRIu64 " bytes back",
                                       arena->spec.name, extent.bytes);
}

enum embtier_err arena_new_empty(const struct tier_spec *spec, uint64_t bytes,
                                 struct arena **ret_arena, struct err_msg *msg)
{
    _cleanup_(arena_freep) struct arena *arena = NULL;

    if (!bytes || bytes > UINT64_MAX / 2)
        return err_set(msg, EMBTIER_INVALID, "tier %s: %" PRIu64 " bytes", spec->name, bytes);
    arena = calloc(1, sizeof(*arena));
    if (!arena)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: out of memory", spec->name);
    arena->spec = *spec;
    TRY(arena_memory_reserve(spec, align_up(bytes, ARENA_SLAB_BYTES), &arena->memory, msg));
    *ret_arena = TAKE(arena);
    return EMBTIER_OK;
}

enum embtier_err arena_check_available(const struct arena *arena, uint64_t bytes,
                                       struct err_msg *msg)
{
    return check_available(&arena->spec, bytes, msg);
}

enum embtier_err arena_new(const struct tier_spec *spec, uint64_t bytes, struct arena **ret_arena,
                           struct err_msg *msg)
{
    _cleanup_(arena_freep) struct arena *arena = NULL;

    if (bytes > 0 && bytes <= UINT64_MAX / 2)
        TRY(check_available(spec, align_up(bytes, ARENA_SLAB_BYTES), msg));
    TRY(arena_new_empty(spec, bytes, &arena, msg));
    TRY(arena_fill(arena, 0, arena->memory.bytes / ARENA_SLAB_BYTES, msg));
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
