/* SPDX-License-Identifier: Apache-2.0 */
/* export_folder.h: where an export is made, so that its path has a whole one or nothing.
 *
 * Files are written to PATH.partial/EXPORT_FOLDER_NAME, which becomes PATH when all of it is on the
 * disk. Whoever makes it has PATH.partial locked; what was left by one that was killed is not, and
 * makes room for the next. A folder of that name is somebody else's, and stays as it is, if there
 * is anything in it that no unfinished export leaves: the inner folder's name is the mark.
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_FILES_EXPORT_FOLDER_H
#define EMBTIER_CLIENT_FILES_EXPORT_FOLDER_H

#include "base/err.h"
#include "base/macros.h"

#define EXPORT_FOLDER_NAME "unfinished.embtier-export"

struct export_folder;

/* @path may end in slashes; it is empty, or ends as unfinished exports do: INVALID. EXISTS: there
 * is something at @path, or in PATH.partial that is not ours. LOCKED: another export is under way.
 * Otherwise what the file system says, also of a parent that cannot be read, and so not synced. */
MUST_CHECK enum embtier_err export_folder_new(const char *path, struct export_folder **ret_folder,
                                              struct err_msg *msg);
/* Where its files belong: the folder's, borrowed. */
int export_folder_fd(const struct export_folder *folder);
/* From here on it is an export; what is in it has been synced before. EXISTS. */
MUST_CHECK enum embtier_err export_folder_finish(struct export_folder *folder, struct err_msg *msg);
/* What is not finished is removed. */
void export_folder_free(struct export_folder *folder);
DEFINE_CLEANUP(struct export_folder, export_folder_free)

#endif
