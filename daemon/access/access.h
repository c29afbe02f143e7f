/* SPDX-License-Identifier: Apache-2.0 */
/* access.h: which users are known, and what each may do now.
 *
 * A client that says hello becomes a member: one of the access file's users. Its sessions have the
 * member's rights (rights.h), which lanes read. All other questions are asked here, before a
 * control message is handled. Members are kept while they have sessions, by name. So a reload
 * changes what the clients that are connected may do. The control thread ends those whose
 * credential does not lead to their member any more. Until then a member whose user is no longer
 * in the file has role none.
 *
 * Without a file every client may do all. The same holds for root and the server's user on a Unix
 * socket, which could read the file and the data anyhow. These are no members (NULL).
 *
 * Thread: any. One lock guards all. Its holder waits for nothing, and takes no other lock; the
 * tables' lock may be held. */
#ifndef EMBTIER_DAEMON_ACCESS_ACCESS_H
#define EMBTIER_DAEMON_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "daemon/access/access_rules.h"
#include "daemon/access/operations.h"

struct access;
struct access_member;
struct rights;
struct yaml_doc;
struct Embtier__Request;

/* @path: the access file, read at once; NULL: none. @config: the document that names it, borrowed
 * (access_rules_load()). To be called before there are tables. */
MUST_CHECK enum embtier_err access_new(const char *path, const struct yaml_doc *config,
                                       struct access **ret_access, struct err_msg *msg);
/* No member is left. */
void access_free(struct access *access);
DEFINE_CLEANUP(struct access, access_free)

/* ---- Tables ---- */

/* Table number @index now has this name, and no request can use it yet. @context: the access. */
void access_name_table(void *context, uint16_t index, const char *name);

/* ---- Members ---- */

/* PERMISSION: the client is no user. *@ret_member is the client's until access_leave(). NULL there:
 * the client may do all. *@ret_credential says for which fact the client is that user. */
MUST_CHECK enum embtier_err access_enter(struct access *access, const struct access_client *client,
                                         struct access_member **ret_member,
                                         struct access_credential *ret_credential,
                                         struct err_msg *msg);
/* PERMISSION: by the file that is in force now, the credential does not lead to the member. The
 * message says so. */
MUST_CHECK enum embtier_err access_check_credential(struct access *access,
                                                    const struct access_member *member,
                                                    const struct access_credential *credential,
                                                    struct err_msg *msg);
void access_leave(struct access *access, struct access_member *member);

/* The member may be NULL in all that follows: the client may do all. */
const char *access_member_name(const struct access_member *member); /* NULL: "" */
/* Returns the number of the user's account, another one for each name. */
uint64_t access_member_account(const struct access_member *member);
struct rights *access_member_rights(struct access_member *member);
/* Writes how much the user may have; 0: as much as any other. */
void access_member_quotas(struct access *access, const struct access_member *member,
                          uint64_t ret_quotas[QUOTAS]);
enum role access_member_role(const struct access_member *member);

/* PERMISSION: the member may not do that; the message names operation and roles. @operation is NULL
 * if the operations have no such row. @opened: the table of the connection's own export or import,
 * or NULL. */
MUST_CHECK enum embtier_err access_check(struct access *access, const struct access_member *member,
                                         const struct operation *operation,
                                         const struct Embtier__Request *request, const char *opened,
                                         struct err_msg *msg);
/* True if the member may know of this table. */
bool access_has_table(struct access *access, const struct access_member *member, const char *name);
/* True if it is an administrator of all tables. */
bool access_has_whole(struct access *access, const struct access_member *member);

/* Writes the name of the member with that account; "": there is none. */
void access_account_name(struct access *access, uint64_t account,
                         char ret_name[ACCESS_NAME_MAX + 1]);

/* Tells how many bytes of the requests of the member with that account are under way, and its quota
 * of them. False: it has none, so they are not counted. */
bool access_account_bytes(struct access *access, uint64_t account, uint64_t *ret_bytes,
                          uint64_t *ret_most);

/* ---- Reloads ---- */

/* For struct reload_part (daemon/jobs/reload/reload.h); @context is the access. Read: parses the
 * file, which may take long, and prepares the rights of its users. Only one thread at a time
 * reloads. Take puts these in force. Drop frees them. */
MUST_CHECK enum embtier_err access_read(void *context, void **ret_fresh, struct err_msg *msg);
void access_take(void *context, void *fresh);
void access_drop(void *context, void *fresh);

/* Returns the rules in force, for access_drop_rules(); NULL: there is no file. */
struct access_rules *access_rules_now(struct access *access);
/* Gives rules (may be NULL) back, and frees them unless they have another holder. */
void access_drop_rules(struct access *access, struct access_rules *rules);

/* Returns how many files have been put in force. */
uint64_t access_taken(struct access *access);

/* ---- Counts ---- */

void access_note_refusal(struct access *access);

/* Refusals of requests by lanes, of all members, since the last call; and the name of one. */
struct access_news {
    uint64_t refusals;
    char name[ACCESS_NAME_MAX + 1];
};
void access_take_news(struct access *access, struct access_news *ret_news);

struct access_stats {
    uint64_t users;    /* in the file */
    uint64_t refusals; /* of hellos, control messages and requests */
};
void access_stats(struct access *access, struct access_stats *ret_stats);

#endif
