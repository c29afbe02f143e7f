/* SPDX-License-Identifier: Apache-2.0 */
/* history_file.h: reads files of histories. Each has a checksum and a version. A damaged one is
 * renamed to NAME.damaged and warned of: figures are lost, and no row. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_HISTORY_FILE_H
#define EMBTIER_DAEMON_ENDURANCE_HISTORY_FILE_H

#include <stdbool.h>

#include "base/err.h"

struct json_t;

struct history_file {
    const char *name;
    int version;
    const char *what; /* whose history it is, for the log: "tables" */
    /* Takes the content. False: it is damaged. */
    bool (*take)(const struct json_t *root, void *context);
};

/* NOT_FOUND: there is no file. CORRUPT: it was damaged, and has another name. Other errors: it
 * could not be read, and may be good: save nothing over it. The log has the reason. */
MUST_CHECK enum embtier_err history_file_read(const struct history_file *file,
                                              const char *directory, void *context);
/* True if a new file may be saved over this one. */
static inline bool history_file_may_save(enum embtier_err err)
{
    return err == EMBTIER_OK || err == EMBTIER_NOT_FOUND || err == EMBTIER_CORRUPT;
}

#endif
