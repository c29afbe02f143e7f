/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: where rows lie, as a read or write sees it from its beginning to its end.
 *
 * The engine's route of a row is fixed while the store is open. The view tells which shards the
 * rows of a route lie in now, and whether some of them are being moved (wave.h). A view never
 * changes. A change makes another one, and then waits until nobody uses the one before. So no read
 * or write waits for a change: the change waits for them.
 *
 * Thread: any, but one makes changes. */
#ifndef EMBTIER_STORE_RESHARDING_VIEW_H
#define EMBTIER_STORE_RESHARDING_VIEW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/buckets/bucket_map.h"

struct wave;

struct store_view {
    uint32_t users; /* under store_views.lock */
    bool is_plain;  /* each route leads to the one shard that it led to at first */
    struct bucket_map *map;
    struct wave *wave; /* borrowed; NULL: nothing is being moved */
    /* Shards that rows of route r are written to: shards[first[r]] up to shards[first[r + 1]]. */
    uint32_t first[CONFIG_SHARDS_MAX + 1];
    uint16_t *shards;
};

/* The view in force. */
struct store_views {
    pthread_mutex_t lock;
    pthread_cond_t left;             /* nobody uses an older view any more */
    struct store_view *now;          /* NULL: the store is not open yet */
    const struct bucket_map *routes; /* the route of each bucket; borrowed, never changes */
    const uint16_t *route_shards;    /* that each route led to at first */
};
void store_views_init(struct store_views *views);
void store_views_clear(struct store_views *views);

/* Begins and ends a use. */
struct store_view *store_view_get(struct store_views *views);
void store_view_put(struct store_views *views, struct store_view *view);

/* Makes a view of @map, which it takes over, and of @wave (may be NULL). */
MUST_CHECK enum embtier_err store_view_new(const struct store_views *views, struct bucket_map **map,
                                           struct wave *wave, struct store_view **ret_view,
                                           struct err_msg *msg);
void store_view_free(struct store_view *view);
DEFINE_CLEANUP(struct store_view, store_view_free)
/* Puts @view in force. Returns when nobody uses the view before, which is freed. */
void store_view_set(struct store_views *views, struct store_view *view);

#endif
