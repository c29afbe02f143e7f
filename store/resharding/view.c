/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/view.h"

#include <assert.h>
#include <stdlib.h>

#include "store/resharding/wave.h"

void store_views_init(struct store_views *views)
{
    pthread_mutex_init(&views->lock, NULL);
    pthread_cond_init(&views->left, NULL);
}

void store_views_clear(struct store_views *views)
{
    store_view_free(TAKE(views->now));
    pthread_mutex_destroy(&views->lock);
    pthread_cond_destroy(&views->left);
}

struct store_view *store_view_get(struct store_views *views)
{
    struct store_view *view;

    pthread_mutex_lock(&views->lock);
    view = views->now;
    view->users++;
    pthread_mutex_unlock(&views->lock);
    return view;
}

void store_view_put(struct store_views *views, struct store_view *view)
{
    pthread_mutex_lock(&views->lock);
    assert(view->users > 0);
    if (--view->users == 0 && view != views->now)
        pthread_cond_broadcast(&views->left);
    pthread_mutex_unlock(&views->lock);
}

void store_view_free(struct store_view *view)
{
    if (!view)
        return;
    bucket_map_free(view->map);
    free(view->shards);
    free(view);
}

static int compare_pairs(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

/* Fills @first and @shards from pairs of route and shard. */
static void deal_out(struct store_view *view, uint32_t *pairs, uint32_t count, uint32_t routes)
{
    uint32_t at = 0, kept = 0;

    qsort(pairs, count, sizeof(*pairs), compare_pairs);
    for (uint32_t route = 0; route < routes; route++) {
        view->first[route] = kept;
        for (; at < count && pairs[at] >> 16 == route; at++)
            if (at == 0 || pairs[at] != pairs[at - 1])
                view->shards[kept++] = (uint16_t)pairs[at];
    }
    view->first[routes] = kept;
}

static enum embtier_err fill(const struct store_views *views, struct store_view *view,
                             struct err_msg *msg)
{
    _cleanup_(freep) uint32_t *pairs = calloc((size_t)2 * ROW_BUCKETS, sizeof(*pairs));
    uint32_t count = 0;

    view->shards = calloc((size_t)2 * ROW_BUCKETS, sizeof(*view->shards));
    if (!pairs || !view->shards)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    view->is_plain = !view->wave;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
        const uint32_t route = views->routes->shards[bucket];
        const uint32_t shard = view->map->shards[bucket];
        const uint32_t target = view->wave ? wave_target(view->wave, bucket) : WAVE_NO_TARGET;

        pairs[count++] = route << 16 | shard;
        if (target != WAVE_NO_TARGET)
            pairs[count++] = route << 16 | target;
        if (views->route_shards[route] != shard)
            view->is_plain = false;
    }
    deal_out(view, pairs, count, views->routes->shard_count);
    return EMBTIER_OK;
}

enum embtier_err store_view_new(const struct store_views *views, struct bucket_map **map,
                                struct wave *wave, struct store_view **ret_view,
                                struct err_msg *msg)
{
    _cleanup_(store_view_freep) struct store_view *view = calloc(1, sizeof(*view));

    if (!view)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    view->map = *map;
    view->wave = wave;
    if (fill(views, view, msg) != EMBTIER_OK) {
        view->map = NULL; /* still the caller's */
        return EMBTIER_NO_MEMORY;
    }
    *map = NULL;
    *ret_view = TAKE(view);
    return EMBTIER_OK;
}

void store_view_set(struct store_views *views, struct store_view *view)
{
    struct store_view *before;

    pthread_mutex_lock(&views->lock);
    before = views->now;
    views->now = view;
    while (before && before->users > 0)
        pthread_cond_wait(&views->left, &views->lock);
    pthread_mutex_unlock(&views->lock);
    store_view_free(before);
}
