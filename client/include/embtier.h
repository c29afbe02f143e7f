/* SPDX-License-Identifier: Apache-2.0 */
/* embtier.h: libembtier, the C client of the embedding server embtierd.
 *
 *   struct embtier *server;
 *   struct embtier_table *users;
 *   struct embtier_batch *batch;
 *   embtier_connect(NULL, &server);
 *   embtier_table_open(server, "users", &users);
 *   embtier_batch_new(server, (struct embtier_part[]){ { users, 2 } }, 1, &batch);
 *   embtier_batch_ids(batch, 0)[0] = 7;
 *   embtier_batch_ids(batch, 0)[1] = 9;
 *   embtier_get(batch);
 *   const float *rows = embtier_batch_rows(batch, 0);   // 2 x dim numbers
 *
 * Shapes. A batch is any number of parts, each one table and any number of row ids; a table may
 * stand in several parts. Ids are unsigned 64-bit. Rows of a part lie one after another, dim
 * numbers of the table's dtype each, in the order of the ids. In a batch with state, each row's
 * weights are followed by its optimizer's state. Ids and rows lie in memory shared with the server:
 * the library copies neither.
 *
 * Order. Requests of one connection that touch the same row take effect in the order they were
 * submitted. A row is read and written whole; a batch is not atomic over rows; a batch that is
 * refused (any error but IO, NO_SPACE, CORRUPT and DISCONNECTED) changed nothing. The same id twice
 * in a SET: the last one wins; in a push: what it gets is added up.
 *
 * Errors. Functions return enum embtier_err (embtier_err.h); embtier_message() has the details of
 * the last failure on a connection. Outputs are untouched on failure. After DISCONNECTED, and after
 * TIMEOUT where it is the server that was silent for timeout_ms, it is not known what came of that
 * which the server was to make, drop or delete: it may have been done, or may be yet. The lists of
 * tables and checkpoints say. What is said below of failures is of all others.
 *
 * Threads. A connection and everything made from it is used by one thread at a time; different
 * connections are independent. Connections do not survive fork(): the child must not use them, not
 * even to disconnect, and makes its own. A progress function must not call back into its
 * connection. The one thread of the library's own, which an export has while it lasts, blocks all
 * signals: an application's handlers do not run on it.
 *
 * Lifetimes. Tables, batches and groups end with their connection at the latest;
 * embtier_disconnect() frees them all. Pointers into a batch are good until embtier_batch_free() or
 * embtier_disconnect(), also after the server is gone. */
#ifndef EMBTIER_H
#define EMBTIER_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_err.h"
#include "embtier_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef EMBTIER_PUBLIC
#define EMBTIER_PUBLIC __attribute__((visibility("default")))
#endif
#define EMBTIER_MUST_CHECK __attribute__((warn_unused_result))

struct embtier;
struct embtier_table;
struct embtier_scan;
struct embtier_load;
struct embtier_batch;
struct embtier_group;

/* ---- Errors ---- */

EMBTIER_PUBLIC const char *embtier_err_name(enum embtier_err err); /* "NO_TABLE" */
EMBTIER_PUBLIC const char *embtier_err_text(enum embtier_err err); /* "no such table" */
/* One line about the last failed call on @server, until the next one; with NULL: of the last
 * embtier_connect() of this thread. Never NULL. Plain text whatever it quotes: what moves a
 * terminal's cursor, is not seen or is not UTF-8 is escaped, and what is long is cut. */
EMBTIER_PUBLIC const char *embtier_message(const struct embtier *server);
EMBTIER_PUBLIC const char *embtier_version(void); /* "0.1.0" */

/* ---- Connection ---- */

struct embtier_connect_options {
    size_t struct_bytes;     /* sizeof(struct embtier_connect_options): set by
                                EMBTIER_CONNECT_OPTIONS_INIT */
    const char *socket_path; /* NULL: $EMBTIER_SOCKET, else the server's default;
                                PERMISSION if that may be another user's */
    uint64_t arena_bytes;    /* shared memory for ids and rows; 0: control messages only */
    uint32_t max_in_flight;  /* requests submitted and not done; 1 … 1024 */
    uint32_t timeout_ms;     /* for connecting and for control messages; 0: wait for ever */
    const char *client_name; /* for the server's log, at most 128 bytes; NULL: "libembtier" */
};
#define EMBTIER_CONNECT_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(struct embtier_connect_options), NULL, 64 << 20, 64, 10000, NULL                    \
    }

/* NULL: EMBTIER_CONNECT_OPTIONS_INIT. UNREACHABLE when no server listens; BUSY: no more sessions or
 * shared memory are left, or for this user: the message names the key. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_connect(const struct embtier_connect_options *options, struct embtier **ret_server);
/* Requests in flight are abandoned: a SET among them may happen, not happen, or happen to some of
 * its rows. NULL is allowed. */
EMBTIER_PUBLIC void embtier_disconnect(struct embtier *server);
/* Makes a new session with the same options after DISCONNECTED; while the old one is alive it does
 * nothing. Tables opened before are opened again by name; batches keep their ids and rows, at the
 * same addresses, and can be submitted again. Requests that were in flight have failed; tickets are
 * gone, and memberships of groups too. A table that is gone does not keep others from coming back:
 * requests to it fail with NO_TABLE. MISMATCH when a table has come back with another dim or dtype,
 * or if a batch has its state with another optimizer (close it, and free its batches), or the
 * server grants less memory than before. BUSY when the memory of both sessions is more than this
 * user may have: that of the old one counts until then. On failure nothing has changed, and it can
 * be tried again. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_reconnect(struct embtier *server);

/* ---- Tables ---- */

struct embtier_table_options {
    size_t struct_bytes; /* set by EMBTIER_TABLE_OPTIONS_INIT */
    const char *name;
    uint64_t rows; /* or EMBTIER_UNBOUNDED */
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    enum embtier_init init;
    double init_first; /* see EMBTIER_INIT_TABLE */
    double init_second;
    uint64_t seed;
    int eager;         /* nonzero: write every row now */
    int if_not_exists; /* nonzero: an existing table of the same options is fine */
    /* Called now and then while a long creation or drop goes on; may be NULL. */
    void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit);
    void *progress_context;
    /* Of the optimizer, see EMBTIER_HYPERPARAMETER_TABLE. EMBTIER_DEFAULT: its default, or none;
     * one that it does not have is INVALID, unless it is 0. */
    double eps;
    double alpha;
    double beta1;
    double beta2;
    double weight_decay;
    double clip_norm;
    int rounds_to_nearest; /* nonzero: f16 and bf16 weights after an update; else stochastically */
    int allows_nonfinite;  /* nonzero: gradients, and rows after an update, may have NaN and
                              infinity; else a push that brings or makes them is refused */
    enum embtier_durability durability; /* of updates; the default is EMBTIER_DURABILITY_REPLAY */
    double momentum;                    /* as beta2 */
};
#define EMBTIER_TABLE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct embtier_table_options), NULL, EMBTIER_UNBOUNDED, 0, EMBTIER_DTYPE_F32,       \
            EMBTIER_OPTIMIZER_NONE, EMBTIER_INIT_ZEROS, 0, 0, 0, 0, 0, NULL, NULL,                 \
            EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT,   \
            EMBTIER_DEFAULT, 0, 0, EMBTIER_DURABILITY_REPLAY, EMBTIER_DEFAULT                      \
    }

/* A table's description; strings are borrowed from the handle or list it came from. */
struct embtier_table_info {
    const char *name;
    uint32_t table_id;
    uint64_t rows;
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    enum embtier_init init;
    double init_first;
    double init_second;
    uint64_t seed;
    int eager;
    uint32_t weight_bytes; /* of one row in a batch */
    uint32_t state_bytes;  /* of one row's optimizer state; 0: it has none */
    const char *state;     /* "creating", "live", "dropping" */
    /* As of when the table was opened or listed, since the server started: */
    uint64_t updated_rows; /* a row as often as it was set */
    uint64_t flush_bytes;  /* written to SSD for this table */
    uint64_t compaction_bytes;
    /* As it was made: */
    double eps; /* this and the next: 0 where the optimizer does not have it */
    double alpha;
    double beta1;
    double beta2;
    double weight_decay;
    double clip_norm;
    int rounds_to_nearest;
    int allows_nonfinite;
    enum embtier_durability durability;
    double momentum; /* as beta2 */
    /* Checkpoints, exports and imports take these two along with the rows: */
    const char *uuid; /* 32 hex digits, of the table that was created; a copy of it, restored or
                         imported, has the same; "": none */
    uint64_t step;    /* the greatest that a push which changed rows had, as of when the table was
                         opened or listed; 0: no push, or the optimizer's state was left out of an
                         import */
};

/* EXISTS, INVALID (with the reason in the message); BUSY: the user may have no
 * more than three quarters of the tables that others leave. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_create(struct embtier *server, const struct embtier_table_options *options,
                     struct embtier_table **ret_table);
/* NO_TABLE; BUSY: it is still being created. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_open(struct embtier *server, const char *name, struct embtier_table **ret_table);
/* The same, but MISMATCH unless the table has this @dim (0: any) and @dtype (0: any). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_open_as(struct embtier *server, const char *name, uint32_t dim, int dtype,
                      struct embtier_table **ret_table);
/* Returns when all of the table's rows are gone. Requests to it that are under way end first or
 * fail with DROPPED. If the client goes while the drop waits for others, it is withdrawn and the
 * table stays; one that has begun is finished. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_drop(struct embtier *server, const char *name,
                   void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
                   void *progress_context);
EMBTIER_PUBLIC const struct embtier_table_info *
embtier_table_info(const struct embtier_table *table);
EMBTIER_PUBLIC void embtier_table_close(struct embtier_table *table); /* forgets the handle */

struct embtier_table_list;
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_list(struct embtier *server, struct embtier_table_list **ret_list);
EMBTIER_PUBLIC size_t embtier_table_list_count(const struct embtier_table_list *list);
EMBTIER_PUBLIC const struct embtier_table_info *
embtier_table_list_at(const struct embtier_table_list *list, size_t index);
EMBTIER_PUBLIC void embtier_table_list_free(struct embtier_table_list *list);

/* ---- Checkpoints ---- */

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
    int has_step;
    uint64_t step; /* any number, by which the trainer finds it again */
    const char
        *metadata; /* JSON of at most EMBTIER_METADATA_MAX bytes without line breaks, or NULL */
    uint32_t keep; /* afterwards this user's oldest are deleted, but for so many; 0: none is */
    int automatic; /* nonzero: it counts as one of the server's own, which deletes it in time */
};

struct embtier_checkpoint_list;

/* Returns when it is complete on disk; requests of all clients go on meanwhile. @options may be
 * NULL. The list that comes back has one entry. INVALID (the metadata is no JSON), NO_SPACE, IO,
 * SHUTDOWN, BUSY (updates under way did not end in a minute; the message names the session; or the
 * user has as many as it may): there
 * is no new checkpoint then (but see Errors, above). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_checkpoint_create(
    struct embtier *server, const struct embtier_checkpoint_options *options,
    void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
    void *progress_context, struct embtier_checkpoint_list **ret_list);
/* Oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_list(struct embtier *server, struct embtier_checkpoint_list **ret_list);
/* One, with the names of its tables. NOT_FOUND. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_checkpoint_show(struct embtier *server, uint64_t id,
                        struct embtier_checkpoint_list **ret_list);
/* Reads every byte of its files and compares checksums. NOT_FOUND; CORRUPT: the message names the
 * file. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_checkpoint_verify(
    struct embtier *server, uint64_t id,
    void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
    void *progress_context);
/* Makes tables as they were: @tables, @table_count of them (0: all), as new tables of the names
 * that they had, or one of them as @name (NULL: as it was). Tables that there are stay as they are:
 * EXISTS if one of the names is taken; NOT_FOUND: no such checkpoint; NO_TABLE: it has no such
 * table; BUSY, TOO_LARGE: no memory is left for it now, or ever is enough; CORRUPT; NO_SPACE,
 * at once and with the figures if the rows have no room on the server's disk; and the like. After a
 * failure none is made (but see Errors, above). @ret_list are the tables
 * that were made; nobody can open them before they are safe from a crash. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_checkpoint_restore(
    struct embtier *server, uint64_t id, const char *const *tables, size_t table_count,
    const char *name,
    void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
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

/* ---- Jobs ---- */

/* Work that takes long, such as making all rows of a table, restoring, dropping, checkpoints, and
 * the steps of exports and imports: it waits for its turn, or runs. It waits for others of its
 * kind, in which users take turns, and for those that make or drop a table of the same name. */
struct embtier_job {
    uint64_t id;      /* counts up, from the server's start */
    const char *kind; /* "table drop" */
    const char *what; /* a table, or a checkpoint's number; or "" */
    uint32_t uid;     /* whose */
    uint64_t pid;
    int is_own; /* nonzero: the server's, of no client */
    int runs;   /* zero: it waits, and has done nothing */
    uint64_t age_ms;
    uint64_t done; /* of total; 0 and 0: nothing is known yet */
    uint64_t total;
    const char *unit; /* "rows" */
};
struct embtier_job_list;
/* Those of all users, oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_job_list(struct embtier *server, struct embtier_job_list **ret_list);
EMBTIER_PUBLIC size_t embtier_job_list_count(const struct embtier_job_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_job *embtier_job_list_at(const struct embtier_job_list *list,
                                                             size_t index);
EMBTIER_PUBLIC void embtier_job_list_free(struct embtier_job_list *list);
/* One that waits does nothing any more; one that runs stops soon and takes back what it has done,
 * unless it was just done: *@ret_runs (may be NULL) says which it is. The client that asked gets
 * CANCELLED. A user's own, or by root and the user of the server. NOT_FOUND; PERMISSION; INVALID:
 * it runs, and goes on to its end, as drops and checkpoints do. Imports and exports have one number
 * each from their begin to their end, and end with the step that is under way. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_job_cancel(struct embtier *server,
                                                                      uint64_t id, int *ret_runs);

/* ---- Scans ---- */

/* All rows of a table of a checkpoint, in order of their ids: what an export reads. */
struct embtier_scan_options {
    uint64_t checkpoint; /* 0: the newest */
    int with_state;      /* nonzero: rows with their optimizer's state; else weights only */
    int all_rows; /* nonzero: rows that were never written too, with their initial values; not of an
                     unbounded table */
    uint64_t buffer_bytes; /* of the arena, used by halves; 0: 16 MiB, or half of what is free if
                              that is less. More is of no use */
};

/* Some rows. */
struct embtier_scan_rows {
    uint32_t count; /* 0: there are no more */
    const uint64_t
        *ids; /* of the rows; NULL in a scan of all rows: they are first_id, first_id + 1, … */
    uint64_t first_id;
    const void *rows; /* row behind row, row_bytes each: weights, and state if it was asked for */
    uint32_t row_bytes;
};

/* A connection has one at a time. NOT_FOUND: no such checkpoint; NO_TABLE: it has no such table;
 * INVALID (all rows of an unbounded table), ARENA_FULL, CORRUPT; BUSY: there is a scan, or eight
 * are open in the server, or six of this user (three quarters of what others leave), or no memory
 * is left for one more; TOO_LARGE: there
 * never is enough (checkpoints.transfer_bytes). The checkpoint cannot be deleted meanwhile. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_scan_open(struct embtier *server, const char *table,
                  const struct embtier_scan_options *options, struct embtier_scan **ret_scan);
/* The table as it was; borrowed from the scan. */
EMBTIER_PUBLIC const struct embtier_table_info *embtier_scan_table(const struct embtier_scan *scan);
/* Rows that will come: exact if it is a scan of all rows, else an estimate. */
EMBTIER_PUBLIC uint64_t embtier_scan_row_count(const struct embtier_scan *scan);
EMBTIER_PUBLIC uint64_t embtier_scan_checkpoint(const struct embtier_scan *scan);
/* The next rows, in memory shared with the server: good until the next call but one, so that some
 * can be worked on while the next are fetched. They are as many as half of the buffer has room for,
 * or fewer: 8 MiB and 65,536 rows are the most at a time, so that exports take turns. After a
 * failure only the close may follow. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_scan_next(struct embtier_scan *scan, struct embtier_scan_rows *ret_rows);
/* Before embtier_disconnect(). NULL is allowed. */
EMBTIER_PUBLIC void embtier_scan_close(struct embtier_scan *scan);

/* ---- Loads ---- */

/* A new table with rows of the caller's: what an import writes. Nobody else can open the table
 * before embtier_load_end(); without it, there is none. A connection has one load at a time. */
struct embtier_load_buffer {
    uint64_t *ids;     /* room for `capacity` of them */
    void *rows;        /* and for as many rows: weights, and state if they come with it */
    uint32_t capacity; /* at least 1 */
    uint32_t row_bytes;
};

/* @with_state nonzero: rows come with their optimizer's state, else it begins as zeros.
 * @buffer_bytes of the arena; 0: 8 MiB, or half of what is free if that is less. EXISTS, INVALID,
 * ARENA_FULL; BUSY: this connection has a load, or eight are open in the server, or six of this
 * user (three quarters of what others leave), or no memory is left for one more; TOO_LARGE: there
 * never is enough; VERSION: rows that never come would have initial values that the server does not
 * know. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_load_open(struct embtier *server, const struct embtier_table_options *table, int with_state,
                  uint64_t buffer_bytes, struct embtier_load **ret_load);
/* In memory shared with the server; the caller's between two calls with this load. */
EMBTIER_PUBLIC struct embtier_load_buffer embtier_load_buffer(const struct embtier_load *load);
/* Takes the buffer's first @count rows. Of one id the last row counts; rows that never come have
 * their initial values. ID_RANGE, NO_SPACE, IO, TIMEOUT: the load is over but for its close. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_load_rows(struct embtier_load *load,
                                                                     uint32_t count);
/* Returns when the table is there with all its rows, safe from a crash; after a failure there is
 * none (but see Errors, above). Only the close may follow. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_load_end(struct embtier_load *load,
                 void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
                 void *progress_context);
/* Before embtier_disconnect(). NULL is allowed. */
EMBTIER_PUBLIC void embtier_load_close(struct embtier_load *load);

/* ---- Export and import ---- */

#define EMBTIER_CHECKPOINT_NEWEST UINT64_MAX

struct embtier_export_options {
    uint64_t checkpoint; /* as the table is in it; 0: as it is now, for which a checkpoint is made;
                            or EMBTIER_CHECKPOINT_NEWEST */
    int with_state;      /* nonzero: the optimizer's state too */
    int all_rows; /* nonzero: rows that were never written too, with their initial values; not of an
                     unbounded table */
    int npy;      /* nonzero: NumPy's .npy files, one for each tensor; else safetensors */
    uint64_t file_bytes; /* a file has no more, about; 0: 4 GiB. Until it ends it is a file with
                            holes, up to four times as long as the rows that are expected */
};

struct embtier_exported {
    uint64_t checkpoint;
    uint64_t rows;
    uint64_t bytes; /* of all files */
    uint32_t parts;
};

/* Writes a table to the folder @path, which it makes: files of the tensors `weight` [rows, dim] of
 * the table's dtype, with state `state` [rows, state numbers of a row] of f32, and, unless it is of
 * all rows, `ids` [rows], in order of ids; and table.json, which says what the table is and which
 * rows lie where. The folder is whole, or not there. Memory: the arena's, and some MiB.
 * @options may be NULL, @ret_exported too. EXISTS: there is something at @path, or in PATH.partial,
 * where it is made, that no unfinished export of this user has left; LOCKED: another export makes
 * it; INVALID: @path is empty, or ends in .partial, or file_bytes are so few that it would be more
 * than 16,384 files of each tensor; BUSY: eight exports are under way in the server, or six of
 * this user (three quarters of what others leave), or no memory is left for one more; and as
 * embtier_scan_open() and embtier_checkpoint_create(); NO_SPACE, IO. @progress is told of rows; a
 * total of 0 is one that is not known. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_export(struct embtier *server, const char *table, const char *path,
               const struct embtier_export_options *options,
               void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
               void *progress_context, struct embtier_exported *ret_exported);

struct embtier_import_options {
    /* What the table is to be, but for its name, dim, dtype and rows, which are not read. For files
     * that are no export of embtier's, which says all of that itself: then NULL. NULL otherwise:
     * EMBTIER_TABLE_OPTIONS_INIT. */
    const struct embtier_table_options *table;
    int durability;       /* enum embtier_durability: another than the export's; -1: as it says */
    int without_state;    /* nonzero: state in the file is left out, and begins as zeros */
    const char *tensor;   /* of a safetensors file: the weights. NULL: `weight`, or the only one of
                             two dimensions */
    const char *ids_path; /* a .npy file of the rows' ids; NULL: the file's tensor `ids`; without
                             either they are rows 0, 1, … */
    uint64_t rows;        /* of the table, of files that are no export: a number,
                             EMBTIER_UNBOUNDED, or EMBTIER_ROWS_OF_FILE */
};
/* As many rows as the file has, or, with ids, unbounded. */
#define EMBTIER_ROWS_OF_FILE UINT64_MAX
#define EMBTIER_IMPORT_OPTIONS_INIT                                                                \
    {                                                                                              \
        NULL, -1, 0, NULL, NULL, EMBTIER_ROWS_OF_FILE                                              \
    }

struct embtier_imported {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    uint64_t rows;
    uint64_t bytes; /* of rows, as they lie in the files */
};

/* Makes table @name (NULL: the name that the export says) of @path: a folder that embtier_export()
 * made, a safetensors or a .npy file, or a folder of safetensors files with an index
 * (NAME.safetensors.index.json), which says which of them has the tensor. Shapes and dtypes of all
 * files are checked before the first row is read. The last row of an id counts. The table is there
 * when it is whole and safe from a crash; after a failure there is none (but see Errors, above, if
 * it came after the last row).
 * @options may be NULL, @ret_imported too. EXISTS: the name is taken; NOT_FOUND, INVALID, MISMATCH,
 * UNSUPPORTED, TOO_LARGE, VERSION, CORRUPT (an export's file is not what it was): of the files,
 * with the reason in the message; NO_SPACE, at once and with the figures: the rows have no room on
 * the server's disk; INVALID also for one file of an export whose rows would get the
 * ids of others; ID_RANGE: an id is not below the number of rows, or negative, or the file has more
 * rows; BUSY: eight loads are open in the server, or six of this user (three
 * quarters of what others leave); and as embtier_load_open()
 * and embtier_load_rows(). @progress is told of rows, first of 0 when the server has begun. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_import(struct embtier *server, const char *name, const char *path,
               const struct embtier_import_options *options,
               void (*progress)(void *context, uint64_t done, uint64_t total, const char *unit),
               void *progress_context, struct embtier_imported *ret_imported);

/* ---- Batches ---- */

struct embtier_part {
    struct embtier_table *table;
    uint32_t count; /* ids */
};

/* Takes room for ids and rows out of the shared arena. ARENA_FULL (with the bytes needed and free
 * in the message) when there is none; TOO_LARGE when the ids are more than the server takes in one
 * request. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new(struct embtier *server, const struct embtier_part *parts, uint32_t part_count,
                  struct embtier_batch **ret_batch);
/* The same with whole rows: GET fills weights and state, SET stores both. A row lies as the server
 * has it, weight_bytes of weights, then state_bytes of state, which are f32 numbers whatever the
 * table's dtype: see embtier_batch_state(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_with_state(struct embtier *server, const struct embtier_part *parts,
                             uint32_t part_count, struct embtier_batch **ret_batch);
/* BUSY while the request is in flight; embtier_wait() first. NULL is allowed. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_free(struct embtier_batch *batch);
/* Changes the number of ids of a part to at most what it was made with; not while in flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_count(struct embtier_batch *batch, uint32_t part, uint32_t count);

/* A batch of embedding bags: each part is one table, some ids, and bags that each have a run of
 * these ids. The server answers with one vector per bag. */
struct embtier_bag_part {
    struct embtier_table *table;
    uint32_t count; /* ids */
    uint32_t bag_count;
    enum embtier_pool mode;
    int weighted; /* nonzero: each id has a weight; not with EMBTIER_POOL_MAX */
};

/* As embtier_batch_new(), for embtier_get_pooled(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_bags(struct embtier *server, const struct embtier_bag_part *parts,
                       uint32_t part_count, struct embtier_batch **ret_batch);
/* Changes the numbers of ids and bags of a part to at most what it was made with; not while in
 * flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_bags(struct embtier_batch *batch, uint32_t part, uint32_t count,
                       uint32_t bag_count);
/* Shared memory, as ids and rows are; NULL in a batch that has none. Offsets: bag_count + 1
 * numbers, bag b has the ids from offsets[b] up to, and without, offsets[b + 1]; the first is 0 and
 * the last the number of ids. */
EMBTIER_PUBLIC uint32_t *embtier_batch_offsets(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC float *embtier_batch_weights(struct embtier_batch *batch, uint32_t part);
/* bag_count x dim numbers, f32 whatever the table's dtype: what the lookup has written, and then,
 * if it gave a ticket, the gradients that the caller puts in their place for embtier_push(). */
EMBTIER_PUBLIC float *embtier_batch_bags(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC uint32_t embtier_batch_bag_count(const struct embtier_batch *batch, uint32_t part);

/* The ticket of the last lookup, if that asked for one and the batch still has it; else 0. Under it
 * the server keeps the ids, offsets and weights that were looked up, so the batch's own may change.
 * A push or a release takes it along when it is submitted; if it is refused the batch has it back.
 * While it has it, other lookups and embtier_batch_set_bags() are INVALID. Of a lookup in flight
 * there is none before embtier_poll() or embtier_wait() has the result.
 *
 * The server keeps a ticket for a limited time, then it has expired: so does that of a batch that
 * is freed. Tickets end with their connection at the latest.
 *
 * Of a batch made by embtier_batch_new_prefetch(): the number of its prefetch, of which all this is
 * as true. */
EMBTIER_PUBLIC uint64_t embtier_batch_ticket(const struct embtier_batch *batch);

/* The step of the batch's last request if that was a push which the server has applied, and whose
 * result embtier_poll() or embtier_wait() has seen; else 0. A caller that was interrupted between a
 * push and its own note of it asks here. */
EMBTIER_PUBLIC uint64_t embtier_batch_pushed_step(const struct embtier_batch *batch);
/* @skipped nonzero: in the push by the ticket that the batch has, the part's gradients are all
 * zeros, whatever is in their place; a table of which all parts are skipped stays as it is. Until
 * the next lookup. INVALID without a ticket. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_skipped(struct embtier_batch *batch, uint32_t part, int skipped);

/* As embtier_batch_new(), for a push by rows: it has ids, each of them as often as one likes, and
 * gradients in the place of rows. embtier_batch_set_count() changes how many. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_push(struct embtier *server, const struct embtier_part *parts,
                       uint32_t part_count, struct embtier_batch **ret_batch);
/* As embtier_batch_new(), for embtier_prefetch(): it has ids, each of them as often as one likes,
 * and no rows. embtier_batch_set_count() changes how many, while it has no prefetch. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_new_prefetch(struct embtier *server, const struct embtier_part *parts,
                           uint32_t part_count, struct embtier_batch **ret_batch);
/* Shared memory, aligned to 64 bytes, f32 whatever the table's dtype: count x dim numbers of a
 * batch made for a push by rows, bag_count x dim numbers of a batch of bags, where it is the memory
 * of the bags; NULL for other batches. */
EMBTIER_PUBLIC float *embtier_batch_gradients(struct embtier_batch *batch, uint32_t part);
/* Of a batch made by embtier_batch_new_push(): adds up the gradients of equal ids, in their order,
 * over all parts of a table; afterwards each id stands once, in the part that had it first, ids
 * ascend and counts are lower. embtier_batch_set_count() may raise them again. It is optional: the
 * server does the same to a push that has an id several times, and ends up with the same bytes;
 * this way the trainer does it, and less is sent to the server (the local half of local and global
 * gradient coalescing). NONFINITE then says where in the sums a number is not finite. NO_MEMORY;
 * BUSY in flight; INVALID for other batches. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_coalesce(struct embtier_batch *batch);

EMBTIER_PUBLIC uint32_t embtier_batch_part_count(const struct embtier_batch *batch);
EMBTIER_PUBLIC uint32_t embtier_batch_count(const struct embtier_batch *batch, uint32_t part);
/* Shared memory; ids aligned to 8 bytes, rows to 64. Not to be touched between submit and done. */
EMBTIER_PUBLIC uint64_t *embtier_batch_ids(struct embtier_batch *batch, uint32_t part);
EMBTIER_PUBLIC void *embtier_batch_rows(struct embtier_batch *batch, uint32_t part);
/* From one row of a part to the next: weight_bytes, or with state weight_bytes + state_bytes. 0 in
 * a batch that has no rows. */
EMBTIER_PUBLIC uint32_t embtier_batch_row_bytes(const struct embtier_batch *batch, uint32_t part);
/* The state of a part's first row; that of the next is embtier_batch_row_bytes() further. As many
 * f32 numbers as the optimizer keeps: adam all first moments, then all second moments. They are
 * aligned to 4 bytes, but in f16 and bf16 tables of odd dim to 2 bytes: memcpy() there. NULL in a
 * batch made without state, and for a table whose optimizer has none. */
EMBTIER_PUBLIC void *embtier_batch_state(struct embtier_batch *batch, uint32_t part);
/* Rows of the last finished request that were served from the server's cache. */
EMBTIER_PUBLIC uint64_t embtier_batch_hit_rows(const struct embtier_batch *batch);

/* ---- Groups of trainers ---- */

/* Trainers of one model, each with its own part of every batch (data parallel), are the members of
 * a group: what is a step for one trainer alone is one push of each member. Each push is reduced to
 * one gradient for each of its rows; these are added up in the order of the members' numbers, and
 * the optimizer runs once for each row. The same pushes give the same bytes, whoever comes first.
 *
 * A member's push is answered when the step has been applied, and so after the pushes of all;
 * requests of its connection that come later wait behind it, so that a lookup of the next step sees
 * what all members have pushed. A connection may be a member of several groups; all their members
 * push to them in the same order, else they wait for each other. */
struct embtier_group_options {
    size_t struct_bytes; /* set by EMBTIER_GROUP_OPTIONS_INIT */
    const char *name;    /* made as a table's is; copied */
    uint32_t size;       /* members in all, 1 … EMBTIER_GROUP_MEMBERS_MAX */
    uint32_t member;     /* which this is, 0 … size - 1 */
    uint64_t step;       /* the last that is done, the same for all; 0: none */
};
#define EMBTIER_GROUP_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct embtier_group_options), NULL, 0, 0, 0                                        \
    }

/* Does not wait for the others; pushes do. The membership ends with the session, or by
 * embtier_group_leave(). Then the group is broken: pushes of the others fail with GROUP_BROKEN,
 * those that wait do so at once, and the name is free for all of them to join anew.
 *
 * INVALID: options not as above, or a connection without an arena. MISMATCH: the group is of
 * another size, or at another step. EXISTS: the number is taken, or this session is a member
 * already. GROUP_FULL: all members are there. TOO_LARGE: this session has joined too many. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_group_join(struct embtier *server, const struct embtier_group_options *options,
                   struct embtier_group **ret_group);
/* Ends the membership, as the end of the session would: it breaks the group. The handle stays, and
 * its step. NO_GROUP: the membership has ended with its session. DISCONNECTED, PROTOCOL. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_group_leave(struct embtier_group *group);
/* Forgets the handle; the session stays a member. NULL is allowed. */
EMBTIER_PUBLIC void embtier_group_free(struct embtier_group *group);
EMBTIER_PUBLIC const char *embtier_group_name(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_size(const struct embtier_group *group);
EMBTIER_PUBLIC uint32_t embtier_group_member(const struct embtier_group *group);
/* The last step that is known here to be done: that of the joining, then that of this member's last
 * push which has succeeded and whose result has been seen. */
EMBTIER_PUBLIC uint64_t embtier_group_step(const struct embtier_group *group);

/* From now on GETs, SETs and pooled lookups of @batch are of @step of @group, until the next call;
 * NULL: of none. The server refuses them with GROUP_STEP if this member has not pushed the step
 * before: they see what all steps before @step have made of the rows, or fail. NO_GROUP. INVALID:
 * @group is another connection's, or @step over 2^53 - 1. BUSY in flight. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_batch_set_group(struct embtier_batch *batch, struct embtier_group *group, uint64_t step);

/* The number of the member that the batch's last result is about: that of GROUP_REFUSED and
 * GROUP_BROKEN, and of the TIMEOUT of a push. Else UINT32_MAX. */
EMBTIER_PUBLIC uint32_t embtier_batch_blamed_member(const struct embtier_batch *batch);
/* After GROUP_REFUSED: what that member's push was refused for. Else OK. */
EMBTIER_PUBLIC enum embtier_err embtier_batch_blamed_err(const struct embtier_batch *batch);

/* ---- Requests ---- */

enum embtier_op {
    EMBTIER_GET = 1,        /* fills the rows */
    EMBTIER_SET = 2,        /* stores the rows; optimizer state stays, unless the batch has it */
    EMBTIER_GET_POOLED = 3, /* fills the bags; of a batch made by embtier_batch_new_bags() */
    EMBTIER_PUSH = 4,       /* by embtier_push() and embtier_submit_push() only: it has options */
    EMBTIER_RELEASE = 5,    /* the batch's ticket or prefetch is not needed any more */
    EMBTIER_GET_POOLED_TICKET = 6, /* as EMBTIER_GET_POOLED, with a ticket for a push */
    EMBTIER_PREFETCH = 7, /* rows come into DRAM; of a batch made by embtier_batch_new_prefetch() */
};

/* Submit and wait, first for a free slot if need be. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_get(struct embtier_batch *batch);
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_set(struct embtier_batch *batch);

/* Sums are in the order of the ids, every product and every addition rounded to f32 on its own, so
 * the same bags of the same rows give the same bits. A mean is the sum divided by the number of
 * ids; a bag without ids is zeros. BAG_RANGE: offsets decrease, or do not end with the ids. Ids may
 * stand in a batch many times. On failure what the bags hold is not said. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_get_pooled(struct embtier_batch *batch);

/* The same, and the batch has a ticket afterwards: see embtier_batch_ticket(). TICKETS_FULL: the
 * server has no memory for it until other tickets have been used. UNSUPPORTED: of the parts of one
 * table some are maxima, and others not. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_get_pooled_ticket(struct embtier_batch *batch);

struct embtier_push_options {
    size_t struct_bytes;          /* set by EMBTIER_PUSH_OPTIONS_INIT */
    double learning_rate;         /* finite, also in f32 */
    const double *learning_rates; /* one for each part, in the place of learning_rate; the same for
                                     all parts of a table; or NULL */
    uint64_t step;                /* of the training, 1 … 2^53 - 1; must be given */
    int weight_gradients; /* nonzero: by ticket, the gradients of the weights of the ids are written
                             over embtier_batch_weights() of all parts that have weights */
    struct embtier_batch *prefetch; /* whose prefetch is released when the push is done; or NULL */
    struct embtier_group *group; /* of whose step it is a part; or NULL: it is a step by itself */
};
#define EMBTIER_PUSH_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_push_options), 0, NULL, 0, 0, NULL, NULL                             \
    }

/* Sends gradients, which embtier_batch_gradients() has, to the optimizers of their tables: a batch
 * of bags by its ticket, one for each bag as it was looked up, from which each of its rows gets
 * what its mode and weights make of it; a batch made by embtier_batch_new_push() one for each id.
 * What a row gets within the batch is added up, and the optimizer runs once for each distinct row
 * of a table.
 *
 * INVALID: without a ticket, step or learning rate not as above. UNSUPPORTED: a table without an
 * optimizer. NONFINITE: a gradient with NaN or infinity, or an update that would make a finite row
 * anything else, be it that its gradients add up to more than f32 holds; unless the table
 * allows_nonfinite. No row has changed then. If requests of other connections change the same rows
 * meanwhile, what overflows nevertheless becomes the greatest number of its sign. TOO_LARGE: a row
 * gets more than 2^27 numbers of gradients, those of all its ids together; in a group, of all
 * members, and then for all of them. No row has changed then. SHAPE,
 * NO_TICKET, TICKET_USED, TICKET_EXPIRED; by rows TICKETS_FULL; those of SET. On failure what the
 * weights hold is not said.
 *
 * With @prefetch, a batch of this connection that has a prefetch (else INVALID; BUSY if its last
 * result has not been asked for): the push takes that along as it takes its ticket, and if it is
 * refused that batch has it back. Until the push is done that batch is BUSY, also for
 * embtier_batch_free(). NO_TICKET, TICKET_USED and TICKET_EXPIRED may be about the prefetch: then
 * the push has changed nothing, the batch has its ticket, and @prefetch has none any more.
 *
 * With @group, one that this connection is a member of: the push is this member's part of @step,
 * which must be the group's last one + 1, else GROUP_STEP. It is answered when all members have
 * pushed that step. NONFINITE for all of them: only what they have together makes a row infinite or
 * NaN; batches keep their tickets, and all push that step again. A table's learning rate must be
 * the same for all of them, else MISMATCH for all; tables need not be the same. A push that the
 * server refuses, for whatever reason, is that member's part of the step too: nothing is applied,
 * the pushes of the others fail with GROUP_REFUSED (see embtier_batch_blamed_member()), batches
 * keep their tickets, and all push that step again. A push that this library refuses, since options
 * are wrong or the batch is not ready, does not reach the group: the others wait. GROUP_BROKEN: a
 * member has gone. TIMEOUT: one has not pushed in time (lanes.group_seconds of the server's
 * configuration), which breaks the group, too. NO_GROUP: the membership ended with its session,
 * before embtier_reconnect(); join again. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_push(struct embtier_batch *batch, const struct embtier_push_options *options);
/* Gives the batch's ticket or prefetch back: a push will not follow. OK if it has none. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_release(struct embtier_batch *batch);

/* Brings the rows of the batch's ids into the server's first tier, DRAM, and keeps them there until
 * the prefetch is released, by embtier_release() or by a push that names it, or has expired: for
 * lookups and pushes soon to come, which will find them there. They may change meanwhile as any
 * others. The batch has the prefetch's number afterwards, embtier_batch_ticket(), and while it has
 * it, embtier_prefetch() and embtier_batch_set_count() are INVALID; its ids may change.
 *
 * PINS_FULL: so many rows do not fit beside those of other prefetches. All clients' together may
 * have half of the first tier, and one user's three quarters of what other users leave of that; a
 * row counts in each prefetch that has it. TICKETS_FULL: the server has no memory for it until
 * other prefetches or tickets are over. ID_RANGE, DROPPED, TOO_LARGE. No harm is done by going on
 * without it. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_prefetch(struct embtier_batch *batch);

/* Starts a request and returns. Slots are used in turn: BUSY when the request submitted
 * max_in_flight requests ago is still in flight, although younger ones may be done, and BUSY when
 * this batch's last result has not been asked for by embtier_poll() or embtier_wait(). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_submit(struct embtier_batch *batch,
                                                                  enum embtier_op op);
/* The same for a push. Options are copied. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_submit_push(struct embtier_batch *batch, const struct embtier_push_options *options);
/* The request's result, or AGAIN while it is in flight. Never waits. The result can be asked for
 * again until the next submit; INVALID before the first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_poll(struct embtier_batch *batch);
/* Waits at most @timeout_ms (UINT32_MAX: for ever), TIMEOUT then, and the request goes on. A server
 * that goes away ends it with DISCONNECTED within a second. TIMEOUT may be the result of a group's
 * push, too: then embtier_poll() says the same, and not AGAIN. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_wait(struct embtier_batch *batch,
                                                                uint32_t timeout_ms);

/* ---- Status ---- */

struct embtier_metric {
    const char *name;
    const char *help;
    int counter;       /* else a gauge */
    const char *label; /* "" : none */
    const char *label_value;
    double value;
};
struct embtier_status;
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_status(struct embtier *server, struct embtier_status **ret_status);
EMBTIER_PUBLIC const char *embtier_status_version(const struct embtier_status *status);
EMBTIER_PUBLIC uint64_t embtier_status_uptime_ms(const struct embtier_status *status);
/* The libraries that the server was built with: "rocksdb 7.8.3", and the source of its tiers'
 * memory, "memkind", "mmap" (with libhwloc) or "malloc". 0: an older server, which does not tell.
 */
EMBTIER_PUBLIC size_t embtier_status_library_count(const struct embtier_status *status);
EMBTIER_PUBLIC const char *embtier_status_library_at(const struct embtier_status *status,
                                                     size_t index);
EMBTIER_PUBLIC size_t embtier_status_count(const struct embtier_status *status);
EMBTIER_PUBLIC const struct embtier_metric *embtier_status_at(const struct embtier_status *status,
                                                              size_t index);
EMBTIER_PUBLIC void embtier_status_free(struct embtier_status *status);

/* One user's part of one thing that is finite, such as shared memory. */
struct embtier_account {
    uint32_t uid;
    const char *name; /* "arena_bytes" */
    const char *what; /* "shared memory" */
    int is_bytes;     /* zero: a number of things */
    uint64_t used;
    uint64_t most; /* as much the user may have now, which depends on what others have */
};
struct embtier_account_list;
/* Users with connections, tables or checkpoints, in order of their numbers, all things of one
 * together. Borrowed from the list. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_account_list(struct embtier *server, struct embtier_account_list **ret_list);
EMBTIER_PUBLIC size_t embtier_account_list_count(const struct embtier_account_list *list);
EMBTIER_PUBLIC const struct embtier_account *
embtier_account_list_at(const struct embtier_account_list *list, size_t index);
EMBTIER_PUBLIC void embtier_account_list_free(struct embtier_account_list *list);

#ifdef __cplusplus
}
#endif
#endif
