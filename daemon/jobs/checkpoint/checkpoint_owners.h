/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_owners.h: keeps in memory which checkpoints exist and which user owns each, so that no
 * caller reads all their records for that. Checkpoints that users made count in their accounts
 * (ACCOUNT_CHECKPOINTS), whether the users are connected or not.
 *
 * Thread: any. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_OWNERS_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_CHECKPOINT_OWNERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct accounts;
struct checkpoint_owners;

MUST_CHECK enum embtier_err checkpoint_owners_new(struct accounts *accounts,
                                                  struct checkpoint_owners **ret_owners,
                                                  struct err_msg *msg);
void checkpoint_owners_free(struct checkpoint_owners *owners);
DEFINE_CLEANUP(struct checkpoint_owners, checkpoint_owners_free)

struct checkpoint_owner {
    uint64_t id; /* of the checkpoint */
    uid_t uid;
    bool automatic;  /* one of the server's own: counts in no account */
    bool passes;     /* the same, for a move of buckets: counts among none that are kept */
    bool is_damaged; /* its record cannot be read: counts in no account either, and only root and
                        the server's user may delete it */
};

/* Checks that this user may make one more checkpoint. It keeps at most @keep of its own after that
 * (0: all). BUSY: it may not. */
MUST_CHECK enum embtier_err checkpoint_owners_ask(struct checkpoint_owners *owners, uid_t uid,
                                                  uint32_t keep, struct err_msg *msg);
/* Adds an existing checkpoint, whose id is greater than all known ones. NO_MEMORY. */
MUST_CHECK enum embtier_err checkpoint_owners_add(struct checkpoint_owners *owners,
                                                  const struct checkpoint_owner *owner,
                                                  struct err_msg *msg);
/* Notes, at the start, that some existing checkpoints are unknown; these count as the server's. */
void checkpoint_owners_miss(struct checkpoint_owners *owners);
/* Removes a checkpoint that no longer exists. An unknown id is allowed. */
void checkpoint_owners_remove(struct checkpoint_owners *owners, uint64_t id);
/* PERMISSION: the checkpoint is another user's, so @uid may not delete it. An unknown one is OK,
 * except after checkpoint_owners_miss(). */
MUST_CHECK enum embtier_err checkpoint_owners_may_delete(struct checkpoint_owners *owners,
                                                         uint64_t id, uid_t uid,
                                                         struct err_msg *msg);
/* Finds the newest undamaged checkpoint older than @before that is the server's own (@automatic),
 * or else @uid's. False: there is none. */
bool checkpoint_owners_before(struct checkpoint_owners *owners, uint64_t before, bool automatic,
                              uid_t uid, uint64_t *ret_id);
bool checkpoint_owners_passes(struct checkpoint_owners *owners, uint64_t id);
/* Returns the newest id of all; 0: there is none. */
uint64_t checkpoint_owners_newest(struct checkpoint_owners *owners);

#endif
