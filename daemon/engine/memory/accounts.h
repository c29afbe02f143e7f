/* SPDX-License-Identifier: Apache-2.0 */
/* accounts.h: what each user has of each thing that is finite, and how much one user may have.
 *
 * There is one account for each user id that has a connection, a transfer, a table or a checkpoint,
 * however many of them, and one row of ACCOUNT_TABLE for each thing. A row has a total and a rule
 * for one user. The rule is the shared one, of what others leave, a user may have three quarters;
 * or a number, where the configuration sets one (such as socket.max_user_sessions). By the shared
 * rule a user alone has three quarters, two of them settle at three sevenths each, and whoever
 * comes next always finds a quarter of what was free. Numbers are rounded in favour of the next
 * user, but one is had whole: of 5 there are 3, 1 and 1.
 *
 * Descriptors have no row: each session has at most SESSION_DESCRIPTORS
 * (config/config_descriptors.h), so that the row of sessions limits them too.
 *
 * Thread: accounts are opened and closed by any. The amounts of one row are changed by one thread
 * at a time, under the lock that the row names; any thread may read them. No lock is taken for them
 * here, as tickets are taken and given back in each push. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_ACCOUNTS_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* X(name, its name for users, word in messages, IN_BYTES or COUNTED, under which lock it is
 * changed) */
#define ACCOUNT_TABLE(X)                                                                           \
    X(SESSIONS, "sessions", "sessions", COUNTED)                    /* the control thread's */     \
    X(ARENA_BYTES, "arena_bytes", "shared memory", IN_BYTES)        /* the control thread's */     \
    X(TABLES, "tables", "tables", COUNTED)                          /* tables.c's lock */          \
    X(SCANS, "scans", "exports", COUNTED)                           /* the control thread's */     \
    X(LOADS, "loads", "imports", COUNTED)                           /* the control thread's */     \
    X(ANSWER_BYTES, "answer_bytes", "buffered messages", IN_BYTES)  /* the control thread's */     \
    X(TICKET_BYTES, "ticket_bytes", "memory of tickets", IN_BYTES)  /* ticket_memory.c's lock */   \
    X(PINNED_BYTES, "pinned_bytes", "prefetched rows", IN_BYTES)    /* the same */                 \
    X(GROUPS, "groups", "groups", COUNTED)                          /* group.c's lock */           \
    X(GROUP_MEMBERS, "group_members", "members of groups", COUNTED) /* group.c's lock */           \
    X(GROUP_BYTES, "group_bytes", "memory of pushes that wait", IN_BYTES) /* group.c's lock */     \
    X(TRANSFER_BYTES, "transfer_bytes", "memory of transfers",                                     \
      IN_BYTES)                                           /* transfer_memory.c's lock */           \
    X(CHECKPOINTS, "checkpoints", "checkpoints", COUNTED) /* checkpoint_owners.c's lock */

enum account_row {
#define X(name, key, word, unit) ACCOUNT_##name,
    ACCOUNT_TABLE(X)
#undef X
        ACCOUNT_ROWS
};

struct account;
struct accounts;

/* All rows begin with a total of 0. */
MUST_CHECK enum embtier_err accounts_new(struct accounts **ret_accounts, struct err_msg *msg);
/* With those that are open still: nobody uses them any more. */
void accounts_free(struct accounts *accounts);
DEFINE_CLEANUP(struct accounts, accounts_free)

/* As much may all users have together, and one user: 0 is the shared rule. Before it is used. */
void accounts_limit(struct accounts *accounts, enum account_row row, uint64_t all, uint64_t user);

/* The user's account, made if there is none; NULL: no memory. Each open is followed by a close; the
 * last one frees it, and all must have been given back. Any thread. */
struct account *account_open(struct accounts *accounts, uid_t uid);
/* NULL is allowed. */
void account_close(struct account *account);
DEFINE_CLEANUP(struct account, account_close)

enum account_answer {
    ACCOUNT_TAKEN,
    ACCOUNT_ALL_HAVE,  /* too much of it */
    ACCOUNT_USER_HAS,  /* its part of it */
    ACCOUNT_TOO_LARGE, /* it never fits */
};
/* Whether @amount more may be had. */
enum account_answer account_ask(const struct account *account, enum account_row row,
                                uint64_t amount);
/* Takes it if so. */
MUST_CHECK enum account_answer account_take(struct account *account, enum account_row row,
                                            uint64_t amount);
/* Takes it in any case: it is there already. */
void account_add(struct account *account, enum account_row row, uint64_t amount);
void account_give(struct account *account, enum account_row row, uint64_t amount);
/* BUSY, or TOO_LARGE, with a message that tells the limit, which @key sets. */
enum embtier_err account_refuse(const struct account *account, enum account_row row,
                                uint64_t amount, enum account_answer answer, const char *key,
                                struct err_msg *msg);

/* "arena_bytes", "shared memory"; whether it is bytes. */
const char *account_row_name(enum account_row row);
const char *account_row_word(enum account_row row);
bool account_row_is_bytes(enum account_row row);

uid_t account_uid(const struct account *account);
uint64_t account_has(const struct account *account, enum account_row row);
/* As much it may have now, what it has included. */
uint64_t account_part(const struct account *account, enum account_row row);
/* The part of the user of that number; 0: it has no account. Any thread. */
uint64_t accounts_part(struct accounts *accounts, uid_t uid, enum account_row row);
/* The words behind such a number in messages: ", three quarters of what others leave" or "". */
const char *account_rule(const struct account *account, enum account_row row);
uint64_t accounts_used(const struct accounts *accounts, enum account_row row);

/* What one user has. */
struct account_info {
    uid_t uid;
    uint64_t has[ACCOUNT_ROWS];
    uint64_t part[ACCOUNT_ROWS];
};
/* Of users with numbers from @from on, @most of them: a malloced array in order of these; and
 * whether there are more. */
MUST_CHECK enum embtier_err accounts_page(struct accounts *accounts, uint64_t from, uint32_t most,
                                          struct account_info **ret_infos, uint32_t *ret_count,
                                          bool *ret_more);

#endif
