/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/policies.h"

#include <stdlib.h>

#include "tests/bench/lib/bench.h"

/* ---- LRU: a list by array index, youngest first; 0 is its head, id i is i + 1 ---- */

struct lru {
    uint32_t capacity, count;
    uint32_t *previous, *next;
    bool *present;
};

static void *lru_make(uint32_t ids, uint32_t capacity)
{
    struct lru *const l = bench_alloc(1, sizeof(*l));

    l->capacity = capacity;
    l->previous = bench_alloc(ids + 1ul, sizeof(*l->previous));
    l->next = bench_alloc(ids + 1ul, sizeof(*l->next));
    l->present = bench_alloc(ids + 1ul, sizeof(*l->present));
    return l;
}

static void lru_unlink(struct lru *l, uint32_t node)
{
    l->next[l->previous[node]] = l->next[node];
    l->previous[l->next[node]] = l->previous[node];
}

static bool lru_access(void *state, uint32_t id)
{
    struct lru *const l = state;
    const uint32_t node = id + 1;
    const bool hit = l->present[node];

    if (hit) {
        lru_unlink(l, node);
    } else if (l->count == l->capacity) {
        const uint32_t oldest = l->previous[0];

        lru_unlink(l, oldest);
        l->present[oldest] = false;
    } else {
        l->count++;
    }
    l->present[node] = true;
    l->previous[node] = 0;
    l->next[node] = l->next[0];
    l->previous[l->next[0]] = node;
    l->next[0] = node;
    return hit;
}

static bool lru_has(const void *state, uint32_t id)
{
    return ((const struct lru *)state)->present[id + 1];
}

static void lru_end(void *state)
{
    struct lru *const l = state;

    free(l->previous);
    free(l->next);
    free(l->present);
    free(l);
}

const struct policy policy_lru = { "LRU", lru_make, lru_access, lru_has, lru_end };

/* ---- LFU: a heap by (accesses, time of the last), least first ---- */

struct lfu {
    uint32_t capacity, count;
    uint64_t now;
    uint32_t *heap;  /* its ids */
    uint32_t *place; /* in the heap, + 1; 0: not there */
    uint32_t *accesses;
    uint64_t *last;
};

static void *lfu_make(uint32_t ids, uint32_t capacity)
{
    struct lfu *const l = bench_alloc(1, sizeof(*l));

    l->capacity = capacity;
    l->heap = bench_alloc(capacity, sizeof(*l->heap));
    l->place = bench_alloc(ids, sizeof(*l->place));
    l->accesses = bench_alloc(ids, sizeof(*l->accesses));
    l->last = bench_alloc(ids, sizeof(*l->last));
    return l;
}

static bool lfu_less(const struct lfu *l, uint32_t a, uint32_t b)
{
    return l->accesses[a] != l->accesses[b] ? l->accesses[a] < l->accesses[b]
                                            : l->last[a] < l->last[b];
}

static void lfu_put(struct lfu *l, uint32_t at, uint32_t id)
{
    l->heap[at] = id;
    l->place[id] = at + 1;
}

/* Moves the id at @at down, after its count has grown. */
static void lfu_sink(struct lfu *l, uint32_t at)
{
    const uint32_t id = l->heap[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= l->count)
            break;
        if (child + 1 < l->count && lfu_less(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (!lfu_less(l, l->heap[child], id))
            break;
        lfu_put(l, at, l->heap[child]);
        at = child;
    }
    lfu_put(l, at, id);
}

static void lfu_rise(struct lfu *l, uint32_t at)
{
    const uint32_t id = l->heap[at];

    for (; at > 0 && lfu_less(l, id, l->heap[(at - 1) / 2]); at = (at - 1) / 2)
        lfu_put(l, at, l->heap[(at - 1) / 2]);
    lfu_put(l, at, id);
}

static bool lfu_access(void *state, uint32_t id)
{
    struct lfu *const l = state;
    const bool hit = l->place[id] > 0;

    l->last[id] = ++l->now;
    if (hit) {
        l->accesses[id]++;
        lfu_sink(l, l->place[id] - 1);
        return true;
    }
    l->accesses[id] = 1;
    if (l->count == l->capacity) {
        l->place[l->heap[0]] = 0;
        lfu_put(l, 0, id);
        lfu_sink(l, 0);
    } else {
        lfu_put(l, l->count, id);
        lfu_rise(l, l->count++);
    }
    return false;
}

static bool lfu_has(const void *state, uint32_t id)
{
    return ((const struct lfu *)state)->place[id] > 0;
}

static void lfu_end(void *state)
{
    struct lfu *const l = state;

    free(l->heap);
    free(l->place);
    free(l->accesses);
    free(l->last);
    free(l);
}

const struct policy policy_lfu = { "LFU", lfu_make, lfu_access, lfu_has, lfu_end };

/* ---- S3-FIFO ---- */

struct fifo {
    uint32_t *ids; /* a ring of ids */
    uint32_t size, first, count;
};

enum s3_where { S3_NOWHERE, S3_SMALL, S3_MAIN };

struct s3 {
    uint32_t capacity;
    struct fifo small, main, ghosts;
    uint8_t *where;     /* enum s3_where */
    uint8_t *accesses;  /* at most 3 */
    uint32_t *is_ghost; /* the number of its entries in `ghosts` */
};

static void fifo_make(struct fifo *fifo, uint32_t size)
{
    *fifo = (struct fifo){ .ids = bench_alloc(size, sizeof(uint32_t)), .size = size };
}

static void fifo_push(struct fifo *fifo, uint32_t id)
{
    fifo->ids[(fifo->first + fifo->count++) % fifo->size] = id;
}

static uint32_t fifo_pop(struct fifo *fifo)
{
    const uint32_t id = fifo->ids[fifo->first];

    fifo->first = (fifo->first + 1) % fifo->size;
    fifo->count--;
    return id;
}

static void *s3_make(uint32_t ids, uint32_t capacity)
{
    struct s3 *const s = bench_alloc(1, sizeof(*s));

    s->capacity = capacity;
    fifo_make(&s->small, capacity + 1);
    fifo_make(&s->main, capacity + 1);
    fifo_make(&s->ghosts, capacity);
    s->where = bench_alloc(ids, sizeof(*s->where));
    s->accesses = bench_alloc(ids, sizeof(*s->accesses));
    s->is_ghost = bench_alloc(ids, sizeof(*s->is_ghost));
    return s;
}

static void s3_evict_main(struct s3 *s)
{
    while (s->main.count > 0) {
        const uint32_t id = fifo_pop(&s->main);

        if (s->accesses[id] == 0) {
            s->where[id] = S3_NOWHERE;
            return;
        }
        s->accesses[id]--;
        fifo_push(&s->main, id);
    }
}

static void s3_remember(struct s3 *s, uint32_t id)
{
    if (s->ghosts.count == s->ghosts.size)
        s->is_ghost[fifo_pop(&s->ghosts)]--;
    fifo_push(&s->ghosts, id);
    s->is_ghost[id]++;
}

static void s3_evict_small(struct s3 *s)
{
    while (s->small.count > 0) {
        const uint32_t id = fifo_pop(&s->small);

        if (s->accesses[id] <= 1) {
            s->where[id] = S3_NOWHERE;
            s3_remember(s, id);
            return;
        }
        s->accesses[id] = 0;
        s->where[id] = S3_MAIN;
        fifo_push(&s->main, id);
    }
}

static bool s3_access(void *state, uint32_t id)
{
    struct s3 *const s = state;

    if (s->where[id] != S3_NOWHERE) {
        s->accesses[id] = (uint8_t)MIN(s->accesses[id] + 1, 3);
        return true;
    }
    while (s->small.count + s->main.count >= s->capacity) {
        if (s->small.count >= MAX(s->capacity / 10, 1u) || s->main.count == 0)
            s3_evict_small(s);
        else
            s3_evict_main(s);
    }
    s->accesses[id] = 0;
    s->where[id] = s->is_ghost[id] ? S3_MAIN : S3_SMALL;
    fifo_push(s->is_ghost[id] ? &s->main : &s->small, id);
    return false;
}

static bool s3_has(const void *state, uint32_t id)
{
    return ((const struct s3 *)state)->where[id] != S3_NOWHERE;
}

static void s3_end(void *state)
{
    struct s3 *const s = state;

    free(s->small.ids);
    free(s->main.ids);
    free(s->ghosts.ids);
    free(s->where);
    free(s->accesses);
    free(s->is_ghost);
    free(s);
}

const struct policy policy_s3_fifo = { "S3-FIFO", s3_make, s3_access, s3_has, s3_end };
