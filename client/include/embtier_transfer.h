/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_transfer.h: scans, loads, exports and imports of many rows (embtier.h). */
#ifndef EMBTIER_TRANSFER_H
#define EMBTIER_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"
#include "embtier_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Scans ---- */

/* A scan reads all rows of a table in a checkpoint, ordered by id. An export uses one. */
struct embtier_scan_options {
    size_t struct_bytes; /* set by EMBTIER_SCAN_OPTIONS_INIT */
    uint64_t checkpoint; /* 0: the newest */
    int with_state;      /* nonzero: rows with their optimizer's state; else weights only */
    int all_rows; /* nonzero: also rows that were never written, with their initial values; not for
                     an unbounded table */
    uint64_t buffer_bytes; /* of the arena, used in halves; 0: 16 MiB, or half of the free bytes if
                              that is less; more has no effect */
};
#define EMBTIER_SCAN_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_scan_options), 0, 0, 0, 0                                            \
    }

/* Rows that a scan returns. */
struct embtier_scan_rows {
    uint32_t count;      /* 0: there are no more */
    const uint64_t *ids; /* of the rows; NULL in a scan of all rows: first_id, first_id + 1, … */
    uint64_t first_id;
    const void *rows; /* one after another, row_bytes each: weights, and state if requested */
    uint32_t row_bytes;
};

/* Opens a scan; a connection has at most one. The checkpoint cannot be deleted while it is open.
 * NOT_FOUND: no such checkpoint. NO_TABLE: it has no such table. INVALID: all rows of an unbounded
 * table. BUSY: this connection already has a scan, or there is no memory for one more. Or the
 * server has eight open, or six of this user (three quarters of what others leave). TOO_LARGE:
 * memory will never suffice (checkpoints.transfer_bytes). ARENA_FULL, CORRUPT. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_scan_open(struct embtier *server, const char *table,
                  const struct embtier_scan_options *options, struct embtier_scan **ret_scan);
/* Describes the table as it was in the checkpoint; borrowed from the scan. */
EMBTIER_PUBLIC const struct embtier_table_info *embtier_scan_table(const struct embtier_scan *scan);
/* Returns the number of rows to come: exact for a scan of all rows, else an estimate. */
EMBTIER_PUBLIC uint64_t embtier_scan_row_count(const struct embtier_scan *scan);
EMBTIER_PUBLIC uint64_t embtier_scan_checkpoint(const struct embtier_scan *scan);
/* Returns the next rows, in memory shared with the server. They stay valid until the next call but
 * one, so the caller can process some while the next are fetched. They fill at most half of the
 * buffer, 8 MiB and 65,536 rows, so that exports take turns. After a failure the scan can only be
 * closed. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_scan_next(struct embtier_scan *scan, struct embtier_scan_rows *ret_rows);
/* Must be called before embtier_disconnect(). NULL is allowed. */
EMBTIER_PUBLIC void embtier_scan_close(struct embtier_scan *scan);

/* ---- Loads ---- */

/* A load makes a new table from the caller's rows. An import uses one. No other client can open the
 * table before embtier_load_end(); without that call there is no table. A connection has at most
 * one load. */
struct embtier_load_buffer {
    uint64_t *ids;     /* room for `capacity` of them */
    void *rows;        /* room for as many rows: weights, and state if they come with it */
    uint32_t capacity; /* at least 1 */
    uint32_t row_bytes;
};

/* Begins a load. @with_state nonzero: rows have their optimizer's state, else it begins as zeros.
 * @buffer_bytes come from the arena; 0: 8 MiB, or half of the free bytes if that is less. EXISTS,
 * INVALID, ARENA_FULL. BUSY: this connection already has a load, or there is no memory for one
 * more. Or the server has eight open, or six of this user (three quarters of what others leave).
 * TOO_LARGE: memory will never suffice. VERSION: missing rows would have initial values that the
 * server does not know. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_load_open(struct embtier *server, const struct embtier_table_options *table, int with_state,
                  uint64_t buffer_bytes, struct embtier_load **ret_load);
/* Returns memory shared with the server. The caller may use it between two calls with this load. */
EMBTIER_PUBLIC struct embtier_load_buffer embtier_load_buffer(const struct embtier_load *load);
/* Hands over the buffer's first @count rows. If an id occurs again, its last row counts; missing
 * rows have their initial values. ID_RANGE, NO_SPACE, IO, TIMEOUT: the load has failed and can only
 * be closed. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_load_rows(struct embtier_load *load,
                                                                     uint32_t count);
/* Returns when the table exists with all its rows, safe from a crash. After a failure there is no
 * table; see Errors in embtier.h for exceptions. The load can then only be closed. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_load_end(struct embtier_load *load, embtier_progress_fn *progress, void *progress_context);
/* Must be called before embtier_disconnect(). NULL is allowed. */
EMBTIER_PUBLIC void embtier_load_close(struct embtier_load *load);

/* ---- Export and import ---- */

#define EMBTIER_CHECKPOINT_NEWEST UINT64_MAX

struct embtier_export_options {
    size_t struct_bytes; /* set by EMBTIER_EXPORT_OPTIONS_INIT */
    uint64_t checkpoint; /* source of the rows; 0: a new checkpoint of the current rows; or
                            EMBTIER_CHECKPOINT_NEWEST */
    int with_state;      /* nonzero: export the optimizer's state too */
    int all_rows; /* nonzero: also rows that were never written, with their initial values; not for
                     an unbounded table */
    int npy;      /* nonzero: NumPy's .npy files, one for each tensor; else safetensors */
    uint64_t file_bytes; /* rough limit of a file's size; 0: 4 GiB. During the export a file has
                            holes, and is up to four times as long as its expected rows */
};
#define EMBTIER_EXPORT_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(struct embtier_export_options), 0, 0, 0, 0, 0                                       \
    }

struct embtier_exported {
    uint64_t checkpoint;
    uint64_t rows;
    uint64_t bytes; /* of all files */
    uint32_t parts;
};

/* Writes a table to the folder @path, which it makes. It has files of the tensor `weight` [rows,
 * dim] in the table's dtype. With state they also have `state` [rows, state numbers of a row] in
 * f32. Unless all rows are exported, they have `ids` [rows], ordered by id. Its table.json
 * describes the table and the rows of each file. The folder is complete, or does not exist. An
 * export uses the arena and some MiB of memory. @options and @ret_exported may be NULL.
 *
 * EXISTS: @path exists, or PATH.partial does. The folder is made in PATH.partial; one that an
 * unfinished export of this user left is no error. LOCKED: another export is making it. INVALID:
 * @path is empty or ends in .partial, or file_bytes are so small that each tensor would need more
 * than 16,384 files. BUSY: there is no memory for one more export. Or the server has eight in
 * progress, or six of this user (three quarters of what others leave). Also the errors of
 * embtier_scan_open() and embtier_checkpoint_create(); NO_SPACE, IO. @progress counts rows; a total
 * of 0 is unknown. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_export(struct embtier *server, const char *table, const char *path,
               const struct embtier_export_options *options, embtier_progress_fn *progress,
               void *progress_context, struct embtier_exported *ret_exported);

struct embtier_import_options {
    size_t struct_bytes; /* set by EMBTIER_IMPORT_OPTIONS_INIT */
    /* Options of the table for files that are not an export; its name, dim, dtype and rows are not
     * read. NULL: EMBTIER_TABLE_OPTIONS_INIT. Must be NULL for an export, which describes its own
     * table. */
    const struct embtier_table_options *table;
    int durability;       /* enum embtier_durability; -1: the export's, or the default */
    int without_state;    /* nonzero: leave out state in the file; it begins as zeros */
    const char *tensor;   /* the weights in a safetensors file. NULL: `weight`, or the only
                             two-dimensional tensor */
    const char *ids_path; /* a .npy file of the rows' ids; NULL: the file's tensor `ids`; without
                             either they are rows 0, 1, … */
    uint64_t rows;        /* rows of the table, for files that are not an export: a number,
                             EMBTIER_UNBOUNDED, or EMBTIER_ROWS_OF_FILE */
    /* As in struct embtier_table_options. An import ignores an export's home, because homes belong
     * to a server. */
    enum embtier_home home;
    const char *home_tier;
};
/* As many rows as the file has, or unbounded if it has ids. */
#define EMBTIER_ROWS_OF_FILE UINT64_MAX
#define EMBTIER_IMPORT_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(struct embtier_import_options), NULL, -1, 0, NULL, NULL, EMBTIER_ROWS_OF_FILE,      \
            EMBTIER_HOME_CACHE, NULL                                                               \
    }

struct embtier_imported {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    uint64_t rows;
    uint64_t bytes; /* of rows, as they lie in the files */
};

/* Makes table @name (NULL: the export's name) from @path. @path is a folder that embtier_export()
 * made, a safetensors or .npy file, or a folder of safetensors files with an index. The index
 * (NAME.safetensors.index.json) names the file of the tensor. Shapes and dtypes of all files are
 * checked before the first row is read. If an id occurs again, its last row counts. The table
 * appears when it is complete and safe from a crash. After a failure there is no table; see Errors
 * in embtier.h for failures after the last row. @options and @ret_imported may be NULL.
 *
 * EXISTS: the name is taken. NOT_FOUND, INVALID, MISMATCH, UNSUPPORTED, TOO_LARGE, VERSION, CORRUPT
 * (an export's file was changed): a mistake in the files, with the reason in the message. NO_SPACE,
 * at once and with the figures: the rows have no room on the server's disk. INVALID also for one
 * file of an export whose rows would get the ids of others. ID_RANGE: an id is negative or not
 * below the number of rows, or the file has more rows. BUSY: the server has eight loads open, or
 * six of this user (three quarters of what others leave). Also the errors of embtier_load_open()
 * and embtier_load_rows(). @progress counts rows, from 0 when the server has begun. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_import(struct embtier *server, const char *name, const char *path,
               const struct embtier_import_options *options, embtier_progress_fn *progress,
               void *progress_context, struct embtier_imported *ret_imported);

#ifdef __cplusplus
}
#endif
#endif
