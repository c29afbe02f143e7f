/* SPDX-License-Identifier: Apache-2.0 */
/* file_tree.h: copies and second names of files, and folders with all that is in them. Errors name
 * the file. Thread: any, on different files. */
#ifndef EMBTIER_STORE_FILES_FILE_TREE_H
#define EMBTIER_STORE_FILES_FILE_TREE_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Makes @to of the first @bytes of @from, fsynced, mode 0600; @ret_sum is their checksum
 * (rocksdb_ext.h). CORRUPT if there are fewer. */
MUST_CHECK enum embtier_err file_copy(const char *from, const char *to, uint64_t bytes,
                                      uint32_t *ret_sum, struct err_msg *msg);
/* Makes @to of a text, fsynced, likewise. */
MUST_CHECK enum embtier_err file_make(const char *to, const char *text, uint64_t bytes,
                                      uint32_t *ret_sum, struct err_msg *msg);
/* Gives @from the second name @to; false in *@ret_linked where the file system knows none. */
MUST_CHECK enum embtier_err file_link(const char *from, const char *to, bool *ret_linked,
                                      struct err_msg *msg);
/* Reads @bytes and sums them up; adds to *@read_bytes (may be NULL) as it goes on. CORRUPT if the
 * file is not there or has another length, SHUTDOWN when *@give_up (may be NULL) has become true.
 */
MUST_CHECK enum embtier_err file_sum(const char *path, uint64_t bytes, uint32_t *ret_sum,
                                     void (*progress)(void *context, uint64_t bytes), void *context,
                                     const _Atomic bool *give_up, struct err_msg *msg);

/* The next entry of an open folder that is neither itself nor its parent. NULL at the end, and
 * where it can't be read: *@ret_err, which is EMBTIER_OK before, then says so. @path is for the
 * message. */
const struct dirent *folder_next(DIR *folder, const char *path, enum embtier_err *ret_err,
                                 struct err_msg *msg);
/* Whether there is anything of this name; an error says that nobody knows. */
MUST_CHECK enum embtier_err path_is_there(const char *path, bool *ret_there, struct err_msg *msg);
/* MISMATCH: there is something of this name, and that is no regular file; a link is none. */
MUST_CHECK enum embtier_err path_is_plain(const char *path, struct err_msg *msg);
/* Makes the folder, mode 0700, if it is not there. */
MUST_CHECK enum embtier_err folder_make(const char *path, struct err_msg *msg);
/* Removes the folder, if it is there, with all folders and files in it. Links are not followed. */
MUST_CHECK enum embtier_err folder_remove(const char *path, struct err_msg *msg);
/* Removes what is in it, if it is there, but for an entry of this name (may be NULL). */
MUST_CHECK enum embtier_err folder_empty(const char *path, const char *but, struct err_msg *msg);
/* Whether it has nothing in it, or is not there. */
MUST_CHECK enum embtier_err folder_is_empty(const char *path, bool *ret_empty, struct err_msg *msg);

#endif
