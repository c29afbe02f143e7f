/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_owners.h: which checkpoints there are and whose each is, in memory, so that nobody
 * reads the records of all of them for that. Those that users have made count in their accounts
 * (ACCOUNT_CHECKPOINTS), whether they are connected or not.
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
    bool is_damaged; /* its record cannot be read: so does it, and only the server's user and root
                        delete it */
};

/* Before one more is made by this user, who will then keep @keep of them at most (0: all): BUSY. */
MUST_CHECK enum embtier_err checkpoint_owners_ask(struct checkpoint_owners *owners, uid_t uid,
                                                  uint32_t keep, struct err_msg *msg);
/* One that is there; its id is greater than all. NO_MEMORY. */
MUST_CHECK enum embtier_err checkpoint_owners_add(struct checkpoint_owners *owners,
                                                  const struct checkpoint_owner *owner,
                                                  struct err_msg *msg);
/* Some that are there are not known: they are the server's. Thread: at the start. */
void checkpoint_owners_miss(struct checkpoint_owners *owners);
/* One that is not there any more; or is not known. */
void checkpoint_owners_remove(struct checkpoint_owners *owners, uint64_t id);
/* PERMISSION: @uid may not delete it, since it is another user's. One that is not known is OK. */
MUST_CHECK enum embtier_err checkpoint_owners_may_delete(struct checkpoint_owners *owners,
                                                         uint64_t id, uid_t uid,
                                                         struct err_msg *msg);
/* The newest of those older than @before that are the server's own (@automatic), or else @uid's:
 * false, there is none. */
bool checkpoint_owners_before(struct checkpoint_owners *owners, uint64_t before, bool automatic,
                              uid_t uid, uint64_t *ret_id);
/* Of all. */
uint64_t checkpoint_owners_newest(struct checkpoint_owners *owners);

#endif
