/* SPDX-License-Identifier: Apache-2.0 */
/* arena_pmem.c: arenas of every kind: files, others by arena_system.h and arena_nodes.h. libpmem
 * copies rows into all but ordinary memory.
 *
 * A file's blocks are allocated before its pages are touched, so a full file system is ENOSPC here,
 * and not SIGBUS later. Blocks come and go with slabs, which pmem_map_file() cannot do: it has them
 * all from the start. The file has no name (O_TMPFILE), so it disappears however the process ends.
 * Its content need not survive, so nothing is ever flushed with msync. */
#include <errno.h>
#include <fcntl.h>
#include <libpmem.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

#include "tiers/arena/arena.h"
#include "tiers/arena/arena_memory.h"
#include "tiers/arena/arena_nodes.h"
#include "tiers/arena/arena_system.h"

/* Some file systems know no files without a name: then the name is taken away at once. */
static int open_file(const char *folder)
{
    char path[TIER_PATH_MAX + sizeof("/embtier-XXXXXX")];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    snprintf(path, sizeof(path), "%s/embtier-XXXXXX", folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Maps the file to a slab boundary of addresses that are reserved first. Returns 0 or an errno. */
static int map_file(int fd, struct arena_memory *memory)
{
    const uint64_t mapping_bytes = memory->bytes + ARENA_SLAB_BYTES;
    void *mapping;

    if (ftruncate(fd, (off_t)memory->bytes) != 0)
        return errno;
    mapping =
        mmap(NULL, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return errno;
    memory->base = (void *)align_up((uintptr_t)mapping, ARENA_SLAB_BYTES);
    if (mmap(memory->base, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        const int saved = errno;

        munmap(mapping, mapping_bytes);
        return saved;
    }
    memory->mapping = mapping;
    memory->mapping_bytes = mapping_bytes;
    memory->fd = fd;
    return 0;
}

static enum embtier_err reserve_file(const struct tier_spec *spec, uint64_t bytes,
                                     struct arena_memory *ret_memory, struct err_msg *msg)
{
    struct arena_memory memory = { .bytes = bytes, .kind = spec->kind, .far = true };
    const int fd = open_file(spec->path);
    const int errnum = fd < 0 ? errno : map_file(fd, &memory);

    if (errnum == 0) {
        *ret_memory = memory;
        return EMBTIER_OK;
    }
    if (fd >= 0)
        close(fd);
    return err_set_errno(msg, errnum, "tier %s: cannot map %llu bytes in %s", spec->name,
                         (unsigned long long)bytes, spec->path);
}

int arena_memory_add_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes)
{
    int rc = 0;

    if (memory->kind != TIER_KIND_FILE)
        return 0;
    do
        rc = posix_fallocate(memory->fd, (off_t)at, (off_t)bytes);
    while (rc == EINTR);
    return rc;
}

int arena_memory_drop_blocks(const struct arena_memory *memory, uint64_t at, uint64_t bytes)
{
    int rc = 0;

    if (memory->kind != TIER_KIND_FILE)
        return 0;
    do
        rc = fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                       (off_t)bytes);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : errno;
}

enum embtier_err arena_memory_check_nodes(const struct tier_spec *spec, uint64_t bytes,
                                          struct err_msg *msg)
{
    if (spec->kind == TIER_KIND_NUMA || spec->kind == TIER_KIND_DAX_KMEM)
        return arena_nodes_check(spec, bytes, msg);
    return EMBTIER_OK;
}

enum embtier_err arena_memory_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    switch (spec->kind) {
    case TIER_KIND_DRAM:
    case TIER_KIND_DRAM_HUGE:
        return arena_system_reserve(spec, bytes, ret_memory, msg);
    case TIER_KIND_FILE:
        return reserve_file(spec, bytes, ret_memory, msg);
    case TIER_KIND_DAX_KMEM:
    case TIER_KIND_NUMA:
        return arena_nodes_reserve(spec, bytes, ret_memory, msg);
    case TIER_KIND_COUNT:
        break;
    }
    return err_set(msg, EMBTIER_INVALID, "tier %s: no such kind of memory", spec->name);
}

void arena_memory_release(struct arena_memory *memory)
{
    switch (memory->kind) {
    case TIER_KIND_FILE:
        munmap(memory->mapping, memory->mapping_bytes);
        close(memory->fd);
        return;
    case TIER_KIND_DAX_KMEM:
    case TIER_KIND_NUMA:
        arena_nodes_release(memory);
        return;
    default:
        arena_system_release(memory);
        return;
    }
}

const char *arena_memory_library(void)
{
    return arena_system_library();
}

void arena_memory_copy_past_caches(void *dest, const void *src, uint64_t bytes)
{
    pmem_memcpy(dest, src, bytes, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
}

void arena_memory_drain(void)
{
    pmem_drain();
}
