/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/transfer/transfer_memory.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/text/bytes.h"
#include "config/config.h"
#include "daemon/engine/memory/accounts.h"

struct transfer_memory {
    uint64_t bytes;
    struct accounts *accounts;
    pthread_mutex_t lock; /* protects ACCOUNT_TRANSFER_BYTES */
};

enum embtier_err transfer_memory_new(uint64_t bytes, struct accounts *accounts,
                                     struct transfer_memory **ret_memory, struct err_msg *msg)
{
    struct transfer_memory *const memory = calloc(1, sizeof(*memory));

    if (!memory)
        return err_set(msg, EMBTIER_NO_MEMORY, "memory of exports and imports: out of memory");
    memory->bytes = bytes;
    memory->accounts = accounts;
    accounts_limit(accounts, ACCOUNT_TRANSFER_BYTES, bytes, 0);
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

/* A user that has nothing may have all that is free: less than one export needs is of no use. */
static enum embtier_err check_room(const struct transfer_memory *memory,
                                   const struct account *account, uint64_t bytes, const char *what,
                                   struct err_msg *msg)
{
    const uint64_t users = account_has(account, ACCOUNT_TRANSFER_BYTES);
    const enum account_answer answer = account_ask(account, ACCOUNT_TRANSFER_BYTES, bytes);

    if (answer == ACCOUNT_TOO_LARGE)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s needs %s of memory, and all exports and imports together may have %s: "
                       "raise checkpoints.transfer_bytes",
                       what, BYTES_TEXT(bytes), BYTES_TEXT(memory->bytes));
    if (answer == ACCOUNT_ALL_HAVE)
        return err_set(msg, EMBTIER_BUSY,
                       "%s needs %s of memory, and exports and imports already have %s of the %s "
                       "of checkpoints.transfer_bytes: try again when one has ended",
                       what, BYTES_TEXT(bytes),
                       BYTES_TEXT(accounts_used(memory->accounts, ACCOUNT_TRANSFER_BYTES)),
                       BYTES_TEXT(memory->bytes));
    if (users > 0 && answer == ACCOUNT_USER_HAS)
        return err_set(
            msg, EMBTIER_BUSY,
            "%s needs %s of memory, and transfers of this user already have %s: a user may "
            "have three quarters of what others leave of the %s of "
            "checkpoints.transfer_bytes; try again when one has ended",
            what, BYTES_TEXT(bytes), BYTES_TEXT(users), BYTES_TEXT(memory->bytes));
    return EMBTIER_OK;
}

enum embtier_err transfer_memory_take(struct transfer_memory *memory, uint64_t user, uint64_t bytes,
                                      const char *what, struct transfer_share *share,
                                      struct err_msg *msg)
{
    struct account *const account = account_open(memory->accounts, user);
    enum embtier_err err;

    assert(share->bytes == 0);
    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", what);
    bytes = align_up(MIN(bytes, UINT64_MAX - MIB), MIB);
    pthread_mutex_lock(&memory->lock);
    err = check_room(memory, account, bytes, what, msg);
    if (err == EMBTIER_OK)
        account_add(account, ACCOUNT_TRANSFER_BYTES, bytes);
    pthread_mutex_unlock(&memory->lock);
    if (err == EMBTIER_OK)
        *share = (struct transfer_share){ .account = account, .bytes = bytes };
    else
        account_close(account);
    return err;
}

enum embtier_err transfer_memory_probe(struct transfer_memory *memory, uint64_t user,
                                       uint64_t bytes, const char *what, struct err_msg *msg)
{
    struct transfer_share share = { 0 };

    TRY(transfer_memory_take(memory, user, bytes, what, &share, msg));
    transfer_memory_give(memory, &share);
    return EMBTIER_OK;
}

void transfer_memory_give(struct transfer_memory *memory, struct transfer_share *share)
{
    if (share->bytes == 0)
        return;
    pthread_mutex_lock(&memory->lock);
    account_give(share->account, ACCOUNT_TRANSFER_BYTES, share->bytes);
    pthread_mutex_unlock(&memory->lock);
    account_close(share->account);
    *share = (struct transfer_share){ 0 };
}

uint64_t transfer_memory_used(struct transfer_memory *memory)
{
    return accounts_used(memory->accounts, ACCOUNT_TRANSFER_BYTES);
}
