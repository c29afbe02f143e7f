/* SPDX-License-Identifier: Apache-2.0 */
/* catalog.h: which tables there are, kept in catalog.json of the first data directory.
 *
 * While there are few, every change writes the whole file beside the old one, fsyncs it, renames it
 * and fsyncs the directory: after a crash there is the old or the new catalog. While there are
 * many, it adds a line to a journal (catalog_journal.h); when that is as long as the file, both are
 * made anew. A clean stop leaves no journal. Copies of a catalog, as checkpoints have them, have
 * none. Table ids count up and are never used again, so a row left behind by a table can never be
 * taken for another's. Thread: the control thread only. */
#ifndef EMBTIER_STORE_CATALOG_H
#define EMBTIER_STORE_CATALOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"

struct catalog;

#define CATALOG_FILE "catalog.json"

enum catalog_state {
    CATALOG_CREATING, /* eager rows are being written; a start finds it so after a crash and drops
                         it */
    CATALOG_LIVE,
    CATALOG_DROPPING, /* a start finds it so after a crash and drops it again */
};

#define CATALOG_NOBODY ((uid_t)-1)

struct catalog_table {
    uint32_t table_id;
    enum catalog_state state;
    uid_t owner; /* the user that made it; CATALOG_NOBODY: made before that was noted */
    struct table_spec spec;
};

/* NOT_FOUND if there is none. */
MUST_CHECK enum embtier_err catalog_read(const char *directory, struct catalog **ret_catalog,
                                         struct err_msg *msg);
/* Makes an empty one, if there is none, of a store that is being made. */
MUST_CHECK enum embtier_err catalog_open(const char *directory, struct catalog **ret_catalog,
                                         struct err_msg *msg);
void catalog_free(struct catalog *catalog);
DEFINE_CLEANUP(struct catalog, catalog_free)

uint32_t catalog_count(const struct catalog *catalog);
/* @index 0 … count - 1, in order of table id; borrowed until the next change. */
const struct catalog_table *catalog_at(const struct catalog *catalog, uint32_t index);
/* NULL when there is none. A table in state DROPPING has given its name away. */
const struct catalog_table *catalog_find(const struct catalog *catalog, const char *name);

/* EXISTS when a table in state CREATING or LIVE has the name. */
MUST_CHECK enum embtier_err catalog_add(struct catalog *catalog, const struct table_spec *spec,
                                        uid_t owner, enum catalog_state state,
                                        uint32_t *ret_table_id, struct err_msg *msg);
MUST_CHECK enum embtier_err catalog_set_state(struct catalog *catalog, uint32_t table_id,
                                              enum catalog_state state, struct err_msg *msg);
MUST_CHECK enum embtier_err catalog_remove(struct catalog *catalog, uint32_t table_id,
                                           struct err_msg *msg);

/* Tables whose rows are complete, and which are in state CREATING yet. Borrowed. */
struct catalog_made {
    const uint32_t *table_ids;
    uint32_t count;
};
/* Makes all of them LIVE at once. */
MUST_CHECK enum embtier_err catalog_set_live(struct catalog *catalog,
                                             const struct catalog_made *made, struct err_msg *msg);
/* Writes all of it to another directory, those of @made (may be NULL) as LIVE ones. */
MUST_CHECK enum embtier_err catalog_copy(const struct catalog *catalog, const char *directory,
                                         const struct catalog_made *made, struct err_msg *msg);
/* The table at @index is at @step: in memory only, until catalog_fold() or catalog_copy() writes
 * it. */
void catalog_set_step(struct catalog *catalog, uint32_t index, uint64_t step);
/* Writes all of it to catalog.json, if there is a journal or a new step: so there is none until the
 * next change. */
MUST_CHECK enum embtier_err catalog_fold(struct catalog *catalog, struct err_msg *msg);
/* After a crash, when the rows of `replay` tables are as in a checkpoint with the catalog @then, or
 * gone (NULL): these tables have the steps that they had. Adds, in state DROPPING, those tables of
 * @then whose ids are not in this one: their rows are there again. */
MUST_CHECK enum embtier_err catalog_go_back(struct catalog *catalog, const struct catalog *then,
                                            struct err_msg *msg);
/* Takes over all tables of another catalog, in the place of its own. Ids that have been given out
 * are not given out again. */
MUST_CHECK enum embtier_err catalog_take_over(struct catalog *catalog, const struct catalog *other,
                                              struct err_msg *msg);

/* A copy in memory, as of now, for catalog_settle() and catalog_copy() only: it knows no names.
 * NULL: out of memory. */
struct catalog *catalog_dup(const struct catalog *catalog);
/* @then, a copy of an earlier moment, becomes the catalog of a checkpoint whose files were captured
 * between that moment and @now. A table is LIVE in it only if it was then and still is. All others
 * of both may have some of their rows in the files: they are DROPPING, so that whoever goes back to
 * the checkpoint removes these; but those that were CREATING still are. */
MUST_CHECK enum embtier_err catalog_settle(struct catalog *then, const struct catalog *now,
                                           struct err_msg *msg);

#endif
