/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/arena/arena_system.h"

#include <errno.h>
#include <memkind.h>
#include <string.h>

#include "tiers/arena/arena.h"

static memkind_t kind_of(enum tier_kind kind)
{
    return kind == TIER_KIND_DRAM_HUGE ? MEMKIND_HUGETLB : MEMKIND_DEFAULT;
}

enum embtier_err arena_system_reserve(const struct tier_spec *spec, uint64_t bytes,
                                      struct arena_memory *ret_memory, struct err_msg *msg)
{
    const bool is_huge = spec->kind == TIER_KIND_DRAM_HUGE;
    memkind_t kind = kind_of(spec->kind);
    void *base = NULL;
    int rc;

    if (is_huge && memkind_check_available(kind) != MEMKIND_SUCCESS)
        return err_set(
            msg, EMBTIER_UNSUPPORTED,
            "tier %s: this machine has no memory of kind dram_huge; is vm.nr_hugepages set?",
            spec->name);
    rc = memkind_posix_memalign(kind, &base, ARENA_SLAB_BYTES, bytes);
    if (rc || !base)
        return err_set(msg, EMBTIER_NO_MEMORY, "tier %s: cannot reserve %llu bytes%s: %s",
                       spec->name, (unsigned long long)bytes,
                       is_huge ? " of huge pages (vm.nr_hugepages)" : "",
                       strerror(rc ? rc : ENOMEM));
    *ret_memory = (struct arena_memory){ .base = base, .bytes = bytes, .kind = spec->kind };
    return EMBTIER_OK;
}

void arena_system_release(struct arena_memory *memory)
{
    memkind_free(kind_of(memory->kind), memory->base);
}

const char *arena_system_library(void)
{
    return "memkind";
}
