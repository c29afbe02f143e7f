/* SPDX-License-Identifier: Apache-2.0 */
/* new_file.h: a file that appears under its name whole and durable, or not at all.
 *
 * It is written beside its name, as PATH.PID-RANDOM.partial, synced, and linked to the name. There,
 * a name that is too long for that is cut. A link replaces no file, so of two writers one gets
 * EXISTS. A program that is killed may leave the partial file. Without new_file_finish() the file
 * that was there stays. Thread: one for each file. */
#ifndef EMBTIER_BASE_SYSTEM_NEW_FILE_H
#define EMBTIER_BASE_SYSTEM_NEW_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macros.h"

struct new_file;

/* EXISTS: there is a file. Else errno's error. */
MUST_CHECK enum embtier_err new_file_open(const char *path, struct new_file **ret_file,
                                          struct err_msg *msg);
/* As new_file_open(), but the file takes the place of one that is there, and has its mode if the
 * file system can give it that. A symbolic link stays, and the file that it names is replaced.
 * NOT_FOUND: it names none. */
MUST_CHECK enum embtier_err new_file_open_over(const char *path, struct new_file **ret_file,
                                               struct err_msg *msg);
/* As new_file_open(), or as new_file_open_over() if @over is true, but the file has @mode, whatever
 * the umask and the mode of a file that it replaces. The partial file has no more rights at any
 * time. UNSUPPORTED: only the owner may have rights, and the file system gives others some. */
MUST_CHECK enum embtier_err new_file_open_mode(const char *path, mode_t mode, bool over,
                                               struct new_file **ret_file, struct err_msg *msg);
/* For the contents, which can be read back. The file checks for its errors. */
FILE *new_file_stream(struct new_file *file);
/* Writes the contents to the disk before new_file_finish(), which does so too. With it, all of
 * several files are on the disk before the first one gets its name. */
MUST_CHECK enum embtier_err new_file_sync(struct new_file *file, struct err_msg *msg);
/* Gives the file its name; errors as new_file_open(). If only the folder cannot be synced, a file
 * that takes the place of another already has it. */
MUST_CHECK enum embtier_err new_file_finish(struct new_file *file, struct err_msg *msg);
/* Without new_file_finish() nothing of the file stays. */
void new_file_free(struct new_file *file);
DEFINE_CLEANUP(struct new_file, new_file_free)

#endif
