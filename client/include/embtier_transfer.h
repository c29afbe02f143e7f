/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_transfer.h: many rows: scans, loads, exports and imports (embtier.h). */
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

/* All rows of a table of a checkpoint, in order of their ids: what an export reads. */
struct embtier_scan_options {
    size_t struct_bytes; /* set by EMBTIER_SCAN_OPTIONS_INIT */
    uint64_t checkpoint; /* 0: the newest */
    int with_state;      /* nonzero: rows with their optimizer's state; else weights only */
    int all_rows; /* nonzero: rows that were never written too, with their initial values; not of an
                     unbounded table */
    uint64_t buffer_bytes; /* of the arena, used by halves; 0: 16 MiB, or half of what is free if
                              that is less. More is of no use */
};
#define EMBTIER_SCAN_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_scan_options), 0, 0, 0, 0                                            \
    }

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
 * none (but see Errors in embtier.h). Only the close may follow. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_load_end(struct embtier_load *load, embtier_progress_fn *progress, void *progress_context);
/* Before embtier_disconnect(). NULL is allowed. */
EMBTIER_PUBLIC void embtier_load_close(struct embtier_load *load);

/* ---- Export and import ---- */

#define EMBTIER_CHECKPOINT_NEWEST UINT64_MAX

struct embtier_export_options {
    size_t struct_bytes; /* set by EMBTIER_EXPORT_OPTIONS_INIT */
    uint64_t checkpoint; /* as the table is in it; 0: as it is now, for which a checkpoint is made;
                            or EMBTIER_CHECKPOINT_NEWEST */
    int with_state;      /* nonzero: the optimizer's state too */
    int all_rows; /* nonzero: rows that were never written too, with their initial values; not of an
                     unbounded table */
    int npy;      /* nonzero: NumPy's .npy files, one for each tensor; else safetensors */
    uint64_t file_bytes; /* a file has no more, about; 0: 4 GiB. Until it ends it is a file with
                            holes, up to four times as long as the rows that are expected */
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
               const struct embtier_export_options *options, embtier_progress_fn *progress,
               void *progress_context, struct embtier_exported *ret_exported);

struct embtier_import_options {
    size_t struct_bytes; /* set by EMBTIER_IMPORT_OPTIONS_INIT */
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
        sizeof(struct embtier_import_options), NULL, -1, 0, NULL, NULL, EMBTIER_ROWS_OF_FILE       \
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
 * when it is whole and safe from a crash; after a failure there is none (but see Errors in
 * embtier.h, if it came after the last row).
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
               const struct embtier_import_options *options, embtier_progress_fn *progress,
               void *progress_context, struct embtier_imported *ret_imported);

#ifdef __cplusplus
}
#endif
#endif
