/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: trainers of one model, each with its own part of every batch (data parallel): the
 * gradients of a step are added up over all members, in the order of their numbers, and each row is
 * changed once. What the SmartNIC paper on DLRM has its hardware do, local
 * and global gradient reduction: each push is reduced to one gradient per row by itself, by the
 * casting of its ticket, then these are added up.
 *
 * A group has a name and a number of members, which sessions become by a control message. It goes
 * in rounds, of one push of each member:
 *
 *   gathering  pushes arrive, checked, reduced as far as casting goes, and each the last thing that
 *              its session has under way; a session takes nothing more until its push is answered.
 *              One that is refused is that member's part of the round, too.
 *   applying   all have arrived, and none was refused: member 0's push leads, and updates the rows
 *              of all (push.h), on its home lane, as if it had come alone
 *
 * If one was refused nobody's is applied, all are told, and the next round is for the same step.
 * A member that goes, or does not come in time, breaks the group: what waits is refused, so is
 * what comes after, and the name is free for the group to be joined anew. If that is while a step
 * is applied the step is finished first.
 *
 * A push that waits has little that others need: its own small block, its ticket, no wave, and no
 * table, which can be dropped meanwhile: the step is then refused.
 *
 * Thread: any; one lock for all groups, which is taken a few times a step and never slept in. A
 * push that has arrived is the group's until it is sent back to its home lane (MESSAGE_LEAD,
 * MESSAGE_STEP_DONE). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_GROUPS_GROUP_H
#define EMBTIER_DAEMON_ENGINE_OPS_GROUPS_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/embtier_types.h"
#include "base/err.h"
#include "daemon/engine/rows/request.h"

/* That a session may join while it lasts, broken ones included. */
#define SESSION_GROUPS_MAX 64

struct accounts;
struct group;
struct groups;
struct push;

struct group_member {
    struct group *group;
    struct groups *groups;
    struct group_member *next; /* of the session's */
    uint64_t handle;           /* session id << 32 | a number that rises */
    uint32_t number;
    uint32_t refused;      /* pushes of it that were, and whose round is not over yet */
    enum embtier_err last; /* why the last of these was */
    struct push *push;     /* that has arrived; after those that were refused */
};

struct group_stats {
    uint64_t groups; /* that are not broken */
    uint64_t steps;  /* applied */
    uint64_t refused_steps;
    uint64_t broken_groups; /* in a step */
};

/* What is to be logged of groups that broke while members waited: how many, and the last of them.
 */
struct group_news {
    uint32_t count;
    uint32_t member; /* by which, and why */
    enum embtier_err why;
    uint64_t step;
    char name[EMBTIER_GROUP_NAME_MAX + 1];
};

/* @wait_ns: how long a push waits for those of the others. @waiting_bytes_max: how much of request
 * memory those that wait may have, all together. Limits the rows of groups of @accounts: of its
 * user's part of that memory a quarter is shared out among the members of all its groups, so that
 * groups which never fill do not keep the pushes of others out. */
MUST_CHECK enum embtier_err groups_new(uint64_t wait_ns, uint64_t waiting_bytes_max,
                                       struct accounts *accounts, const struct clock *clock,
                                       struct groups **ret_groups, struct err_msg *msg);
/* When no session is left. */
void groups_free(struct groups *groups);
DEFINE_CLEANUP(struct groups, groups_free)

struct group_join {
    const char *name;
    uid_t uid; /* names are each user's own */
    uint32_t size;
    uint32_t member;
    uint64_t step; /* the last that is done */
};
struct group_joined {
    uint64_t handle;
    uint64_t step;
    uint32_t members;
};
/* The control thread. INVALID, EXISTS, GROUP_FULL, MISMATCH, TOO_LARGE. */
MUST_CHECK enum embtier_err groups_join(struct groups *groups, struct session *session,
                                        const struct group_join *join,
                                        struct group_joined *ret_joined, struct err_msg *msg);
/* The control thread. Breaks the group, if it is not broken yet; the membership counts to the
 * session's until that ends. NO_GROUP: the session has no such membership. */
MUST_CHECK enum embtier_err groups_leave(struct groups *groups, const struct session *session,
                                         uint64_t handle, struct group_joined *ret_left,
                                         struct err_msg *msg);
/* The control thread, before it frees a session. */
void groups_forget(struct session *session);
/* The control thread, now and then: breaks groups whose pushes have waited too long. */
void groups_expire(struct groups *groups);
void groups_take_news(struct groups *groups, struct group_news *ret_news);
/* The server stops: nobody waits any more. */
void groups_stop(struct groups *groups);
void groups_stats(struct groups *groups, struct group_stats *ret_stats);

/* ---- The session's home lane ---- */

/* NO_GROUP, GROUP_BROKEN. */
MUST_CHECK enum embtier_err group_find(const struct session *session, uint64_t handle,
                                       struct group_member **ret_member,
                                       struct refusal *ret_refusal);
/* The last that is done. It does not change before the member's next push has arrived. */
uint64_t group_step(const struct group_member *member);
/* For a request that names a group: whether the group is where the request's step needs it to be. A
 * push is the next step's; others may be of that step, too. Sets *@ret_member if there is one. */
MUST_CHECK enum embtier_err group_check(const struct session *session,
                                        const struct shm_submission *submission, bool is_push,
                                        struct group_member **ret_member, struct refusal *refusal);
/* The push is ready, and the group's from now on. GROUP_BROKEN, BUSY (too much waits already): it
 * is not. *@ret_refusal is written in that case only, and may be the push's own. */
MUST_CHECK enum embtier_err group_arrive(struct group_member *member, struct push *push,
                                         struct refusal *ret_refusal);
/* A push of the member was refused before it arrived. */
void group_refuse(struct group_member *member, enum embtier_err err);
/* The session is ending. */
void group_leave_all(struct session *session);

/* ---- The lane that leads the step ---- */

uint32_t group_size(const struct group_member *member);
/* Of the round that is being applied. */
struct push *group_push(const struct group_member *member, uint32_t number);
/* The step is over: OK, or why nothing was applied; or if @is_begun, why only a part was, which
 * breaks the group. Sends all pushes but the leader's back. */
void group_end_step(struct group_member *leader, const struct refusal *refusal, bool is_begun,
                    uint64_t hit_rows);

#endif
