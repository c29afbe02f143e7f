/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/arena/arena_system.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mman.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"

#define HUGE_PAGES "/sys/kernel/mm/hugepages/hugepages-2048kB/"

_Static_assert(ARENA_SLAB_BYTES == 2 * MIB, "huge pages are as large as slabs, and so aligned");

static uint64_t number_in(const char *path)
{
    FILE *const file = fopen(path, "re");
    uint64_t number = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &number) != 1)
        number = 0;
    fclose(file);
    return number;
}

static bool has_huge_pages(void)
{
    return number_in(HUGE_PAGES "nr_hugepages") + number_in(HUGE_PAGES "nr_overcommit_hugepages") >
           0;
}

enum embtier_err arena_system_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    const bool is_huge = spec->kind == TIER_KIND_DRAM_HUGE;
    /* The kernel aligns only to pages: if these are smaller than a slab, map one slab more. */
    const uint64_t mapping_bytes = is_huge ? bytes : bytes + ARENA_SLAB_BYTES;
    void *mapping;

    if (is_huge && !has_huge_pages())
        return err_set(msg, EMBTIER_UNSUPPORTED,
                       "tier %s: this machine has no memory of kind dram_huge; is " HUGE_PAGES
                       "nr_hugepages set?",
                       spec->name);
    mapping =
        mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (is_huge ? MAP_HUGETLB | MAP_HUGE_2MB : MAP_NORESERVE),
             -1, 0);
    if (mapping == MAP_FAILED)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: cannot reserve %" PRIu64 " bytes%s: %s",
                       spec->name, bytes, is_huge ? " of huge pages (vm.nr_hugepages)" : "",
                       strerror(errno));
    *ret_memory = (struct arena_memory){
        .base = (void *)align_up((uintptr_t)mapping, ARENA_SLAB_BYTES),
        .bytes = bytes,
        .kind = spec->kind,
        .mapping = mapping,
        .mapping_bytes = mapping_bytes,
    };
    return EMBTIER_OK;
}

void arena_system_release(struct arena_memory *memory)
{
    munmap(memory->mapping, memory->mapping_bytes);
}

const char *arena_system_library(void)
{
    return "mmap";
}
