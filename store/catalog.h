/* SPDX-License-Identifier: Apache-2.0 */
/* catalog.h: the list of tables, kept in catalog.json of the first data directory.
 *
 * With few tables, every change writes a whole new file, fsyncs it, renames it and fsyncs the
 * directory. After a crash either the old or the new catalog is there. With many tables, a change
 * adds a line to a journal (catalog_journal.h). When the journal is as long as the file, both are
 * made anew. A clean stop leaves no journal, and copies of a catalog, as in checkpoints, have none.
 * Table ids count up and are never used again, so a row left behind by one table is never taken for
 * another's. Thread: the control thread only. */
#ifndef EMBTIER_STORE_CATALOG_H
#define EMBTIER_STORE_CATALOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "store/catalog_file.h"

struct catalog;

/* Tables have ids below it; hot_rows.h has others. */
#define CATALOG_TABLE_IDS (UINT32_C(1) << 31)

/* Reads the catalog. NOT_FOUND if there is none. */
MUST_CHECK enum embtier_err catalog_read(const char *directory, struct catalog **ret_catalog,
                                         struct err_msg *msg);
/* Reads the catalog. Makes an empty one if there is none and the store is being made. */
MUST_CHECK enum embtier_err catalog_open(const char *directory, struct catalog **ret_catalog,
                                         struct err_msg *msg);
void catalog_free(struct catalog *catalog);
DEFINE_CLEANUP(struct catalog, catalog_free)

uint32_t catalog_count(const struct catalog *catalog);
/* @index 0 … count - 1, in order of table id; borrowed until the next change. */
const struct catalog_table *catalog_at(const struct catalog *catalog, uint32_t index);
/* Returns NULL if no table has the name. A table in state DROPPING has given up its name. */
const struct catalog_table *catalog_find(const struct catalog *catalog, const char *name);

/* Adds a table. EXISTS if a table in state CREATING or LIVE has the name. */
MUST_CHECK enum embtier_err catalog_add(struct catalog *catalog, const struct table_spec *spec,
                                        uid_t owner, enum catalog_state state,
                                        uint32_t *ret_table_id, struct err_msg *msg);
MUST_CHECK enum embtier_err catalog_set_state(struct catalog *catalog, uint32_t table_id,
                                              enum catalog_state state, struct err_msg *msg);
/* Changes where the table's rows live in memory: to the home, the tier and the hot rows of
 * @like. */
MUST_CHECK enum embtier_err catalog_set_home(struct catalog *catalog, uint32_t table_id,
                                             const struct table_spec *like, struct err_msg *msg);
MUST_CHECK enum embtier_err catalog_remove(struct catalog *catalog, uint32_t table_id,
                                           struct err_msg *msg);

/* Tables in state CREATING whose rows are complete. Borrowed. */
struct catalog_made {
    const uint32_t *table_ids;
    uint32_t count;
};
/* Makes all of them LIVE at once. */
MUST_CHECK enum embtier_err catalog_set_live(struct catalog *catalog,
                                             const struct catalog_made *made, struct err_msg *msg);
/* Writes the whole catalog to another directory, with the tables of @made (may be NULL) as LIVE. */
MUST_CHECK enum embtier_err catalog_copy(const struct catalog *catalog, const char *directory,
                                         const struct catalog_made *made, struct err_msg *msg);
/* Sets the step of the table at @index, in memory only: catalog_fold() or catalog_copy() writes
 * it. */
void catalog_set_step(struct catalog *catalog, uint32_t index, uint64_t step);
/* Writes the whole catalog to catalog.json if there is a journal or a new step. Afterwards there is
 * no journal until the next change. */
MUST_CHECK enum embtier_err catalog_fold(struct catalog *catalog, struct err_msg *msg);
/* Adapts the catalog after a crash. The rows of `replay` tables are now as in a checkpoint with the
 * catalog @then, or gone (NULL). These tables get the steps they had then. Tables of @then whose
 * ids are not in this catalog are added in state DROPPING, as their rows are back. */
MUST_CHECK enum embtier_err catalog_go_back(struct catalog *catalog, const struct catalog *then,
                                            struct err_msg *msg);
/* Replaces all tables with those of another catalog. Ids already given out are not given out
 * again. */
MUST_CHECK enum embtier_err catalog_take_over(struct catalog *catalog, const struct catalog *other,
                                              struct err_msg *msg);

/* Returns a copy in memory, for catalog_settle() and catalog_copy() only: it has no index of names.
 * NULL: out of memory. */
struct catalog *catalog_dup(const struct catalog *catalog);
/* Turns @then into the catalog of a checkpoint whose files were captured between @then and @now.
 * @then is a copy from an earlier moment. A table stays LIVE only if it was LIVE then and still is.
 * A table that was CREATING then and still exists stays CREATING. Any other table of both may have
 * some of its rows in the files. It becomes DROPPING, so a start that goes back to the checkpoint
 * removes these rows. A table that was split is cached, unless it still has the same hot rows: the
 * files may lack their ids. */
MUST_CHECK enum embtier_err catalog_settle(struct catalog *then, const struct catalog *now,
                                           struct err_msg *msg);

#endif
