/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h: findings about a directory that the configuration names. Their names begin with the
 * directory's key. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_DOCTOR_DIRECTORY_H
#define EMBTIER_TOOLS_CLI_DOCTOR_DIRECTORY_H

#include <sys/stat.h>

#include "base/host/place.h"
#include "tools/cli/doctor/checks.h"

struct directory {
    const char *key;  /* borrowed: "data.directories[0]" */
    const char *path; /* borrowed */
    bool is_usable;   /* the rest is known */
    struct statx info;
    struct place place;
};

/* Adds the finding KEY. @is_default: the server makes it if it is missing. */
void directory_examine(const struct examination *e, const char *key, const char *path,
                       bool is_default, struct directory *ret_directory);
/* Add KEY.file_system, KEY.device, KEY.scheduler and KEY.direct_io of a usable directory. */
void directory_add_file_system(const struct examination *e, const struct directory *directory);
void directory_add_device(const struct examination *e, const struct directory *directory);
void directory_add_scheduler(const struct examination *e, const struct directory *directory);
void directory_add_direct_io(const struct examination *e, const struct directory *directory,
                             enum config_switch wanted);
/* Adds KEY.space. BAD with less than @least_bytes free, WARN with less than @enough_bytes. The
 * advice begins with @exception, which may be "". */
void directory_add_space(const struct examination *e, const struct directory *directory,
                         uint64_t least_bytes, uint64_t enough_bytes, const char *exception);

#endif
