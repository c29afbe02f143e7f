/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_fixture.h: a row cache on its own arenas, for the row cache's tests. */
#ifndef EMBTIER_TESTS_UNIT_TIERS_ROW_CACHE_FIXTURE_H
#define EMBTIER_TESTS_UNIT_TIERS_ROW_CACHE_FIXTURE_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/row_cache.h"

/* In tables with these numbers or higher, a few rows each share the low half of their hash,
 * whatever the table. That half chooses a row's first set. */
#define FIXTURE_TWIN_TABLES 8
#define FIXTURE_TWIN_MASK   UINT64_C(0xfffffffffff80000)

/* A hash as good as row_hash(), but without a key. */
static inline uint64_t fixture_hash(void *context, uint16_t table, uint64_t id)
{
    uint64_t x = id + UINT64_C(0x9e3779b97f4a7c15) * (table + 1u);

    (void)context;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return table < FIXTURE_TWIN_TABLES ? x : x & FIXTURE_TWIN_MASK;
}

static inline struct row_ref fixture_ref(uint16_t table, uint64_t id, uint32_t position)
{
    return (
        struct row_ref){ .hash = fixture_hash(NULL, table, id), .id = id, .position = position };
}

/* xorshift64*: the same on every machine. */
static inline uint64_t fixture_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

struct fixture {
    struct arena *arenas[TIERS_MAX];
    uint32_t tier_count;
    struct row_cache *cache;
    void *context; /* for the test's evict() */
};

typedef bool (*fixture_evict)(void *context, uint16_t table, uint64_t hash, uint64_t id,
                              const void *row, uint32_t bytes);

static inline bool fixture_evict_all(void *context, uint16_t table, uint64_t hash, uint64_t id,
                                     const void *row, uint32_t bytes)
{
    (void)context, (void)table, (void)hash, (void)id, (void)row, (void)bytes;
    return true;
}

/* @map_slabs: slabs of the first tier for maps. */
static inline void fixture_open_mapped_kinds(struct fixture *f, uint32_t tier_count,
                                             const uint32_t *slabs, uint32_t map_slabs,
                                             const enum tier_kind *kinds, fixture_evict evict,
                                             void *context)
{
    struct row_cache_opts opts = { .arenas = f->arenas,
                                   .arena_count = tier_count,
                                   .map_slabs = map_slabs,
                                   .hash = fixture_hash,
                                   .evict = evict ? evict : fixture_evict_all,
                                   .context = context };
    struct err_msg msg = { "" };

    *f = (struct fixture){ .tier_count = tier_count, .context = context };
    for (uint32_t i = 0; i < tier_count; i++) {
        struct tier_spec spec = { .name = "test", .kind = kinds[i], .path = "/dev/shm" };

        enum embtier_err err;

        err = arena_new(&spec, slabs[i] * ARENA_SLAB_BYTES, &f->arenas[i], &msg);
        if (err == EMBTIER_UNSUPPORTED) { /* this build has no such memory */
            for (uint32_t j = 0; j < i; j++)
                arena_free(f->arenas[j]);
            skip();
            return;
        }
        if (err != EMBTIER_OK)
            fail_msg("%s", msg.text);
        opts.arena_slab_count[i] = slabs[i];
    }
    if (row_cache_new(&opts, &f->cache, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
}

static inline void fixture_open_kinds(struct fixture *f, uint32_t tier_count, const uint32_t *slabs,
                                      const enum tier_kind *kinds, fixture_evict evict,
                                      void *context)
{
    fixture_open_mapped_kinds(f, tier_count, slabs, 0, kinds, evict, context);
}

static inline void fixture_open_mapped(struct fixture *f, uint32_t tier_count,
                                       const uint32_t *slabs, uint32_t map_slabs,
                                       fixture_evict evict, void *context)
{
    static const enum tier_kind dram[TIERS_MAX] = { TIER_KIND_DRAM };

    fixture_open_mapped_kinds(f, tier_count, slabs, map_slabs, dram, evict, context);
}

static inline void fixture_open(struct fixture *f, uint32_t tier_count, const uint32_t *slabs,
                                fixture_evict evict, void *context)
{
    fixture_open_mapped(f, tier_count, slabs, 0, evict, context);
}

static inline void fixture_close(struct fixture *f)
{
    row_cache_free(f->cache);
    for (uint32_t i = 0; i < f->tier_count; i++)
        arena_free(f->arenas[i]);
}

static inline void fixture_validate(const struct fixture *f)
{
    const char *wrong = row_cache_validate(f->cache);

    if (wrong)
        fail_msg("%s", wrong);
}

static inline struct row_cache_stats fixture_stats(const struct fixture *f)
{
    struct row_cache_stats stats;

    row_cache_stats(f->cache, &stats);
    return stats;
}

/* Inserts one row. True if it is cached now. */
static inline bool fixture_insert(struct fixture *f, uint16_t table, uint64_t id, const void *row,
                                  bool dirty)
{
    struct row_ref ref = fixture_ref(table, id, 0);
    uint64_t bits = dirty;
    uint32_t refused;

    return row_cache_insert(f->cache, table, &ref, 1, &row, &bits, &refused) == 0;
}

/* Gets one row. True if it was cached. */
static inline bool fixture_get(struct fixture *f, uint16_t table, uint64_t id, void *dest,
                               uint32_t bytes)
{
    struct row_ref ref = fixture_ref(table, id, 0);
    uint32_t missed;

    return row_cache_get(f->cache, table, &ref, 1, dest, 0, bytes, &missed) == 0;
}

static inline bool fixture_set(struct fixture *f, uint16_t table, uint64_t id, const void *row,
                               uint32_t bytes)
{
    struct row_ref ref = fixture_ref(table, id, 0);
    uint32_t missed;

    return row_cache_set(f->cache, table, &ref, 1, row, 0, bytes, &missed) == 0;
}

static inline bool fixture_pin(struct fixture *f, uint16_t table, uint64_t id)
{
    struct row_ref ref = fixture_ref(table, id, 0);
    uint64_t pinned = 0;

    row_cache_pin(f->cache, table, &ref, 1, &pinned);
    return pinned & 1;
}

static inline void fixture_unpin(struct fixture *f, uint16_t table, uint64_t id)
{
    struct row_ref ref = fixture_ref(table, id, 0);

    row_cache_unpin(f->cache, table, &ref, 1);
}

static inline uint64_t fixture_rows(const struct fixture *f)
{
    struct row_cache_stats stats = fixture_stats(f);
    uint64_t rows = 0;

    for (uint32_t i = 0; i < f->tier_count; i++)
        rows += stats.tiers[i].rows;
    return rows;
}

#endif
