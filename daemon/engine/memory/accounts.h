/* SPDX-License-Identifier: Apache-2.0 */
/* accounts.h: how much each user has of each limited resource, and how much one user may have.
 *
 * A user is a number: a Unix user's id, or that of a user of the access file, which is greater than
 * all ids (daemon/access/access.h). Each user that has a connection, a transfer, a table or a
 * checkpoint has one account, however many of these it has. ACCOUNT_TABLE has one row for each
 * resource. A row has a total and a rule for one user. Where the configuration sets a number (such
 * as socket.max_user_sessions), the rule is that number. Otherwise it is the shared rule: a user
 * may have three quarters of the amount that others leave. By the shared rule a user alone has
 * three quarters, and two users settle at three sevenths each. The next user always finds a quarter
 * of the amount that was free. Numbers are rounded in favour of the next user, but a last one is
 * not divided: of 5, users get 3, 1 and 1.
 *
 * Descriptors have no row. Each session has at most SESSION_DESCRIPTORS
 * (config/config_descriptors.h), so the row of sessions limits them too.
 *
 * Thread: any thread may open and close accounts. One thread at a time changes the amounts of a
 * row, under the lock that the row names; any thread may read them. The accounts take no lock for
 * amounts, because every push takes and gives back tickets. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_ACCOUNTS_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* X(name, name for users, word in messages, IN_BYTES or COUNTED); behind it, the thread or the lock
 * that changes the row */
#define ACCOUNT_TABLE(X)                                                                           \
    X(SESSIONS, "sessions", "sessions", COUNTED)                    /* the control thread */       \
    X(ARENA_BYTES, "arena_bytes", "shared memory", IN_BYTES)        /* the control thread */       \
    X(TABLES, "tables", "tables", COUNTED)                          /* tables.c's lock */          \
    X(SCANS, "scans", "exports", COUNTED)                           /* the control thread */       \
    X(LOADS, "loads", "imports", COUNTED)                           /* the control thread */       \
    X(ANSWER_BYTES, "answer_bytes", "buffered messages", IN_BYTES)  /* the control thread */       \
    X(TICKET_BYTES, "ticket_bytes", "memory of tickets", IN_BYTES)  /* ticket_memory.c's lock */   \
    X(PINNED_BYTES, "pinned_bytes", "prefetched rows", IN_BYTES)    /* ticket_memory.c's lock */   \
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

/* The total of each row is 0 at first. */
MUST_CHECK enum embtier_err accounts_new(struct accounts **ret_accounts, struct err_msg *msg);
/* Also frees accounts that are still open; no thread uses them any more. */
void accounts_free(struct accounts *accounts);
DEFINE_CLEANUP(struct accounts, accounts_free)

/* Sets how much all users together may have, and how much one user may have; 0 is the shared rule.
 * To be called before the row is used, and later to change the limits for what is taken from then
 * on. Any thread. */
void accounts_limit(struct accounts *accounts, enum account_row row, uint64_t all, uint64_t user);
/* Returns what all users together may have; *@ret_user as in accounts_limit(). */
uint64_t accounts_limit_of(const struct accounts *accounts, enum account_row row,
                           uint64_t *ret_user);

/* Returns what one user may have while others have nothing, quotas aside. */
uint64_t accounts_part_alone(const struct accounts *accounts, enum account_row row);

/* Limits the user further in one row; 0: it does not. The limit holds until the account is freed,
 * for what is taken from now on. Any thread. */
void account_set_quota(struct account *account, enum account_row row, uint64_t most);
/* Returns the key that sets the user's limit, for messages: @key, or the access file's if its quota
 * is less. */
const char *account_key(const struct account *account, enum account_row row, const char *key);

/* Returns the user's account, made if there is none, or NULL if there is no memory. Each open is
 * followed by a close. The last close frees the account; all amounts must have been given back by
 * then. Any thread. */
struct account *account_open(struct accounts *accounts, uint64_t user);
/* NULL is allowed. */
void account_close(struct account *account);
DEFINE_CLEANUP(struct account, account_close)

enum account_answer {
    ACCOUNT_TAKEN,
    ACCOUNT_ALL_HAVE,  /* all users together have too much of it */
    ACCOUNT_USER_HAS,  /* the user has its part of it */
    ACCOUNT_TOO_LARGE, /* it can never fit */
};
/* Says if the user may have @amount more. */
enum account_answer account_ask(const struct account *account, enum account_row row,
                                uint64_t amount);
/* The same, and takes the amount if so. */
MUST_CHECK enum account_answer account_take(struct account *account, enum account_row row,
                                            uint64_t amount);
/* Returns the user's quota if that is less than its part by the configuration, else 0. */
uint64_t account_quota(const struct account *account, enum account_row row);
/* Takes the amount in any case, because it is in use already. */
void account_add(struct account *account, enum account_row row, uint64_t amount);
void account_give(struct account *account, enum account_row row, uint64_t amount);
/* Returns BUSY or TOO_LARGE. The message tells the limit, and that @key sets it. */
enum embtier_err account_refuse(const struct account *account, enum account_row row,
                                uint64_t amount, enum account_answer answer, const char *key,
                                struct err_msg *msg);

/* The row's name ("arena_bytes"), its word in messages ("shared memory"), and true if it is in
 * bytes. */
const char *account_row_name(enum account_row row);
const char *account_row_word(enum account_row row);
bool account_row_is_bytes(enum account_row row);

uint64_t account_user(const struct account *account);
uint64_t account_has(const struct account *account, enum account_row row);
/* Returns how much the user may have now in all. */
uint64_t account_part(const struct account *account, enum account_row row);
/* The same by the user's number; 0 if the user has no account. Any thread. */
uint64_t accounts_part(struct accounts *accounts, uint64_t user, enum account_row row);
/* Returns the words behind such a number in messages: ", three quarters of what others leave" or
 * "". */
const char *account_rule(const struct account *account, enum account_row row);
uint64_t accounts_used(const struct accounts *accounts, enum account_row row);

/* One user's amounts. */
struct account_info {
    uint64_t user;
    uint64_t has[ACCOUNT_ROWS];
    uint64_t part[ACCOUNT_ROWS];
};
/* Lists users with numbers from @from on, at most @most, in a malloced array in order of these.
 * *@ret_more says if there are more. NO_MEMORY. */
MUST_CHECK enum embtier_err accounts_page(struct accounts *accounts, uint64_t from, uint32_t most,
                                          struct account_info **ret_infos, uint32_t *ret_count,
                                          bool *ret_more);

#endif
