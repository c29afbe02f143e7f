/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/request_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <memkind.h>
#include <stdlib.h>
#include <sys/mman.h>

/* memkind refuses smaller regions. */
#define REGION_BYTES_MIN (16 * MIB)
/* 32-bit links of 8 bytes each. */
#define REGION_BYTES_MAX (UINT64_C(32) << 30)

struct request_memory {
    uint8_t *base;
    uint64_t bytes;
    memkind_t kind;
};

enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                    struct err_msg *msg)
{
    _cleanup_(request_memory_freep) struct request_memory *memory = calloc(1, sizeof(*memory));
    int rc;

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "request memory: out of memory");
    bytes = MIN(bytes, REGION_BYTES_MAX);
    bytes = align_up(MAX(bytes, REGION_BYTES_MIN), 2 * MIB);
    memory->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory->base == MAP_FAILED) {
        memory->base = NULL;
        return err_set_errno(msg, errno, "request memory: cannot reserve %" PRIu64 " bytes", bytes);
    }
    memory->bytes = bytes;
    rc = memkind_create_fixed(memory->base, bytes, &memory->kind);
    if (rc != 0) {
        memory->kind = NULL;
        return err_set(msg, EMBTIER_NO_MEMORY, "request memory: memkind error %d", rc);
    }
    *ret_memory = TAKE(memory);
    return EMBTIER_OK;
}

void request_memory_free(struct request_memory *memory)
{
    if (!memory)
        return;
    if (memory->kind)
        memkind_destroy_kind(memory->kind);
    if (memory->base)
        munmap(memory->base, memory->bytes);
    free(memory);
}

void *request_memory_take(struct request_memory *memory, uint64_t bytes)
{
    return memkind_malloc(memory->kind, bytes);
}

void request_memory_give(struct request_memory *memory, void *block)
{
    memkind_free(memory->kind, block);
}

uint64_t request_memory_largest(const struct request_memory *memory)
{
    return memory->bytes /
           2; /* memkind keeps some for itself, and blocks are not always in one piece */
}

uint8_t *request_memory_base(const struct request_memory *memory)
{
    return memory->base;
}
