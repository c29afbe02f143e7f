/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: a membership in a group of trainers, as requests use it. Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_GROUP_H
#define EMBTIER_CLIENT_LIB_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/include/embtier.h"

struct embtier_group {
    struct embtier *server;
    struct embtier_group *next;
    struct embtier_group *previous;
    uint64_t handle; /* 0: ended with its session */
    uint64_t step;   /* the last one known to be done */
    uint32_t size;
    uint32_t member;
    uint32_t users; /* batches and requests that name it */
    bool freed;     /* by the user; the struct lives on for its users */
    char name[EMBTIER_GROUP_NAME_MAX + 1];
};

/* Counts a batch or request that begins, or ceases, to name the group. NULL is allowed. */
void group_hold(struct embtier_group *group);
void group_release(struct embtier_group *group);

/* Checks a group that a request is about to name. INVALID: another connection's; NO_GROUP: it ended
 * with its session. */
MUST_CHECK enum embtier_err group_check(const struct embtier *server,
                                        const struct embtier_group *group, struct err_msg *msg);

void groups_end(struct embtier *server);  /* the session is over */
void groups_free(struct embtier *server); /* all of them */

#endif
