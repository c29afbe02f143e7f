/* SPDX-License-Identifier: Apache-2.0 */
/* reserved.h: memory that is there from the start: mapped, zeroed and touched. So the budget is
 * used up before the server says that it is ready, and no page fault comes later. malloc() and
 * memset() do not promise that: the compiler makes a calloc() of the two, which leaves pages
 * untouched. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_RESERVED_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_RESERVED_H

#include <stdint.h>
#include <sys/mman.h>

/* Returns whole pages, or NULL with errno if there is not enough memory. */
static inline void *reserved_new(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static inline void reserved_free(void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

#endif
