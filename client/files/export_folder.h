/* SPDX-License-Identifier: Apache-2.0 */
/* export_folder.h: makes an export's folder, so that its path has a whole export or nothing.
 *
 * Files are written to PATH.partial/EXPORT_FOLDER_NAME, which becomes PATH when all of it is on
 * disk. The writer holds a lock on PATH.partial. If the writer is killed, the lock ends, and the
 * next export removes the remains. The inner folder's name marks a PATH.partial as ours. One that
 * holds anything an unfinished export cannot have left is not ours, and stays as it is.
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_FILES_EXPORT_FOLDER_H
#define EMBTIER_CLIENT_FILES_EXPORT_FOLDER_H

#include "base/err.h"
#include "base/macros.h"

#define EXPORT_FOLDER_NAME "unfinished.embtier-export"

struct export_folder;

/* Makes PATH.partial and locks it. @path may end in slashes. INVALID: it is empty, or has the name
 * of an unfinished export. EXISTS: something is at @path, or PATH.partial holds something that is
 * not ours. LOCKED: another export is in progress. Else the file system's error, also if the parent
 * cannot be read, because it could not be synced. */
MUST_CHECK enum embtier_err export_folder_new(const char *path, struct export_folder **ret_folder,
                                              struct err_msg *msg);
/* Returns the descriptor of the folder for the files; borrowed. */
int export_folder_fd(const struct export_folder *folder);
/* Renames the folder to PATH. The caller has synced its content. EXISTS. */
MUST_CHECK enum embtier_err export_folder_finish(struct export_folder *folder, struct err_msg *msg);
/* Frees the folder, and removes it unless it is finished. */
void export_folder_free(struct export_folder *folder);
DEFINE_CLEANUP(struct export_folder, export_folder_free)

#endif
