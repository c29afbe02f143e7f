/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_group.h: groups of trainers (embtier.h). */
#ifndef EMBTIER_GROUP_H
#define EMBTIER_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Trainers of one model, each with its own part of every batch (data parallel), are the members of
 * a group. A step of the group is one push of each member. The server reduces each push to one
 * gradient for each of its rows. It adds up the members' gradients in the order of their numbers,
 * and runs the optimizer once for each row. The same pushes give the same bytes in any order of
 * arrival.
 *
 * The server answers a member's push when the step has been applied, and so after the pushes of all
 * members. Later requests of the connection wait behind it, so a lookup of the next step sees the
 * pushes of all members. A connection may be a member of several groups. All their members must
 * push to them in the same order, or they wait for each other. */
struct embtier_group_options {
    size_t struct_bytes; /* set by EMBTIER_GROUP_OPTIONS_INIT */
    const char *name;    /* rules as for a table's name; copied */
    uint32_t size;       /* members in all, 1 … EMBTIER_GROUP_MEMBERS_MAX */
    uint32_t member;     /* number of this member, 0 … size - 1 */
    uint64_t step;       /* the last step that is done, the same for all; 0: none */
};
#define EMBTIER_GROUP_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct embtier_group_options), NULL, 0, 0, 0                                        \
    }

/* Joins a group, and makes it if this is its first member. The call does not wait for the others;
 * pushes do. The membership ends with the session, or by embtier_group_leave(). Then the group is
 * broken: pushes of the others fail with GROUP_BROKEN, waiting ones at once. The name is free, so
 * all of them can join again.
 *
 * INVALID: options not as above, or a connection without an arena. MISMATCH: the group has another
 * size, or is at another step. EXISTS: the number is taken, or this session is already a member.
 * GROUP_FULL: the group already has all its members. TOO_LARGE: this session has joined too many
 * groups. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_group_join(struct embtier *server, const struct embtier_group_options *options,
                   struct embtier_group **ret_group);
/* Ends the membership and breaks the group, as the end of the session would. The handle and its
 * step stay. NO_GROUP: the membership has ended with its session. DISCONNECTED, PROTOCOL. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_group_leave(struct embtier_group *group);
/* Forgets the handle; the session stays a member. NULL is allowed. */
EMBTIER_PUBLIC void embtier_group_free(struct embtier_group *group);
EMBTIER_PUBLIC const char *embtier_group_name(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_size(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_member(const struct embtier_group *group);
/* Returns the last step that this connection knows to be done. It is the join's, then that of this
 * member's last successful push whose result has been seen. */
EMBTIER_PUBLIC uint64_t embtier_group_step(const struct embtier_group *group);

/* Makes GETs, SETs and pooled lookups of @batch belong to @step of @group, until the next call.
 * NULL: they belong to no group. The server refuses them with GROUP_STEP if this member has not
 * pushed the step before. So they see the rows after all steps before @step, or fail. NO_GROUP.
 * INVALID: @group belongs to another connection, or @step is over 2^53 - 1. BUSY in flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_group(struct embtier_batch *batch, struct embtier_group *group, uint64_t step);

/* Returns the number of the member that caused the batch's last result, for GROUP_REFUSED,
 * GROUP_BROKEN and the TIMEOUT of a push; else UINT32_MAX. */
EMBTIER_PUBLIC uint32_t embtier_batch_blamed_member(const struct embtier_batch *batch);
/* Returns the error for which that member's push was refused, after GROUP_REFUSED; else OK. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_blamed_err(const struct embtier_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
