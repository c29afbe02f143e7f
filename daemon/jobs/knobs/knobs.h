/* SPDX-License-Identifier: Apache-2.0 */
/* knobs.h: the values of the configuration that are in force, and changes of them while the server
 * serves.
 *
 * Each key of the configuration is a knob. The column `when` of the table of keys
 * (config/config_keys.h) says which of them a running server takes. A value is read back from where
 * it works: RocksDB, a lane, the log, a limit (knobs_live.h). The configuration of the start never
 * changes. So a value in force is that of the start, unless its knob is live.
 *
 * A change passes all checks of a configuration first, with the other values that are in force. It
 * can also go into the server's file (knob_file.h). Thread: a job's, as lanes and disks are waited
 * for; one change at a time. Any thread reads limits. */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config_items.h"
#include "daemon/jobs/knobs/knobs_opts.h"

struct knobs;

MUST_CHECK enum embtier_err knobs_new(const struct knobs_opts *opts, struct knobs **ret_knobs,
                                      struct err_msg *msg);
void knobs_free(struct knobs *knobs);
DEFINE_CLEANUP(struct knobs, knobs_free)

/* Returns the limit in force. Any thread, does not wait. */
uint64_t knobs_limit(const struct knobs *knobs, enum knob_limit limit);

/* ---- Reading ---- */

enum knob_source {
    KNOB_DEFAULT,
    KNOB_FILE,
    KNOB_OPTION, /* of the server's command line */
    KNOB_SET,    /* since the start, and not in the file; a data directory maybe before */
};

struct knob {
    struct config_item item; /* the value in force */
    enum knob_source source;
    bool is_running;                         /* else it is only in the file */
    bool in_other;                           /* the file that it is compared with has it */
    char other_value[CONFIG_ITEM_VALUE_MAX]; /* there */
};

/* Calls @each for all knobs, in the order of the table of keys, until one call fails. @other is a
 * configuration to compare with, or NULL; behind the knobs that are running come those that only it
 * has. */
typedef enum embtier_err knob_fn(void *context, const struct knob *knob);
MUST_CHECK enum embtier_err knobs_each(struct knobs *knobs, const struct config *other,
                                       knob_fn *each, void *context);
/* Reads the server's file as a start would do now. INVALID: it has none. CONFIG: the file is
 * wrong. */
MUST_CHECK enum embtier_err knobs_read_file(const struct knobs *knobs, struct config **ret_config,
                                            struct err_msg *msg);
/* The same for a text. */
MUST_CHECK enum embtier_err knobs_read_text(const struct knobs *knobs, const char *name,
                                            const char *text, size_t bytes,
                                            struct config **ret_config, struct err_msg *msg);
/* Returns the absolute path of the server's file, or NULL. */
const char *knobs_file(const struct knobs *knobs);

/* Returns NOT_FOUND: no knob has @name; the message has one that is near. OK if there is one. */
MUST_CHECK enum embtier_err knobs_name_nearest(const struct knobs *knobs, const char *name,
                                               struct err_msg *msg);

/* Makes the configuration in force one for @shards shards (config_for_shards()), and has the store
 * share its memory and descriptors out among these, if @applies. CONFIG: they do not suffice. */
MUST_CHECK enum embtier_err knobs_fit_shards(struct knobs *knobs, uint32_t shards, bool applies,
                                             struct err_msg *msg);

/* ---- Setting ---- */

struct knob_order {
    const char *name;
    const char *value;
    bool persist; /* write it into the server's file, too */
};

struct knob_change {
    struct knob knob; /* afterwards */
    char old_value[CONFIG_ITEM_VALUE_MAX];
    bool applied; /* false: its knob is not live, and the next start takes it */
};

/* NOT_FOUND: no knob has this name; the message has one that is near. INVALID: the value is not
 * possible; the knob is not live and @order->persist is false; there is no file. CONFIG: with the
 * value, a start would refuse the file. After an error, the file and the value in force are as they
 * were, or the message names a place where the value is not: then the old or the new one is to be
 * set again. SHUTDOWN: the server stops, and the value may be in between. */
MUST_CHECK enum embtier_err knobs_set(struct knobs *knobs, const struct knob_order *order,
                                      struct knob_change *ret_change, struct err_msg *msg);
/* Notes that the knob @name was set in its place and not by knobs_set(). Any thread, does not
 * wait. */
void knobs_note_set(struct knobs *knobs, const char *name);

#endif
