/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_table.h: create, open, move, drop and list tables (embtier.h). */
#ifndef EMBTIER_TABLE_H
#define EMBTIER_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    int if_not_exists; /* nonzero: succeed if a table of the same options exists */
    /* Called now and then during a long creation; may be NULL. */
    embtier_progress_fn *progress;
    void *progress_context;
    /* Hyperparameters of the optimizer, see EMBTIER_HYPERPARAMETER_TABLE. EMBTIER_DEFAULT: the
     * optimizer's default, or none. INVALID: a number other than 0 for one that the optimizer does
     * not have. */
    double eps;
    double alpha;
    double beta1;
    double beta2;
    double weight_decay;
    double clip_norm;
    int rounds_to_nearest; /* nonzero: round updated f16 and bf16 weights to nearest; else
                              stochastically */
    int allows_nonfinite;  /* nonzero: gradients, and rows after an update, may have NaN and
                              infinity; else such a push is refused */
    enum embtier_durability durability; /* of updates; the default is EMBTIER_DURABILITY_REPLAY */
    double momentum;                    /* as beta2 */
    enum embtier_home home;             /* of rows in memory; the default is EMBTIER_HOME_CACHE */
    const char *home_tier; /* name of an array's tier; NULL or "": the fastest that keeps memory
                              for arrays */
};
#define EMBTIER_TABLE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(struct embtier_table_options), NULL, EMBTIER_UNBOUNDED, 0, EMBTIER_DTYPE_F32,       \
            EMBTIER_OPTIMIZER_NONE, EMBTIER_INIT_ZEROS, 0, 0, 0, 0, 0, NULL, NULL,                 \
            EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT, EMBTIER_DEFAULT,   \
            EMBTIER_DEFAULT, 0, 0, EMBTIER_DURABILITY_REPLAY, EMBTIER_DEFAULT, EMBTIER_HOME_CACHE, \
            NULL                                                                                   \
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
    /* Since the server started, as of the time when the table was opened or listed: */
    uint64_t updated_rows; /* counted at each update */
    uint64_t flush_bytes;  /* written to SSD for this table */
    uint64_t compaction_bytes;
    /* As the table was made: */
    double eps; /* this and the next: 0 if the optimizer does not have it */
    double alpha;
    double beta1;
    double beta2;
    double weight_decay;
    double clip_norm;
    int rounds_to_nearest;
    int allows_nonfinite;
    enum embtier_durability durability;
    double momentum; /* as beta2 */
    enum embtier_home home;
    const char *home_tier; /* of an array or a split; "": the home is the cache */
    /* Checkpoints, exports and imports preserve these two with the rows: */
    const char *uuid; /* 32 hex digits, from the table's creation; a restored or imported copy has
                         the same; "": none */
    uint64_t step; /* greatest step of a push that changed rows, as of the opening or listing of the
                      table; 0: no push, or an import without the optimizer's state */
    uint64_t hot_rows; /* of home split: rows that have a place in its array; else 0 */
    /* Since the server started, by GETs and pooled lookups: */
    uint64_t lookup_rows;
    uint64_t
        missed_lookup_rows; /* of these: the table's home had not the row, nor was it being read */
    uint64_t read_lookup_rows; /* of these: read from SSD */
    uint64_t lookup_ns; /* estimate of the time that all lanes spent on lookups, without reads */
    /* Since the server started; an older server does not report it: */
    uint64_t import_bytes;  /* written to SSD for this table by imports */
    uint64_t log_bytes;     /* of its rows in logs, without the bytes of the logs' own */
    uint64_t initial_bytes; /* of flush_bytes: while the table was made with all its rows */
    /* By the server's history of bytes written to SSD for this table, which outlives it: */
    uint64_t history_ms;
    uint64_t history_bytes;
    double daily_bytes_now; /* a day, at the rate of the last ten minutes; this and the next:
                               EMBTIER_RATE_UNKNOWN until the history is an hour old */
    double daily_bytes_hour;
    double daily_bytes_day;
    double daily_bytes_week;
};
#define EMBTIER_RATE_UNKNOWN (-1.0)

/* Creates a table. EXISTS. INVALID: the message has the reason. BUSY: the user may have at most
 * three quarters of the tables that others leave. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_create(struct embtier *server, const struct embtier_table_options *options,
                     struct embtier_table **ret_table);
/* Opens a table by name. NO_TABLE; BUSY: it is still being created. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_open(struct embtier *server, const char *name, struct embtier_table **ret_table);
/* As embtier_table_open(), but MISMATCH unless the table has this @dim (0: any) and @dtype (0:
 * any). */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_open_as(struct embtier *server, const char *name, uint32_t dim, int dtype,
                      struct embtier_table **ret_table);
/* Drops a table, and returns when all its rows are gone. Requests in progress on it end first or
 * fail with DROPPED. If the client disconnects while the drop waits for others, the drop is
 * withdrawn and the table stays. A drop that has begun is finished. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_table_drop(struct embtier *server,
                                                                      const char *name,
                                                                      embtier_progress_fn *progress,
                                                                      void *progress_context);

struct embtier_move_options {
    size_t struct_bytes;    /* set by EMBTIER_MOVE_OPTIONS_INIT */
    enum embtier_home home; /* the new one */
    const char *home_tier;  /* name of the tier of an array or a split; NULL or "": the one that the
                               table is in, or the fastest that has room */
    uint64_t rate_bytes; /* of rows, a second; 0: as fast as a fifth of each lane's time allows */
    /* Called now and then; may be NULL. Units are "hot rows" while their ids are stored, "pinned
     * rows" while prefetches keep the move waiting, "rows", and "rows back" when it is undone. */
    embtier_progress_fn *progress;
    void *progress_context;
    /* For EMBTIER_HOME_SPLIT: the ids of the hot rows, all different, in any order. They go through
     * the arena, which needs 8 bytes for each while the table moves. */
    const uint64_t *hot_rows;
    uint64_t hot_row_count;
};
#define EMBTIER_MOVE_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct embtier_move_options), EMBTIER_HOME_CACHE, NULL, 0, NULL, NULL, NULL, 0      \
    }
struct embtier_moved_info {
    uint64_t rows; /* moved; rows that were not in memory need no move */
    int was_there; /* nonzero: the table had this home, and nothing was done */
};
/* Moves a table's rows to another home in memory, and returns when all are there. All clients
 * continue meanwhile, and lose no update. It waits for prefetches that have pinned rows of the
 * table, also for those of the caller. @ret_moved may be NULL. After an error the table is whole
 * in its old home, or else the message says that it is in its new one. NO_TABLE. BUSY: the table is
 * being made, or moves already, or too many tables move. INVALID: no such tier; an array of an
 * unbounded table; a hot row named twice; a table that is split already, by other rows or in
 * another tier. ID_RANGE: the table has no such hot row. TOO_LARGE, NO_MEMORY: the tier keeps, or
 * has left, too little memory for arrays. ARENA_FULL: the ids of the hot rows do not fit into the
 * arena. CANCELLED (embtier_job_cancel()). DROPPED: a drop of the table ended the move. If the
 * client disconnects, the rows move back. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_table_move(struct embtier *server, const char *name,
                   const struct embtier_move_options *options,
                   struct embtier_moved_info *ret_moved);
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

#ifdef __cplusplus
}
#endif
#endif
