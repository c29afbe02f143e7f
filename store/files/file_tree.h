/* SPDX-License-Identifier: Apache-2.0 */
/* file_tree.h: copies and second names of files; folders with all their contents. Errors name the
 * file. Thread: any, on different files. */
#ifndef EMBTIER_STORE_FILES_FILE_TREE_H
#define EMBTIER_STORE_FILES_FILE_TREE_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Makes @to from the first @bytes of @from, fsynced, mode 0600; @ret_sum is their checksum
 * (rocksdb_ext.h). CORRUPT if @from has fewer. */
MUST_CHECK enum embtier_err file_copy(const char *from, const char *to, uint64_t bytes,
                                      uint32_t *ret_sum, struct err_msg *msg);
/* Makes @to from a text in the same way. */
MUST_CHECK enum embtier_err file_make(const char *to, const char *text, uint64_t bytes,
                                      uint32_t *ret_sum, struct err_msg *msg);
/* Gives @from the second name @to. *@ret_linked is false if the file system cannot do that. */
MUST_CHECK enum embtier_err file_link(const char *from, const char *to, bool *ret_linked,
                                      struct err_msg *msg);
/* Reads a file of @bytes, and returns its checksum. Calls @progress(context, bytes) (may be NULL)
 * with each piece's length. CORRUPT if the file is missing or has another length. SHUTDOWN if
 * *@give_up has become true (@give_up may be NULL). */
MUST_CHECK enum embtier_err file_sum(const char *path, uint64_t bytes, uint32_t *ret_sum,
                                     void (*progress)(void *context, uint64_t bytes), void *context,
                                     const _Atomic bool *give_up, struct err_msg *msg);

/* Returns the bytes that copies and texts have taken in this process, in whole pages. Checkpoints
 * are made of them. */
uint64_t file_tree_written_bytes(void);

/* Returns the next entry of an open folder, without the folder itself and its parent. Returns NULL
 * at the end, and on an error, which goes into *@ret_err; the caller has set that to EMBTIER_OK.
 * @path is for the message. */
const struct dirent *folder_next(DIR *folder, const char *path, enum embtier_err *ret_err,
                                 struct err_msg *msg);
/* Finds out if anything has this name; on an error that is unknown. */
MUST_CHECK enum embtier_err path_is_there(const char *path, bool *ret_there, struct err_msg *msg);
/* MISMATCH if something has this name and is no regular file; a link is none. */
MUST_CHECK enum embtier_err path_is_plain(const char *path, struct err_msg *msg);
/* Makes the folder, mode 0700, if it does not exist. */
MUST_CHECK enum embtier_err folder_make(const char *path, struct err_msg *msg);
/* Removes the folder, if it exists, with all folders and files in it. Links are not followed. */
MUST_CHECK enum embtier_err folder_remove(const char *path, struct err_msg *msg);
/* Removes the contents of the folder, if it exists, except an entry named @but (may be NULL). */
MUST_CHECK enum embtier_err folder_empty(const char *path, const char *but, struct err_msg *msg);
/* Finds out if the folder is empty or does not exist. */
MUST_CHECK enum embtier_err folder_is_empty(const char *path, bool *ret_empty, struct err_msg *msg);

#endif
