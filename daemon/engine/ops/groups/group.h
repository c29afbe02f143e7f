/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: trainers of one model, each with its own part of every batch (data parallel). The
 * gradients of a step are added up over all members, in the order of their numbers, and each row is
 * changed once. This is the local and global gradient reduction that the SmartNIC paper on DLRM
 * does in hardware. Each push is reduced by itself to one gradient per row, by the casting of its
 * ticket. Then these are added up.
 *
 * A group has a name and a number of members. A session becomes a member by a control message. A
 * group goes in rounds, with one push of each member:
 *
 *   gathering  pushes arrive, checked and reduced as far as casting goes. Each is the last
 *              thing that its session has under way; the session takes nothing more until the
 *              push is answered. A refused push counts as that member's part of the round, too.
 *   applying   all have arrived, and none was refused. Member 0's push leads: it updates the
 *              rows of all (push.h), on its home lane, as if it had come alone.
 *
 * If one push was refused, none is applied, all members are told, and the next round is for the
 * same step. A member that goes, or does not come in time, breaks the group. Waiting pushes and
 * later ones are refused, and the name is free for a new group. If that happens while a step is
 * applied, the step is finished first.
 *
 * A waiting push has little that others need: its own small block, its ticket, no wave, and no
 * table. So its tables can be dropped meanwhile; the step is then refused.
 *
 * Thread: any. One lock guards all groups. It is taken a few times a step, and its holder never
 * sleeps. A push that has arrived belongs to the group until it is sent back to its home lane
 * (message_lead, message_step_done). */
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

/* The most groups that a session may join while it lasts, broken ones included. */
#define SESSION_GROUPS_MAX 64

struct accounts;
struct group;
struct groups;
struct push;

struct group_member {
    struct group *group;
    struct groups *groups;
    struct group_member *next; /* the session's next membership */
    uint64_t handle;           /* session id << 32 | a rising number */
    uint32_t number;
    uint32_t refused;      /* its refused pushes whose round is not over yet */
    enum embtier_err last; /* why the last of these was refused */
    struct push *push;     /* its push that has arrived, behind those that were refused */
};

struct group_stats {
    uint64_t groups; /* groups that are not broken */
    uint64_t steps;  /* applied */
    uint64_t refused_steps;
    uint64_t broken_groups; /* broken during a step */
};

/* News to be logged of groups that broke while members waited: how many did, and the last one. */
struct group_news {
    uint32_t count;
    uint32_t member; /* the member that broke it, and why */
    enum embtier_err why;
    uint64_t step;
    char name[EMBTIER_GROUP_NAME_MAX + 1];
};

/* @wait_ns: how long a push waits for those of the others. @waiting_bytes_max: the request memory
 * that waiting pushes may have, all together. Limits the ACCOUNT_GROUP* rows of @accounts. A
 * quarter of a user's part of that memory is shared out among the members of all its groups. So
 * groups which never fill do not keep the pushes of others out. */
MUST_CHECK enum embtier_err groups_new(uint64_t wait_ns, uint64_t waiting_bytes_max,
                                       struct accounts *accounts, const struct clock *clock,
                                       struct groups **ret_groups, struct err_msg *msg);
/* Called when no session is left. */
void groups_free(struct groups *groups);
DEFINE_CLEANUP(struct groups, groups_free)

struct group_join {
    const char *name;
    uint64_t user; /* its account's number; each user has names of its own */
    uint32_t size;
    uint32_t member;
    uint64_t step; /* the last step that is done */
};
struct group_joined {
    uint64_t handle;
    uint64_t step;
    uint32_t members;
};
/* Makes the session a member. Control thread only. Errors: INVALID, EXISTS, GROUP_FULL, MISMATCH,
 * TOO_LARGE. */
MUST_CHECK enum embtier_err groups_join(struct groups *groups, struct session *session,
                                        const struct group_join *join,
                                        struct group_joined *ret_joined, struct err_msg *msg);
/* Breaks the group, if it is not broken yet. Control thread only. The membership counts toward the
 * session's limit until the session ends. NO_GROUP: the session has no such membership. */
MUST_CHECK enum embtier_err groups_leave(struct groups *groups, const struct session *session,
                                         uint64_t handle, struct group_joined *ret_left,
                                         struct err_msg *msg);
/* Frees a session's memberships. The control thread calls it before it frees the session. */
void groups_forget(struct session *session);
/* Changes @wait_ns for pushes that wait now, too; reads it. Any thread. */
void groups_set_wait_ns(struct groups *groups, uint64_t wait_ns);
uint64_t groups_wait_ns(struct groups *groups);
/* Breaks groups whose pushes have waited too long. The control thread calls it now and then. */
void groups_expire(struct groups *groups);
void groups_take_news(struct groups *groups, struct group_news *ret_news);
/* Breaks all groups when the server stops, so that no push waits any more. */
void groups_stop(struct groups *groups);
void groups_stats(struct groups *groups, struct group_stats *ret_stats);

/* ---- The session's home lane ---- */

/* Finds a membership. Errors: NO_GROUP, GROUP_BROKEN. */
MUST_CHECK enum embtier_err group_find(const struct session *session, uint64_t handle,
                                       struct group_member **ret_member,
                                       struct refusal *ret_refusal);
/* Returns the last step that is done. It does not change before the member's next push has
 * arrived. */
uint64_t group_step(const struct group_member *member);
/* Checks a request that may name a group: the group must be at the step that the request needs. A
 * push is for the next step; other requests are for that or an earlier one. *@ret_member is set if
 * there is one. */
MUST_CHECK enum embtier_err group_check(const struct session *session,
                                        const struct op_submission *submission, bool is_push,
                                        struct group_member **ret_member, struct refusal *refusal);
/* Hands a push that is ready to the group, which owns it from now on. GROUP_BROKEN, BUSY (too much
 * waits already): the group does not take it. *@ret_refusal is written only then, and may be the
 * push's own. */
MUST_CHECK enum embtier_err group_arrive(struct group_member *member, struct push *push,
                                         struct refusal *ret_refusal);
/* Notes that a push of the member was refused before it arrived. */
void group_refuse(struct group_member *member, enum embtier_err err);
/* Leaves all groups of a session that is ending. */
void group_leave_all(struct session *session);

/* ---- The lane that leads the step ---- */

uint32_t group_size(const struct group_member *member);
/* Returns member @number's push of the round that is being applied. */
struct push *group_push(const struct group_member *member, uint32_t number);
/* Ends the step. @refusal: OK, or why nothing was applied. If @is_begun, it says why only a part
 * was, which breaks the group. Sends all pushes back except the leader's. */
void group_end_step(struct group_member *leader, const struct refusal *refusal, bool is_begun,
                    uint64_t hit_rows);

#endif
