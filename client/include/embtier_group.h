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
 * a group: what is a step for one trainer alone is one push of each member. Each push is reduced to
 * one gradient for each of its rows; these are added up in the order of the members' numbers, and
 * the optimizer runs once for each row. The same pushes give the same bytes, whoever comes first.
 *
 * A member's push is answered when the step has been applied, and so after the pushes of all;
 * requests of its connection that come later wait behind it, so that a lookup of the next step sees
 * what all members have pushed. A connection may be a member of several groups; all their members
 * push to them in the same order, else they wait for each other. */
struct embtier_group_options {
    size_t struct_bytes; /* set by EMBTIER_GROUP_OPTIONS_INIT */
    const char *name;    /* made as a table's is; copied */
    uint32_t size;       /* members in all, 1 … EMBTIER_GROUP_MEMBERS_MAX */
    uint32_t member;     /* which this is, 0 … size - 1 */
    uint64_t step;       /* the last that is done, the same for all; 0: none */
};
#define EMBTIER_GROUP_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct embtier_group_options), NULL, 0, 0, 0                                        \
    }

/* Does not wait for the others; pushes do. The membership ends with the session, or by
 * embtier_group_leave(). Then the group is broken: pushes of the others fail with GROUP_BROKEN,
 * those that wait do so at once, and the name is free for all of them to join anew.
 *
 * INVALID: options not as above, or a connection without an arena. MISMATCH: the group is of
 * another size, or at another step. EXISTS: the number is taken, or this session is a member
 * already. GROUP_FULL: all members are there. TOO_LARGE: this session has joined too many. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_group_join(struct embtier *server, const struct embtier_group_options *options,
                   struct embtier_group **ret_group);
/* Ends the membership, as the end of the session would: it breaks the group. The handle stays, and
 * its step. NO_GROUP: the membership has ended with its session. DISCONNECTED, PROTOCOL. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_group_leave(struct embtier_group *group);
/* Forgets the handle; the session stays a member. NULL is allowed. */
EMBTIER_PUBLIC void embtier_group_free(struct embtier_group *group);
EMBTIER_PUBLIC const char *embtier_group_name(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_size(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_member(const struct embtier_group *group);
/* The last step that is known here to be done: that of the joining, then that of this member's last
 * push which has succeeded and whose result has been seen. */
EMBTIER_PUBLIC uint64_t embtier_group_step(const struct embtier_group *group);

/* From now on GETs, SETs and pooled lookups of @batch are of @step of @group, until the next call;
 * NULL: of none. The server refuses them with GROUP_STEP if this member has not pushed the step
 * before: they see what all steps before @step have made of the rows, or fail. NO_GROUP. INVALID:
 * @group is another connection's, or @step over 2^53 - 1. BUSY in flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_group(struct embtier_batch *batch, struct embtier_group *group, uint64_t step);

/* The number of the member that the batch's last result is about: that of GROUP_REFUSED and
 * GROUP_BROKEN, and of the TIMEOUT of a push. Else UINT32_MAX. */
EMBTIER_PUBLIC uint32_t embtier_batch_blamed_member(const struct embtier_batch *batch);
/* After GROUP_REFUSED: what that member's push was refused for. Else OK. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_blamed_err(const struct embtier_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
