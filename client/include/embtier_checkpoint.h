/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_checkpoint.h: make, inspect, restore and delete checkpoints (embtier.h). */
#ifndef EMBTIER_CHECKPOINT_H
#define EMBTIER_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"
#include "embtier_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All tables of the server at one moment between two requests, with the state of optimizers. After
 * a crash, tables of durability `replay` have the rows of the newest checkpoint. */
struct embtier_checkpoint {
    uint64_t id;         /* counts up */
    uint64_t created_ms; /* since 1970 */
    int automatic;       /* made by the server itself */
    int has_step;
    uint64_t step;        /* the trainer's, as given */
    const char *metadata; /* JSON, as given; NULL: none */
    uint32_t table_count;
    const char *const *tables; /* their names; NULL in a list */
    uint64_t bytes;            /* of its files on SSD */
    uint64_t new_bytes;        /* of those files that the checkpoint before does not share */
    uint64_t pause_us;         /* longest time in which no update could begin */
    uint64_t held_rows; /* updates that found no room while the checkpoint's rows were written */
    uint64_t spent_ms;
    uint64_t tries; /* attempts to find a moment without updates; 0: made by an older server, in one
                       attempt */
    uint64_t cut_updates; /* updates of which the checkpoint has some rows and lacks others; each
                             row is whole */
    uint32_t uid;         /* of the user that asked for it; for the server's own, the server's;
                             2^32 - 1: that user came over a network and has none */
    const char *user;     /* its name in the access file; "": it has none */
};

struct embtier_checkpoint_options {
    size_t struct_bytes; /* set by EMBTIER_CHECKPOINT_OPTIONS_INIT */
    int has_step;
    uint64_t step; /* any number by which the trainer finds the checkpoint */
    const char
        *metadata; /* JSON without line breaks, at most EMBTIER_METADATA_MAX bytes, or NULL */
    uint32_t keep; /* then delete this user's oldest beyond this many; 0: delete none */
    int automatic; /* nonzero: it counts as the server's own, which the server later deletes */
};
#define EMBTIER_CHECKPOINT_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(struct embtier_checkpoint_options), 0, 0, NULL, 0, 0                                \
    }

struct embtier_checkpoint_list;

/* Makes a checkpoint, and returns when it is complete on disk. The server keeps serving all
 * clients. @options may be NULL. The returned list has one entry. On failure there is no new
 * checkpoint; see Errors in embtier.h for exceptions. INVALID: the metadata is not JSON. BUSY: the
 * user has as many checkpoints as it may, or updates in progress did not end within a minute (the
 * message names the session). NO_SPACE, IO, SHUTDOWN. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_create(struct embtier *server, const struct embtier_checkpoint_options *options,
                          embtier_progress_fn *progress, void *progress_context,
                          struct embtier_checkpoint_list **ret_list);
/* Lists all checkpoints, oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_list(struct embtier *server, struct embtier_checkpoint_list **ret_list);
/* Describes one checkpoint, with the names of its tables. NOT_FOUND. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_show(struct embtier *server, uint64_t id,
                        struct embtier_checkpoint_list **ret_list);
/* Reads every byte of the checkpoint's files and compares checksums. NOT_FOUND; CORRUPT: the
 * message names the file. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_verify(struct embtier *server, uint64_t id, embtier_progress_fn *progress,
                          void *progress_context);
/* Restores the @table_count tables @tables (0: all) as new tables with their old names. A single
 * table can be restored as @name (NULL: its old name). Existing tables do not change. EXISTS: one
 * of the names is taken. NOT_FOUND: no such checkpoint. NO_TABLE: the checkpoint has no such table.
 * BUSY: there is no memory for it now. TOO_LARGE: memory will never suffice. NO_SPACE, at once and
 * with the figures: the rows have no room on the server's disk. CORRUPT, and others. After a
 * failure none is restored; see Errors in embtier.h for exceptions. @ret_list has the restored
 * tables; they can be opened only when they are safe from a crash. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_restore(struct embtier *server, uint64_t id, const char *const *tables,
                           size_t table_count, const char *name, embtier_progress_fn *progress,
                           void *progress_context, struct embtier_table_list **ret_list);
/* Deletes a checkpoint. NOT_FOUND. INVALID: it is the newest, which a crash restores. BUSY: it
 * is being verified. PERMISSION: another user made it, and this user is neither root nor the
 * server's. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_checkpoint_delete(struct embtier *server,
                                                                             uint64_t id);
EMBTIER_PUBLIC size_t embtier_checkpoint_list_count(const struct embtier_checkpoint_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_checkpoint *
embtier_checkpoint_list_at(const struct embtier_checkpoint_list *list, size_t index);
EMBTIER_PUBLIC void embtier_checkpoint_list_free(struct embtier_checkpoint_list *list);

#ifdef __cplusplus
}
#endif
#endif
