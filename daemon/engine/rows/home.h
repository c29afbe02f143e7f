/* SPDX-License-Identifier: Apache-2.0 */
/* home.h: the interface of a home, the place in memory where a table's rows live.
 *
 * A lane has the cache over SSD (home_cache.c), and two sets of arrays of whole tables
 * (home_array.c). A table that goes from an array to another goes from one set to the other. A
 * split table has its hot rows in arrays of their own, and all others in the cache (home_split.c).
 * Each home holds the lane's share of the rows of all tables in it. A table that moves is in two of
 * them (home_moving.h). The functions are those of row_cache.h, which documents each. Rows are host
 * memory, and pointers to them are followed by lanes and kernels. A row that is not in its home is
 * in the write queue, being read, or on SSD, whatever the home. docs/internals/homes.md lists the
 * places that ask for a table's home, and the files to change for a new one. Thread: the lane, but
 * stats(). */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_HOME_H
#define EMBTIER_DAEMON_ENGINE_ROWS_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "daemon/engine/tables/table.h"
#include "tiers/cache/row_cache.h"

struct row_array;
struct row_arrays_opts;
struct row_spots;

struct home_stats {
    uint64_t rows;  /* in memory */
    uint64_t bytes; /* of these rows, not rounded */
    uint64_t dirty_rows;
    uint64_t dirty_bytes;
    uint64_t hits;     /* rows read or written in place */
    uint64_t get_hits; /* the hits that only read */
};

/* All that the homes of a lane are made of; each takes its part. */
struct home_opts {
    const struct row_cache_opts *cache;
    const struct row_arrays_opts *arrays; /* of every home that has arrays */
    const struct home *homes;             /* the lane's, by enum home_kind; those of lower numbers
                                             are made already, and outlive this one */
};

/* Functions of a home whose hot rows lie apart. Another home has its other rows, and saves, evicts
 * and pins them. Only the hot rows take part in moves between these two homes. */
struct home_hot_ops {
    enum home_kind others; /* the home that has the other rows */
    /* add() makes the hot rows known; the other home knows the table already. remove() forgets
     * them, and leaves the table in the other home. rows() counts the hot rows in memory. */
    enum embtier_err (*add)(void *home, uint16_t table, struct row_array *array);
    void (*remove)(void *home, uint16_t table);
    bool (*is_hot)(const void *home, uint16_t table, const struct row_ref *ref);
    uint64_t (*rows)(const void *home, uint16_t table);
};

struct home_ops {
    /* Making and ending. NULL for a home that is made otherwise. */
    enum embtier_err (*make)(const struct home_opts *opts, void **ret_home, struct err_msg *msg);
    void (*free)(void *home);
    const struct home_hot_ops *hot; /* NULL: the home has all rows of its tables */

    /* Tables. add() makes the table known to the lane; @array is its memory, or NULL if the home
     * takes none. purge() forgets its rows, some per call; true when all are gone. give() gives
     * rows of the table away, and rows() counts those that are here: row_cache_give(). */
    enum embtier_err (*add)(void *home, const struct table *table, struct row_array *array);
    bool (*purge)(void *home, const struct table *table, uint32_t step);
    uint32_t (*give)(void *home, uint16_t table, struct row_giving *giving);
    uint64_t (*rows)(const void *home, uint16_t table);

    /* Looking up. */
    uint32_t (*get)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                    void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed);
    uint32_t (*find)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                     uint32_t bytes, const void **ret_rows);
    void (*used)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                 const void *const *rows);
    bool (*spots)(const void *home, uint16_t table, struct row_spots *ret_spots);
    void (*used_spots)(void *home, uint16_t table, uint32_t count);

    /* Changing. */
    uint32_t (*set)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                    const void *src, uint64_t stride, uint32_t bytes, uint32_t *ret_missed);
    uint32_t (*change)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       void **ret_rows);
    uint32_t (*change_through)(void *home, uint16_t table, const struct row_ref *refs,
                               uint32_t count, void **ret_rows);
    void (*changed)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                    void *const *rows);
    uint32_t (*insert)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       const void *const *rows, const uint64_t *dirty, uint32_t *ret_refused);

    /* Staying. Rows of a home that takes pins stay only while pinned, so they count in the user's
     * account. pin() sets bit i of @ret_here if row i is in memory, and is pinned or takes no pins.
     * It sets bit i of @ret_pinned if it pinned the row, so that unpin() has to follow. pinned()
     * counts the table's rows with pins. */
    bool takes_pins;
    void (*pin)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                uint64_t *ret_here, uint64_t *ret_pinned);
    enum row_pin (*pin_one)(void *home, uint16_t table, const struct row_ref *ref);
    void (*unpin)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count);
    uint64_t (*pinned)(const void *home, uint16_t table);

    /* Saving. */
    uint32_t (*write_back)(void *home, uint64_t *cursor, uint32_t most_rows, bool *ret_done);
    void (*begin_epoch)(void *home);
    bool (*end_epoch)(void *home);
    bool (*forget_epoch)(void *home, uint64_t *cursor, uint32_t step);

    /* Describing. Any thread: reads counters (base/counter.h) that the lane writes. */
    void (*stats)(const void *home, struct home_stats *ret_stats);
};

struct home {
    const struct home_ops *ops;
    void *rows; /* private to the functions */
};

/* Progress of handing over the dirty rows of all homes; starts as zeros. */
struct rows_cursor {
    uint32_t home;
    uint64_t at;
};

extern const struct home_ops home_cache_ops;
extern const struct home_ops home_array_ops;
extern const struct home_ops home_split_ops;

#endif
