/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer_memory.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"

struct transfer_memory {
    uint64_t bytes;
    pthread_mutex_t lock; /* of what follows */
    struct transfer_share *shares;
    uint64_t used_bytes; /* what is given is free before it is taken again */
};

enum embtier_err transfer_memory_new(uint64_t bytes, struct transfer_memory **ret_memory,
                                     struct err_msg *msg)
{
    struct transfer_memory *const memory = calloc(1, sizeof(*memory));

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "memory of exports and imports: out of memory");
    memory->bytes = bytes;
    pthread_mutex_init(&memory->lock, NULL);
    *ret_memory = memory;
    return EMBTIER_OK;
}

void transfer_memory_free(struct transfer_memory *memory)
{
    if (!memory)
        return;
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static uint64_t users_bytes(const struct transfer_memory *memory, uid_t uid)
{
    uint64_t bytes = 0;

    for (const struct transfer_share *share = memory->shares; share; share = share->next)
        bytes += share->uid == uid ? share->bytes : 0;
    return bytes;
}

static enum embtier_err check_room(const struct transfer_memory *memory, uid_t uid, uint64_t bytes,
                                   const char *what, struct err_msg *msg)
{
    const uint64_t users = users_bytes(memory, uid);

    if (bytes > memory->bytes)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s needs %s of memory, and all exports and imports together may have %s: "
                       "checkpoints.transfer_bytes has to be greater",
                       what, BYTES_TEXT(bytes), BYTES_TEXT(memory->bytes));
    if (bytes > memory->bytes - memory->used_bytes)
        return err_set(msg, EMBTIER_BUSY,
                       "%s needs %s of memory, and exports and imports have %s of the %s of "
                       "checkpoints.transfer_bytes: try again when one has ended",
                       what, BYTES_TEXT(bytes), BYTES_TEXT(memory->used_bytes),
                       BYTES_TEXT(memory->bytes));
    if (users > 0 && users + bytes > memory->bytes - memory->bytes / 4)
        return err_set(msg, EMBTIER_BUSY,
                       "%s needs %s of memory, and exports and imports of this user have %s: more "
                       "than three quarters of the %s of checkpoints.transfer_bytes are for nobody "
                       "alone; try again when one has ended",
                       what, BYTES_TEXT(bytes), BYTES_TEXT(users), BYTES_TEXT(memory->bytes));
    return EMBTIER_OK;
}

enum embtier_err transfer_memory_take(struct transfer_memory *memory, uid_t uid, uint64_t bytes,
                                      const char *what, struct transfer_share *share,
                                      struct err_msg *msg)
{
    enum embtier_err err;

    assert(share->bytes == 0);
    bytes = align_up(bytes, MIB);
    pthread_mutex_lock(&memory->lock);
    err = check_room(memory, uid, bytes, what, msg);
    if (err == EMBTIER_OK) {
        *share = (struct transfer_share){ .next = memory->shares, .bytes = bytes, .uid = uid };
        memory->shares = share;
        memory->used_bytes += bytes;
    }
    pthread_mutex_unlock(&memory->lock);
    return err;
}

enum embtier_err transfer_memory_probe(struct transfer_memory *memory, uid_t uid, uint64_t bytes,
                                       const char *what, struct err_msg *msg)
{
    struct transfer_share share = { 0 };

    TRY(transfer_memory_take(memory, uid, bytes, what, &share, msg));
    transfer_memory_give(memory, &share);
    return EMBTIER_OK;
}

void transfer_memory_give(struct transfer_memory *memory, struct transfer_share *share)
{
    struct transfer_share **at;

    if (share->bytes == 0)
        return;
    pthread_mutex_lock(&memory->lock);
    for (at = &memory->shares; *at != share; at = &(*at)->next)
        ;
    *at = share->next;
    memory->used_bytes -= share->bytes;
    pthread_mutex_unlock(&memory->lock);
    *share = (struct transfer_share){ 0 };
}

uint64_t transfer_memory_used(struct transfer_memory *memory)
{
    uint64_t bytes;

    pthread_mutex_lock(&memory->lock);
    bytes = memory->used_bytes;
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}
