/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_checkpoint.h: checkpoints: made, looked at, restored and deleted (embtier.h). */
#ifndef EMBTIER_CHECKPOINT_H
#define EMBTIER_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"
#include "embtier_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All tables of the server as they were at one point between two requests, optimizer state
 * included. After a crash, tables of durability `replay` have the rows of the newest one. */
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
    uint64_t new_bytes;        /* of those that it does not share with the one before */
    uint64_t pause_us;         /* no update was begun for so long, at most at a time */
    uint64_t held_rows; /* how often an update found no room while rows were written for it */
    uint64_t spent_ms;
    uint64_t tries;       /* to find a moment without updates; 0: an older server made it, in one */
    uint64_t cut_updates; /* of which some rows are in it and some are not; each row is whole */
    uint32_t uid;         /* of the user who had it made; of the server's own, the server's */
};

struct embtier_checkpoint_options {
    size_t struct_bytes; /* set by EMBTIER_CHECKPOINT_OPTIONS_INIT */
    int has_step;
    uint64_t step; /* any number, by which the trainer finds it again */
    const char
        *metadata; /* JSON of at most EMBTIER_METADATA_MAX bytes without line breaks, or NULL */
    uint32_t keep; /* afterwards this user's oldest are deleted, but for so many; 0: none is */
    int automatic; /* nonzero: it counts as one of the server's own, which deletes it in time */
};
#define EMBTIER_CHECKPOINT_OPTIONS_INIT                                                            \
    {                                                                                              \
        sizeof(struct embtier_checkpoint_options), 0, 0, NULL, 0, 0                                \
    }

struct embtier_checkpoint_list;

/* Returns when it is complete on disk; requests of all clients go on meanwhile. @options may be
 * NULL. The list that comes back has one entry. INVALID (the metadata is no JSON), NO_SPACE, IO,
 * SHUTDOWN, BUSY (updates under way did not end in a minute; the message names the session; or the
 * user has as many as it may): there
 * is no new checkpoint then (but see Errors in embtier.h). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_create(struct embtier *server, const struct embtier_checkpoint_options *options,
                          embtier_progress_fn *progress, void *progress_context,
                          struct embtier_checkpoint_list **ret_list);
/* Oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_list(struct embtier *server, struct embtier_checkpoint_list **ret_list);
/* One, with the names of its tables. NOT_FOUND. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_show(struct embtier *server, uint64_t id,
                        struct embtier_checkpoint_list **ret_list);
/* Reads every byte of its files and compares checksums. NOT_FOUND; CORRUPT: the message names the
 * file. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_verify(struct embtier *server, uint64_t id, embtier_progress_fn *progress,
                          void *progress_context);
/* Makes tables as they were: @tables, @table_count of them (0: all), as new tables of the names
 * that they had, or one of them as @name (NULL: as it was). Tables that there are stay as they are:
 * EXISTS if one of the names is taken; NOT_FOUND: no such checkpoint; NO_TABLE: it has no such
 * table; BUSY, TOO_LARGE: no memory is left for it now, or ever is enough; CORRUPT; NO_SPACE,
 * at once and with the figures if the rows have no room on the server's disk; and the like. After a
 * failure none is made (but see Errors in embtier.h). @ret_list are the tables
 * that were made; nobody can open them before they are safe from a crash. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_restore(struct embtier *server, uint64_t id, const char *const *tables,
                           size_t table_count, const char *name, embtier_progress_fn *progress,
                           void *progress_context, struct embtier_table_list **ret_list);
/* NOT_FOUND; INVALID: it is the newest, to which a crash goes back; BUSY: it is being verified;
 * PERMISSION: another user made it, and this one is neither root nor the server's. */
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
