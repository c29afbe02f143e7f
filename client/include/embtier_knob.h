/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_knob.h: knobs, the keys of a running server's configuration (embtier.h).
 *
 * Each has the value that is in force. A live knob takes a new one while the server serves. If the
 * server has an access file, knobs are for its administrators. No value is a secret: certificates,
 * keys and tokens are files, whose paths are shown. */
#ifndef EMBTIER_KNOB_H
#define EMBTIER_KNOB_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

enum embtier_knob_source {
    EMBTIER_KNOB_DEFAULT = 0,
    EMBTIER_KNOB_FILE = 1,
    EMBTIER_KNOB_OPTION = 2, /* of the server's command line */
    EMBTIER_KNOB_SET = 3,    /* since the start; the file does not have it */
};

struct embtier_knob {
    const char *name;  /* "rocksdb.memtable_bytes", "cache.tiers[0].bytes" */
    const char *value; /* in force, as the file would have it: "128MiB"; "": none */
    int source;        /* enum embtier_knob_source */
    int is_live;       /* nonzero: the running server takes a new value */
    int is_by_hand;    /* nonzero: no client sets it, as it says whom the server lets in */
    const char *allowed;
    const char *default_text; /* in parentheses if it is computed */
    const char *text;         /* what it is */
    /* If the list was compared with another configuration: */
    int is_running;          /* zero: only the other one has it */
    int in_other;            /* nonzero: the other one has it, */
    const char *other_value; /* with this value */
};

/* Says which knobs are listed, and the other configuration with which they are compared. All zero:
 * all knobs, compared with nothing. */
struct embtier_knob_options {
    size_t struct_bytes;
    const char *name; /* list this one only; NULL: all */
    int with_file;    /* nonzero: compare with the server's file as it is now */
    const char *text; /* not NULL: compare with this text of a file, at most 48 KiB */
    size_t text_bytes;
    const char *text_name; /* for messages; NULL: none */
};
#define EMBTIER_KNOB_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_knob_options), NULL, 0, NULL, 0, NULL                                \
    }

struct embtier_knob_list;
/* Lists knobs, in the order of `embtier config keys`. @options may be NULL: all, compared with
 * nothing. NOT_FOUND: there is none of this name; the message has the nearest one. INVALID: the
 * server has no file. CONFIG: the file or text has a mistake, which the message names. TOO_LARGE.
 * PERMISSION. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_knob_list(struct embtier *server, const struct embtier_knob_options *options,
                  struct embtier_knob_list **ret_list);
EMBTIER_PUBLIC size_t embtier_knob_list_count(const struct embtier_knob_list *list);
/* Borrowed from the list. NULL: the list is shorter. */
EMBTIER_PUBLIC const struct embtier_knob *embtier_knob_list_at(const struct embtier_knob_list *list,
                                                               size_t index);
EMBTIER_PUBLIC void embtier_knob_list_free(struct embtier_knob_list *list);

struct embtier_knob_change;
/* Sets a knob, and reads the value in force back. @persist nonzero: the server's file gets it too,
 * and keeps its comments; a knob that is not live is then only written there. NOT_FOUND; INVALID:
 * the value is not possible, the knob needs a restart and @persist is zero, it is set by hand, or
 * there is no file. CONFIG: a start would refuse the changed file, and nothing has changed.
 * PERMISSION: of the client, or of the file. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_knob_set(struct embtier *server, const char *name, const char *value, int persist,
                 struct embtier_knob_change **ret_change);
/* The knob as it is now; borrowed from the change, as are the others. */
EMBTIER_PUBLIC const struct embtier_knob *
embtier_knob_change_knob(const struct embtier_knob_change *change);
EMBTIER_PUBLIC const char *embtier_knob_change_old(const struct embtier_knob_change *change);
/* Zero: the running server still has the old value. */
EMBTIER_PUBLIC int embtier_knob_change_is_applied(const struct embtier_knob_change *change);
/* The server's file, if the value was written into it; else "". */
EMBTIER_PUBLIC const char *embtier_knob_change_file(const struct embtier_knob_change *change);
EMBTIER_PUBLIC void embtier_knob_change_free(struct embtier_knob_change *change);

#ifdef __cplusplus
}
#endif
#endif
