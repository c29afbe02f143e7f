/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/checkpoint_owners.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/user_number.h"
#include "daemon/engine/memory/accounts.h"

struct known {
    struct checkpoint_owner owner;
    struct account *account; /* in which it counts, open as long as it does; or NULL */
};

struct checkpoint_owners {
    struct accounts *accounts;
    pthread_mutex_t lock; /* protects all below, and the accounts' row of checkpoints */
    struct known *known;  /* in order of ids */
    uint32_t count;
    uint32_t capacity;
    bool misses_some; /* set once, before there are other threads */
};

enum embtier_err checkpoint_owners_new(struct accounts *accounts,
                                       struct checkpoint_owners **ret_owners, struct err_msg *msg)
{
    struct checkpoint_owners *const owners = calloc(1, sizeof(*owners));

    if (!owners)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    owners->accounts = accounts;
    pthread_mutex_init(&owners->lock, NULL);
    *ret_owners = owners;
    return EMBTIER_OK;
}

/* Locked. */
static void forget(struct known *known)
{
    if (!known->account)
        return;
    account_give(known->account, ACCOUNT_CHECKPOINTS, 1);
    account_close(known->account);
}

void checkpoint_owners_free(struct checkpoint_owners *owners)
{
    if (!owners)
        return;
    for (uint32_t i = 0; i < owners->count; i++)
        forget(&owners->known[i]);
    pthread_mutex_destroy(&owners->lock);
    free(owners->known);
    free(owners);
}

/* ---- How many ---- */

/* Locked. A user at its limit may make one more if it keeps fewer than it has, because its oldest
 * are then deleted. That may fail, so a user over its part may not: it is over by at most one. */
static enum embtier_err ask(const struct account *account, uint32_t keep, struct err_msg *msg)
{
    const uint64_t has = account_has(account, ACCOUNT_CHECKPOINTS);
    const enum account_answer answer = account_ask(account, ACCOUNT_CHECKPOINTS, 1);

    if (answer == ACCOUNT_TAKEN)
        return EMBTIER_OK;
    if (keep > 0 && keep < has && account_ask(account, ACCOUNT_CHECKPOINTS, 0) == ACCOUNT_TAKEN)
        return EMBTIER_OK;
    if (answer == ACCOUNT_USER_HAS)
        return err_set(msg, EMBTIER_BUSY,
                       "your user has %" PRIu64 " checkpoints, and may have at most %" PRIu64
                       "%s (checkpoints.max_user_checkpoints): delete some (`embtier checkpoint "
                       "delete`), or keep fewer (--keep)",
                       has, account_part(account, ACCOUNT_CHECKPOINTS),
                       account_rule(account, ACCOUNT_CHECKPOINTS));
    return account_refuse(account, ACCOUNT_CHECKPOINTS, 1, answer, "checkpoints.max_checkpoints",
                          msg);
}

enum embtier_err checkpoint_owners_ask(struct checkpoint_owners *owners, uid_t uid, uint32_t keep,
                                       struct err_msg *msg)
{
    struct account *const account = account_open(owners->accounts, uid);
    enum embtier_err err;

    if (!account)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    pthread_mutex_lock(&owners->lock);
    err = ask(account, keep, msg);
    pthread_mutex_unlock(&owners->lock);
    account_close(account);
    return err;
}

/* ---- Which ---- */

/* Locked. */
static bool grow(struct checkpoint_owners *owners)
{
    const uint32_t capacity = 2 * owners->capacity + 16;
    struct known *known;

    if (owners->count < owners->capacity)
        return true;
    known = realloc(owners->known, capacity * sizeof(*known));
    if (!known)
        return false;
    owners->known = known;
    owners->capacity = capacity;
    return true;
}

enum embtier_err checkpoint_owners_add(struct checkpoint_owners *owners,
                                       const struct checkpoint_owner *owner, struct err_msg *msg)
{
    const bool counts = !owner->automatic && !owner->is_damaged;
    struct account *const account = counts ? account_open(owners->accounts, owner->uid) : NULL;
    bool grown;

    pthread_mutex_lock(&owners->lock);
    grown = (account || !counts) && grow(owners);
    if (grown)
        owners->known[owners->count++] = (struct known){ .owner = *owner, .account = account };
    if (grown && account)
        account_add(account, ACCOUNT_CHECKPOINTS, 1);
    pthread_mutex_unlock(&owners->lock);
    if (grown)
        return EMBTIER_OK;
    account_close(account);
    return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
}

/* Locked. */
static struct known *find(struct checkpoint_owners *owners, uint64_t id)
{
    for (uint32_t i = 0; i < owners->count; i++)
        if (owners->known[i].owner.id == id)
            return &owners->known[i];
    return NULL;
}

void checkpoint_owners_miss(struct checkpoint_owners *owners)
{
    owners->misses_some = true;
}

void checkpoint_owners_remove(struct checkpoint_owners *owners, uint64_t id)
{
    struct known *known;

    pthread_mutex_lock(&owners->lock);
    known = find(owners, id);
    if (known) {
        forget(known);
        owners->count--;
        memmove(known, known + 1, (size_t)(owners->known + owners->count - known) * sizeof(*known));
    }
    pthread_mutex_unlock(&owners->lock);
}

enum embtier_err checkpoint_owners_may_delete(struct checkpoint_owners *owners, uint64_t id,
                                              uid_t uid, struct err_msg *msg)
{
    const bool may_all = uid == 0 || uid == geteuid();
    struct checkpoint_owner owner = { .uid = uid };
    const struct known *known;

    pthread_mutex_lock(&owners->lock);
    known = find(owners, id);
    if (known)
        owner = known->owner;
    else if (owners->misses_some)
        owner.uid = geteuid();
    pthread_mutex_unlock(&owners->lock);
    if (may_all || (owner.uid == uid && !owner.is_damaged))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "checkpoint %" PRIu64
                   " belongs to %s: only that user, root and the server's user may delete it",
                   id, USER_NUMBER(owner.uid));
}

bool checkpoint_owners_before(struct checkpoint_owners *owners, uint64_t before, bool automatic,
                              uid_t uid, uint64_t *ret_id)
{
    bool found = false;

    pthread_mutex_lock(&owners->lock);
    for (uint32_t i = owners->count; i-- > 0 && !found;) {
        const struct checkpoint_owner *const owner = &owners->known[i].owner;

        found = owner->id < before && !owner->is_damaged && owner->automatic == automatic &&
                (automatic || owner->uid == uid);
        if (found)
            *ret_id = owner->id;
    }
    pthread_mutex_unlock(&owners->lock);
    return found;
}

bool checkpoint_owners_passes(struct checkpoint_owners *owners, uint64_t id)
{
    const struct known *known;
    bool passes;

    pthread_mutex_lock(&owners->lock);
    known = find(owners, id);
    passes = known && known->owner.passes;
    pthread_mutex_unlock(&owners->lock);
    return passes;
}

uint64_t checkpoint_owners_newest(struct checkpoint_owners *owners)
{
    uint64_t id = 0;

    pthread_mutex_lock(&owners->lock);
    if (owners->count > 0)
        id = owners->known[owners->count - 1].owner.id;
    pthread_mutex_unlock(&owners->lock);
    return id;
}
