/* SPDX-License-Identifier: Apache-2.0 */
/* home.h: where the rows of a table live while they are in memory.
 *
 * A lane has one home of each kind, which has its share of the rows of all tables of that kind: the
 * cache over SSD (home_cache.c), or arrays of whole tables (home_array.c). The functions are those
 * of row_cache.h, which says what each does; the rest of the engine calls no other. A row that a
 * home has not is in the write queue, being read, or on SSD, whatever the home. A new kind is one
 * file, and a line where a lane makes its homes (lane_life.c). Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_HOME_H
#define EMBTIER_DAEMON_ENGINE_ROWS_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "tiers/cache/row_cache.h"

struct row_spots;
struct table;

enum home_kind {
    HOME_CACHE = EMBTIER_HOME_CACHE,
    HOME_ARRAY = EMBTIER_HOME_ARRAY,
    HOME_KINDS,
};

struct home_stats {
    uint64_t rows;  /* in memory */
    uint64_t bytes; /* of these, not rounded */
    uint64_t dirty_rows;
    uint64_t dirty_bytes;
    uint64_t hits;     /* rows read or written where they lay */
    uint64_t get_hits; /* of these, rows read */
    uint64_t misses;
};

struct home_ops {
    /* The lane knows the table from now on; and forgets its rows, true when all are gone. */
    enum embtier_err (*add)(void *home, const struct table *table);
    bool (*purge)(void *home, const struct table *table, uint32_t step);

    /* Looking up. */
    uint32_t (*get)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                    void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed);
    uint32_t (*find)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                     uint32_t bytes, const void **ret_rows);
    void (*used)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                 const void *const *rows);
    bool (*spots)(const void *home, uint16_t table, struct row_spots *ret_spots);
    void (*used_spots)(void *home, uint32_t count);

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

    /* Staying. */
    void (*pin)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                uint64_t *ret_pinned);
    enum row_pin (*pin_one)(void *home, uint16_t table, const struct row_ref *ref);
    void (*unpin)(void *home, uint16_t table, const struct row_ref *refs, uint32_t count);

    /* Saving. */
    uint32_t (*write_back)(void *home, uint64_t *cursor, uint32_t most_rows, bool *ret_done);
    void (*begin_epoch)(void *home);
    bool (*end_epoch)(void *home);
    bool (*forget_epoch)(void *home, uint64_t *cursor, uint32_t step);

    /* Describing. */
    void (*stats)(const void *home, struct home_stats *ret_stats);
};

struct home {
    const struct home_ops *ops;
    void *rows; /* the functions' own */
};

/* Where handing over dirty rows of all homes stands; zeros at first. */
struct rows_cursor {
    uint32_t home;
    uint64_t at;
};

extern const struct home_ops home_cache_ops;
extern const struct home_ops home_array_ops;

#endif
