/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h: all tables of the running server: handles for the lanes, and making, finding and
 * dropping tables.
 *
 * tables_enter() is for the lanes and takes no lock. Finding, listing and counting are for the
 * control thread and take the tables' lock, which is never held while anything waits for a disk.
 * Everything else is for threads of jobs, any number of them: it blocks, writes the catalog, and
 * calls the lanes.
 */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLES_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "store/store.h"

struct accounts;
struct catalog;
struct lane;
struct progress_sink;
struct row_routes;
struct row_writer;
struct table;
struct table_arrays;
struct tables;

/* The store, the routes and the accounts are borrowed for as long as the tables are there. */
MUST_CHECK enum embtier_err tables_new(struct store *store, const struct row_routes *routes,
                                       struct accounts *accounts, struct tables **ret_tables,
                                       struct err_msg *msg);
void tables_free(struct tables *tables);
DEFINE_CLEANUP(struct tables, tables_free)

/* What tables ask of a lane: to know a table, and to forget its rows (lane_add_table() and
 * lane_purge_table() say more). */
struct tables_rows {
    enum embtier_err (*add)(struct lane *lane, const struct table *table);
    enum embtier_err (*purge)(struct lane *lane, const struct table *table,
                              const _Atomic bool *give_up);
};

/* After the lanes run: registers what the catalog holds; tables left half made or half dropped by a
 * crash are dropped, with a log line each. Those that cannot be, such as on a full disk, are left
 * to the next start. @arrays is borrowed as long as the tables are. Fails as table_arrays_take() if
 * the configuration no longer has memory for a table whose home is an array. */
MUST_CHECK enum embtier_err tables_load(struct tables *tables, const struct tables_rows *rows,
                                        struct lane *const *lanes, uint32_t lane_count,
                                        struct table_arrays *arrays, struct err_msg *msg);

/* Any lane: the table of a handle, counted in; to be left with table_leave(). NULL: no such table,
 * or not live:
 * *@ret_state says which (enum table_state). */
struct table *tables_enter(struct tables *tables, uint64_t handle, uint32_t *ret_state);

/* Any lane: table number @index; the caller knows that it exists. */
struct table *tables_at(struct tables *tables, uint16_t index);

/* What a client is told of a table. */
struct table_info {
    uint64_t handle;
    uint32_t table_id;
    uint32_t state; /* enum table_state */
    struct table_spec spec;
    uint64_t updated_rows; /* since the start, as those written */
    struct store_written written;
};

/* BUSY: @owner, a user, has as many tables as it may. */
MUST_CHECK enum embtier_err tables_create(struct tables *tables, const struct table_spec *spec,
                                          uid_t owner, bool if_not_exists,
                                          const struct progress_sink *progress,
                                          struct table_info *ret_info, struct err_msg *msg);
/* Whose a table is. */
struct table_owner {
    uid_t uid;   /* CATALOG_NOBODY: the server's user */
    bool had_it; /* in the store that it comes from: it counts, but is not refused for that */
};
/* BUSY: of @count more, this user may not have that many. */
MUST_CHECK enum embtier_err tables_check_owner(struct tables *tables,
                                               const struct table_owner *owner, uint32_t count,
                                               struct err_msg *msg);
/* If there is no room for a table whose home is an array: */
enum table_placing {
    TABLE_PLACED_AS_ASKED,  /* it is refused */
    TABLE_PLACED_AS_CAN_BE, /* another tier has it, or it is cached, with a line in the log */
};
/* Makes a table whose rows come from elsewhere, in state CREATING: rows are to be written with a
 * writer of tables_writer(), then it is to be published, or abandoned. @spec is as the catalog has
 * it, the version of initial values, uuid and step included. BUSY as above, and the
 * errors of table_arrays_take(). */
MUST_CHECK enum embtier_err tables_begin(struct tables *tables, const struct table_spec *spec,
                                         const struct table_owner *owner,
                                         enum table_placing placing, struct table_info *ret_info,
                                         struct err_msg *msg);
/* Which must be gone before the table is published or abandoned. @progress, borrowed until then, is
 * asked whether to go on; NULL: nobody is. */
MUST_CHECK enum embtier_err tables_writer(struct tables *tables, const struct table_info *info,
                                          const struct progress_sink *progress,
                                          struct row_writer **ret_writer, struct err_msg *msg);
/* NO_SPACE, with the figures (store_check_demand()): what is to be written has no room on disk.
 * Beforehand, so that nothing is made. */
MUST_CHECK enum embtier_err tables_check_demand(const struct tables *tables,
                                                const struct store_demand *demand, const char *what,
                                                struct err_msg *msg);
/* What it has of memory at most (row_writer_bytes()). */
uint64_t tables_writer_bytes(const struct tables *tables, uint64_t row_bytes);
/* Makes such tables live, all at once. */
MUST_CHECK enum embtier_err tables_publish(struct tables *tables, struct table_info *infos,
                                           uint32_t count, struct err_msg *msg);
/* Drops them. */
void tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count);
/* NO_TABLE. A table that is being made is found too, with its state; one that is being dropped has
 * given its name away. */
MUST_CHECK enum embtier_err tables_find(struct tables *tables, const char *name,
                                        struct table_info *ret_info, struct err_msg *msg);
/* Returns when the rows are gone from cache and SSD, or with the error that keeps them: then the
 * table is dropped all the same, and the next start tries to remove its rows. */
MUST_CHECK enum embtier_err tables_drop(struct tables *tables, const char *name,
                                        const struct progress_sink *progress,
                                        struct table_info *ret_info, struct err_msg *msg);
/* Those with ids above @after, @most of them: a malloced array in order of table id; and whether
 * there are more. */
MUST_CHECK enum embtier_err tables_page(struct tables *tables, uint32_t after, uint32_t most,
                                        struct table_info **ret_infos, uint32_t *ret_count,
                                        bool *ret_more);
/* Of all tables that there are or were since the start. */
struct tables_totals {
    uint64_t rows_initialised; /* made on first touch */
    uint64_t updated_bytes;    /* of rows, weights and state, as often as they were set */
};
struct tables_totals tables_totals(struct tables *tables);
uint32_t tables_count(struct tables *tables);
/* Of one durability. */
uint32_t tables_count_of(struct tables *tables, enum embtier_durability durability);
/* Borrowed, and read before there are threads that make and drop tables. */
const struct catalog *tables_catalog(const struct tables *tables);
/* For checkpoints. While they hold the tables, none is made, made live or dropped, and no rows of
 * those that are being made are written: whoever is about to waits. Requests do not. Those who have
 * begun are waited for. */
void tables_hold(struct tables *tables);
void tables_release(struct tables *tables);
/* A copy, as of now. */
MUST_CHECK enum embtier_err tables_catalog_copy(struct tables *tables, struct catalog **ret_catalog,
                                                struct err_msg *msg);
/* Writes into a copy, or the catalog itself, which step each table is at. For a checkpoint: at its
 * moment. */
void tables_note_steps(struct tables *tables, struct catalog *catalog);
/* catalog_settle() of such a copy with what the catalog is now. */
MUST_CHECK enum embtier_err tables_catalog_settle(struct tables *tables, struct catalog *copy,
                                                  struct err_msg *msg);
/* Long work under way gives up as soon as it can: the daemon stops. The next start drops what it
 * leaves half made. */
void tables_stop(struct tables *tables);

/* At a clean stop, when tables are made and dropped no more: the catalog is one file again. */
void tables_fold(struct tables *tables);

const char *table_state_word(uint32_t state);

#endif
