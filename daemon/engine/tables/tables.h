/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h: all tables of the running server: handles for the lanes; making, finding and dropping
 * tables.
 *
 * Lanes call tables_enter(), which takes no lock. The control thread finds, lists and counts
 * tables, under the tables' lock. No thread holds that lock while it waits for a disk. Everything
 * else is for threads of jobs, any number of them: it blocks, writes the catalog, and calls the
 * lanes. */
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

/* The store, the routes and the accounts are borrowed for as long as the tables exist. */
MUST_CHECK enum embtier_err tables_new(struct store *store, const struct row_routes *routes,
                                       struct accounts *accounts, struct tables **ret_tables,
                                       struct err_msg *msg);
void tables_free(struct tables *tables);
DEFINE_CLEANUP(struct tables, tables_free)

/* A function that learns the name of each table before a request can use the table: of those that
 * are loaded, made or restored. The tables are locked. */
typedef void tables_name_fn(void *context, uint16_t index, const char *name);
/* To be called before there are tables. */
void tables_tell_names(struct tables *tables, tables_name_fn *tell, void *context);

/* One act of a table's move, on one lane (rows_move_prepare() and its neighbours). */
struct table_move_act {
    enum {
        MOVE_PREPARE,
        MOVE_LOOK,
        MOVE_START,
        MOVE_STEP,
        MOVE_TURN_BACK,
        MOVE_ARRIVE,
        MOVE_END,
    } act;
    struct table *table;
    /* For MOVE_PREPARE: enum home_kind (rows/home.h), and the new home's memory. */
    uint8_t from;
    uint8_t to;
    struct row_array *array;
    uint64_t pinned_rows; /* the result of MOVE_LOOK: rows that have pins */
    uint32_t most_rows;   /* for MOVE_STEP */
    /* The results of MOVE_STEP: */
    uint64_t moved_rows;
    uint64_t left_rows;         /* in the old home */
    bool has_epoch;             /* rows stay where they are until a checkpoint's epoch ends */
    bool is_full;               /* a dirty row found no place */
    uint64_t spent_ns;          /* the lane's time */
    enum embtier_err write_err; /* why the lane's rows cannot be written */
};

/* Functions of a lane that tables call: to know a table, to forget its rows, and to move them. See
 * lane_add_table(), lane_purge_table() and lane_move_table(). */
struct tables_rows {
    enum embtier_err (*add)(struct lane *lane, const struct table *table);
    enum embtier_err (*purge)(struct lane *lane, const struct table *table,
                              const _Atomic bool *give_up);
    enum embtier_err (*move)(struct lane *lane, struct table_move_act *act);
};

/* A key of the configuration, as yaml_doc_mistake() takes it. */
struct tables_key {
    char text[40];
};

/* To be called when the lanes run. Registers the tables of the catalog. Drops tables that a crash
 * left half made or half dropped, with a log line each; those that cannot be dropped, such as on a
 * full disk, are left to the next start. @arrays is borrowed for as long as the tables exist.
 * CONFIG: the configuration no longer has memory for the tables whose home is an array; @ret_key is
 * the key that @msg is about. */
MUST_CHECK enum embtier_err tables_load(struct tables *tables, const struct tables_rows *rows,
                                        struct lane *const *lanes, uint32_t lane_count,
                                        struct table_arrays *arrays, struct tables_key *ret_key,
                                        struct err_msg *msg);

/* Any lane. Returns the table of a handle, and counts the caller in until table_leave(). NULL:
 * there is no such table, or it is not live; *@ret_state says which (enum table_state). */
struct table *tables_enter(struct tables *tables, uint64_t handle, uint32_t *ret_state);

/* Any lane. Returns table number @index, which the caller knows to exist. */
struct table *tables_at(struct tables *tables, uint16_t index);

/* Lookups of a table since the start. */
struct table_lookups {
    uint64_t rows;
    uint64_t missed_rows; /* of these: no memory had the row, and none was about to */
    uint64_t read_rows;   /* of these: read from SSD */
    uint64_t lane_ns;     /* estimate of the time that all lanes spent on them, without reads */
};

/* Bytes a day that go to SSD for a table. The tables themselves do not know them: zero, until the
 * caller fills them in. */
struct table_rates {
    bool is_known;
    double now, hour, day, week;
    uint64_t history_ms, history_bytes;
};

/* A table, as a client is told of it. */
struct table_info {
    uint64_t handle;
    uint32_t table_id;
    uint32_t state; /* enum table_state */
    struct table_spec spec;
    uint64_t updated_rows; /* since the start, as are the next two */
    struct table_lookups lookups;
    struct store_written written;
    uint64_t initial_bytes; /* of these: flushed while the table was made with all its rows */
    struct table_rates rates;
};

/* Makes a table. BUSY: the user @owner has as many tables as it may. */
MUST_CHECK enum embtier_err tables_create(struct tables *tables, const struct table_spec *spec,
                                          uid_t owner, bool if_not_exists,
                                          const struct progress_sink *progress,
                                          struct table_info *ret_info, struct err_msg *msg);
/* Finds a table with that specification, but makes none. NO_TABLE: there is none of that name;
 * MISMATCH: it is another; BUSY: it is still being made. */
MUST_CHECK enum embtier_err tables_find_equal(struct tables *tables, const struct table_spec *spec,
                                              struct table_info *ret_info, struct err_msg *msg);
/* The owner of a table. */
struct table_owner {
    uid_t uid;   /* CATALOG_NOBODY: the server's user */
    bool had_it; /* in the store the table comes from: it counts, but is not refused for that */
};
/* BUSY: the user may not have @count more tables. */
MUST_CHECK enum embtier_err tables_check_owner(struct tables *tables,
                                               const struct table_owner *owner, uint32_t count,
                                               struct err_msg *msg);
/* If there is no room for a table whose home is an array: */
enum table_placing {
    TABLE_PLACED_AS_ASKED,  /* the table is refused */
    TABLE_PLACED_AS_CAN_BE, /* another tier has it, or it is cached, with a line in the log */
};
/* Makes a table whose rows come from elsewhere, in state CREATING. The caller writes its rows with
 * a writer of tables_writer(), then publishes or abandons it. @spec is as the catalog has it,
 * including the version of initial values, uuid and step. BUSY as above, and the errors of
 * table_arrays_take(). */
MUST_CHECK enum embtier_err tables_begin(struct tables *tables, const struct table_spec *spec,
                                         const struct table_owner *owner,
                                         enum table_placing placing, struct table_info *ret_info,
                                         struct err_msg *msg);
/* Makes a writer, which must be gone before the table is published or abandoned. @progress is
 * borrowed until then, and is asked if the work is to go on; it may be NULL. */
MUST_CHECK enum embtier_err tables_writer(struct tables *tables, const struct table_info *info,
                                          const struct progress_sink *progress,
                                          struct row_writer **ret_writer, struct err_msg *msg);
/* NO_SPACE, with the figures (store_check_demand()): the rows have no room on disk. To be called
 * beforehand, so that nothing is made. */
MUST_CHECK enum embtier_err tables_check_demand(const struct tables *tables,
                                                const struct store_demand *demand, const char *what,
                                                struct err_msg *msg);
/* Returns how much memory a writer takes at most (row_writer_bytes()). */
uint64_t tables_writer_bytes(const struct tables *tables, uint64_t row_bytes);
/* Makes tables of tables_begin() live, all at once. */
MUST_CHECK enum embtier_err tables_publish(struct tables *tables, struct table_info *infos,
                                           uint32_t count, struct err_msg *msg);
/* Drops tables of tables_begin(). */
void tables_abandon(struct tables *tables, const struct table_info *infos, uint32_t count);
/* NO_TABLE. Also finds a table that is being made, with its state. A table that is being dropped
 * has given its name away. */
MUST_CHECK enum embtier_err tables_find(struct tables *tables, const char *name,
                                        struct table_info *ret_info, struct err_msg *msg);
/* Returns when the rows are gone from cache and SSD, or when an error keeps them. Then the table is
 * dropped all the same, and the next start tries to remove its rows. */
MUST_CHECK enum embtier_err tables_drop(struct tables *tables, const char *name,
                                        const struct progress_sink *progress,
                                        struct table_info *ret_info, struct err_msg *msg);
/* Ids of hot rows, in memory that a client may read and change meanwhile, so each is copied before
 * it is looked at. */
struct hot_ids {
    const void *ids; /* 64-bit each */
    uint64_t count;
};

/* Where a table is to live. */
struct table_move_opts {
    const char *name;
    enum embtier_home home;
    const char
        *tier; /* of an array or a split; "": the table's own tier, or the first one with room */
    uint64_t rate_bytes; /* a second, of rows; 0: as fast as a fifth of a lane's time allows */
    struct hot_ids hot;  /* of a split; borrowed until the move has ended */
    uint64_t hot_sum;    /* of these, as tables_move() computes it */
};
struct table_moved {
    struct table_info info; /* with its new home */
    uint64_t rows;          /* that have moved */
    bool was_there;         /* it had this home already; nothing was done */
};
/* Control thread. Refuses a move that cannot be made, as far as that shows without taking memory.
 */
MUST_CHECK enum embtier_err
tables_check_move(struct tables *tables, const struct table_move_opts *opts, struct err_msg *msg);
/* Moves the rows of a table to another home while requests go on (docs/internals/moves.md). Returns
 * when all have moved and the catalog says so. After an error the table is whole in its old home;
 * or in its new one, as the message says, if its rows could not go back. NO_TABLE; BUSY:
 * it is being made, or moves already; INVALID, TOO_LARGE, NO_MEMORY: table_arrays_take();
 * hot_set_take() and hot_set_store(); CANCELLED and DISCONNECTED, from @progress; SHUTDOWN. */
MUST_CHECK enum embtier_err tables_move(struct tables *tables, const struct table_move_opts *opts,
                                        const struct progress_sink *progress,
                                        struct table_moved *ret_moved, struct err_msg *msg);
/* Has the move of a table that is to be dropped end soon. Does nothing if it does not move. */
void tables_end_move(struct tables *tables, const char *name);
/* Lists tables with ids above @after, at most @most, in a malloced array in order of table id.
 * *@ret_more says if there are more. */
MUST_CHECK enum embtier_err tables_page(struct tables *tables, uint32_t after, uint32_t most,
                                        struct table_info **ret_infos, uint32_t *ret_count,
                                        bool *ret_more);
/* Sums over all tables that there are or were since the start. */
struct tables_totals {
    uint64_t rows_initialised; /* made on first touch */
    uint64_t updated_bytes;    /* of rows, weights and state, each time they were set */
};
struct tables_totals tables_totals(struct tables *tables);
uint32_t tables_count(struct tables *tables);
/* Counts the tables with one durability. */
uint32_t tables_count_of(struct tables *tables, enum embtier_durability durability);
/* Borrowed. To be read before there are threads that make and drop tables. */
const struct catalog *tables_catalog(const struct tables *tables);
/* For checkpoints. While a checkpoint holds the tables, none is made, made live or dropped, and no
 * rows of tables that are being made are written. Threads that are about to do so wait; requests do
 * not. tables_hold() waits for threads that have begun. */
void tables_hold(struct tables *tables);
void tables_release(struct tables *tables);
/* Returns a copy of the catalog as of now. */
MUST_CHECK enum embtier_err tables_catalog_copy(struct tables *tables, struct catalog **ret_catalog,
                                                struct err_msg *msg);
/* Writes the step of each table into a copy, or into the catalog itself. A checkpoint does this at
 * its moment. */
void tables_note_steps(struct tables *tables, struct catalog *catalog);
/* Brings such a copy up to the present catalog (catalog_settle()). */
MUST_CHECK enum embtier_err tables_catalog_settle(struct tables *tables, struct catalog *copy,
                                                  struct err_msg *msg);
/* Makes long work give up as soon as it can: the daemon stops. The next start drops tables that are
 * left half made. */
void tables_stop(struct tables *tables);

/* Makes the catalog one file again. To be called at a clean stop, when no more tables are made or
 * dropped. */
void tables_fold(struct tables *tables);

const char *table_state_word(uint32_t state);

#endif
