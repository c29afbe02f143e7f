/* SPDX-License-Identifier: Apache-2.0 */
/* reload.h: files that can be read again while the server runs.
 *
 * Each file is a part. A reload first reads all parts, which may take long and changes nothing. If
 * one of them is wrong, all stay as they were; else all are taken. Parts are added before there are
 * jobs. Thread: any; one reload runs at a time. */
#ifndef EMBTIER_DAEMON_JOBS_RELOAD_RELOAD_H
#define EMBTIER_DAEMON_JOBS_RELOAD_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define RELOAD_PARTS_MAX 4

struct reloads;

struct reload_part {
    void *context;
    /* Reads the part again, and checks it. *@ret_fresh may be NULL: there is nothing to take. */
    enum embtier_err (*read)(void *context, void **ret_fresh, struct err_msg *msg);
    /* Puts it in force, and frees what was. It waits for nothing, and cannot fail. */
    void (*take)(void *context, void *fresh);
    /* Frees it. */
    void (*drop)(void *context, void *fresh);
};

MUST_CHECK enum embtier_err reloads_new(struct reloads **ret_reloads, struct err_msg *msg);
void reloads_free(struct reloads *reloads);
DEFINE_CLEANUP(struct reloads, reloads_free)
void reloads_add(struct reloads *reloads, const struct reload_part *part);
/* @look is called in the thread of each reload once all parts are taken, before the next reload. It
 * is set before there are jobs. */
void reloads_look(struct reloads *reloads, void (*look)(void *context), void *context);

/* Reads and takes all parts, and logs what came of it. After an error, which is that of one part,
 * nothing has changed. */
MUST_CHECK enum embtier_err reloads_run(struct reloads *reloads, struct err_msg *msg);

struct reload_stats {
    uint64_t reloads;  /* that were taken */
    uint64_t failures; /* that were not */
    bool last_failed;
};
void reloads_stats(struct reloads *reloads, struct reload_stats *ret_stats);

#endif
