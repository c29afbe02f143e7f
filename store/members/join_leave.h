/* SPDX-License-Identifier: Apache-2.0 */
/* join_leave.h: adds a data directory to a store that is open, and removes one.
 *
 * Thread: the one that moves buckets. Others may walk over the directories meanwhile
 * (store_identity.h). */
#ifndef EMBTIER_STORE_MEMBERS_JOIN_LEAVE_H
#define EMBTIER_STORE_MEMBERS_JOIN_LEAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define DIRECTORY_NONE UINT32_MAX

struct config;
struct store_identity;

/* Returns the place of the directory at @path, DIRECTORY_NONE: it is none of the store's. */
uint32_t store_identity_find(const struct store_identity *identity, const char *path);

/* Checks that a directory may be added, and changes nothing. INVALID: the path is relative or no
 * directory, or one lies in another. EXISTS: it belongs to the store. MISMATCH: it is not empty.
 * NOT_FOUND: neither it nor the folder that it is to be made in is there. TOO_LARGE: the store can
 * have no more. BUSY: another one is being added. @ret_sharer: a directory on the same file system;
 * DIRECTORY_NONE: there is none. */
MUST_CHECK enum embtier_err store_identity_check_new(const struct store_identity *identity,
                                                     const char *path, uint32_t *ret_sharer,
                                                     struct err_msg *msg);
/* Makes the directory, if it is not there, locks it, and writes embtier.json. It does not count
 * yet. */
MUST_CHECK enum embtier_err store_identity_join_begin(struct store_identity *identity,
                                                      const char *path, struct err_msg *msg);
/* Writes the list with it, and lets other threads see it. After an error it still does not count,
 * unless *@ret_unknown: then the next start may find it in the list. */
MUST_CHECK enum embtier_err store_identity_join_end(struct store_identity *identity,
                                                    bool *ret_unknown, uint32_t *ret_place,
                                                    struct err_msg *msg);
/* True if a directory is between the two, because a list could not be taken back. */
bool store_identity_is_joining(const struct store_identity *identity);
/* Removes what store_identity_join_begin() made. The caller has removed all else. */
void store_identity_join_undo(struct store_identity *identity);

/* While a directory is to leave it gets no new shards; nor if a start may find that it has left. */
void store_identity_set_leaving(struct store_identity *identity, uint32_t place, bool leaves);
bool store_identity_takes_shards(const struct store_identity *identity, uint32_t place);
/* Writes the list as it is: a start then goes by it, whatever its configuration names. */
MUST_CHECK enum embtier_err store_identity_note(struct store_identity *identity,
                                                struct err_msg *msg);
/* Writes the list without the directory, in which no shard and no checkpoint is; it may be missing.
 * From then on other threads skip it; open files in it stay open. After an error it still counts,
 * or the next start may find either. */
MUST_CHECK enum embtier_err store_identity_leave(struct store_identity *identity, uint32_t place,
                                                 struct err_msg *msg);

/* Makes data.directories what the store's list says, if there is one. Directories that lack are
 * added where they were, and those that have left are dropped, with a line in the log each. So is
 * that of --without-directory. INVALID: it is there, or the first one. NOT_FOUND: the list has none
 * there. */
MUST_CHECK enum embtier_err store_settle_directories(struct config *config, struct err_msg *msg);

#endif
