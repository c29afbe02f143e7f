/* SPDX-License-Identifier: Apache-2.0 */
/* test_profiler.c: is the profile of a running server that of the lookups that its lanes saw? It is
 * exact while it is short. Then the hit rates that it predicts are those of an exact LRU cache:
 * within one point for one table of which a third of the rows is sampled, and within two for each
 * table of a shared cache. They are coarser the fewer rows are sampled. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/row_hash.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/tables/table.h"
#include "daemon/jobs/profile/profiler.h"
#include "placement/profile/profile_file.h"
#include "placement/synthetic/zipf.h"
#include "tests/forms.h"
#include "tests/unit/placement/exact_lru.h"

#define LANES      3
#define CORES      2
#define TABLES_MAX 40
#define BATCH      1000 /* ids, of all tables */
#define SIZES      4
#define ONE_TABLE  0.01
#define EACH_TABLE 0.02
#define FEW_ROWS   0.04 /* one row in 16 is sampled */
/* Batches of a second, as far as the pace is concerned. */
#define SECOND_BATCHES 1000

struct source {
    uint32_t rows;
    double exponent;
    double share; /* of the lookups */
    double row_bytes;
};

struct world {
    const struct source *sources;
    uint32_t count;
    struct row_hasher hasher;
    struct table tables[TABLES_MAX];
    struct zipf zipfs[TABLES_MAX];
    uint32_t bases[TABLES_MAX + 1];
    struct sampler *sampler;
    struct profiler *profiler;
    struct profile *exact; /* the library's, of the same lookups; NULL: not compared */
    struct exact_lru lrus[SIZES];
    uint32_t lru_count;
    struct random random;
    uint64_t batches;
    uint64_t drain_every; /* batches; 0: never */
    bool is_paced;
};

static void set_table(struct table *table, uint32_t index, uint32_t table_id, uint64_t rows)
{
    *table = (struct table){ .index = (uint16_t)index, .table_id = table_id, .state = TABLE_LIVE };
    table->spec.rows = rows;
    table->spec.dim = 8;
    table->spec.dtype = EMBTIER_DTYPE_F32;
    snprintf(table->spec.name, sizeof(table->spec.name), "t%u", index);
}

static void set_up(struct world *world, const struct source *sources, uint32_t count, uint8_t seed)
{
    const unsigned char key[ROW_HASH_KEY_BYTES] = { seed };
    const uint64_t bytes = profiler_bytes_most(count, LANES);
    struct err_msg msg = { { 0 } };

    *world =
        (struct world){ .sources = sources, .count = count, .random = { seed }, .drain_every = 1 };
    row_hasher_init(&world->hasher, key);
    for (uint32_t i = 0; i < count; i++) {
        set_table(&world->tables[i], i, i + 100, sources[i].rows);
        world->zipfs[i] = zipf_make(sources[i].rows, sources[i].exponent);
        world->bases[i + 1] = world->bases[i] + sources[i].rows;
    }
    assert_int_equal(sampler_new(count, LANES, &world->sampler), EMBTIER_OK);
    assert_int_equal(profiler_new(world->sampler, bytes, CORES, &world->profiler, &msg),
                     EMBTIER_OK);
}

static void tear_down(struct world *world)
{
    for (uint32_t i = 0; i < world->lru_count; i++)
        exact_lru_free(&world->lrus[i]);
    profile_free(world->exact);
    profiler_free(world->profiler);
    sampler_free(world->sampler);
}

/* Looks up ids of one table, as the request of a session whose home is @lane. */
static void look_up(struct world *world, uint32_t lane, uint32_t *batch, uint32_t table,
                    const uint64_t *ids, uint32_t count, uint32_t bags)
{
    uint64_t hashes[BATCH];

    for (uint32_t i = 0; i < count; i++)
        hashes[i] = row_hash(&world->hasher, world->tables[table].table_id, ids[i]);
    sampler_note(&world->sampler->lanes[lane], &(struct sampler_lookups){
                                                   .table = &world->tables[table],
                                                   .batch = batch,
                                                   .bags = bags,
                                                   .begins_segment = true,
                                                   .hashes = hashes,
                                                   .stride = 1,
                                                   .count = count,
                                               });
}

static void draw_ids(struct world *world, uint32_t table, uint32_t count, uint64_t *ret_ids)
{
    for (uint32_t i = 0; i < count; i++) {
        /* A row's number has nothing to do with its hotness. */
        ret_ids[i] = (zipf_draw(&world->zipfs[table], &world->random) * 2654435761u + 12345) %
                     world->sources[table].rows;
        for (uint32_t k = 0; k < world->lru_count; k++)
            exact_lru_lookup(&world->lrus[k], table, world->bases[table] + (uint32_t)ret_ids[i]);
    }
}

static void run_batch(struct world *world, double *owed)
{
    const uint32_t lane = (uint32_t)(world->batches++ % LANES);
    uint32_t batch = 0;

    for (uint32_t t = 0; t < world->count; t++) {
        uint64_t ids[BATCH];
        uint32_t count;

        owed[t] += world->sources[t].share * BATCH;
        count = MIN((uint32_t)owed[t], (uint32_t)BATCH);
        owed[t] -= count;
        if (count == 0)
            continue;
        draw_ids(world, t, count, ids);
        look_up(world, lane, &batch, t, ids, count, (count + 9) / 10);
        if (world->exact)
            assert_int_equal(
                profile_add(world->exact, &(struct trace_lookups){ .batch = world->batches,
                                                                   .table = t,
                                                                   .bag_count = (count + 9) / 10,
                                                                   .id_count = count,
                                                                   .ids = ids }),
                EMBTIER_OK);
    }
    if (world->drain_every > 0 && world->batches % world->drain_every == 0)
        (void)profiler_drain(world->profiler, UINT64_MAX);
    if (world->is_paced && world->batches % (SECOND_BATCHES / 10) == 0)
        profiler_pace(world->profiler, 100000000);
}

static void run(struct world *world, uint64_t lookups)
{
    double owed[TABLES_MAX] = { 0 };

    for (uint64_t i = 0; i < lookups / BATCH; i++)
        run_batch(world, owed);
}

/* Estimates may be wrong, but a file that contradicts itself is refused. */
static void assert_loads(const struct measured_profile *measured)
{
    _cleanup_(closep) int fd = memfd_create("profile", MFD_CLOEXEC);
    _cleanup_(measured_profile_freep) struct measured_profile *loaded = NULL;
    struct err_msg msg = { { 0 } };
    char path[64];

    assert_true(fd >= 0);
    for (uint32_t line = 0; line <= measured->table_count; line++) {
        _cleanup_(freep) char *text = NULL;
        size_t bytes = 0;

        assert_int_equal(profile_file_line(measured, line, &text, &bytes), EMBTIER_OK);
        assert_int_equal(write(fd, text, bytes), bytes);
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (profile_file_load(path, &loaded, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
}

/* Leaves the samples in the rings, as those that come while results are made. */
static struct measured_profile *measure_undrained(struct world *world)
{
    struct measured_profile *measured = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(profiler_measure(world->profiler, &measured, &msg), EMBTIER_OK);
    assert_loads(measured);
    return measured;
}

static struct measured_profile *measure(struct world *world)
{
    (void)profiler_drain(world->profiler, UINT64_MAX);
    return measure_undrained(world);
}

/* ---- Exact ---- */

static void use_library(struct world *world)
{
    struct trace_table tables[TABLES_MAX] = { 0 };
    struct err_msg msg;

    for (uint32_t i = 0; i < world->count; i++)
        tables[i].rows = world->sources[i].rows;
    assert_int_equal(profile_new(tables, world->count, GIB, &world->exact, &msg), EMBTIER_OK);
}

/* All rows are sampled: the figures are those of the library's profile of the same lookups. */
static void test_short_run_is_exact(void **state)
{
    static const struct source sources[] = { { 1000, 1.05, 0.7, 64 }, { 20000, 0.8, 0.3, 64 } };
    struct profiler_stats stats;
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, sources, 2, 7);
    use_library(&world);
    run(&world, 200000);
    measured = measure(&world);
    assert_int_equal(measured->table_count, 2);
    assert_int_equal(measured->lookups, 200000);
    assert_int_equal(measured->batches, 200000 / BATCH);
    for (uint32_t t = 0; t < 2; t++) {
        const struct table_summary exact = profile_summary(world.exact, t);
        const struct measured_table *const table = &measured->tables[t];
        struct access_cdf cdf;

        assert_string_equal(table->table.name, world.tables[t].spec.name);
        assert_int_equal(table->summary.lookups, exact.lookups);
        assert_int_equal(table->summary.batches, exact.batches);
        assert_true(table->summary.rows == exact.rows);
        assert_true(table->summary.batch_rows == exact.batch_rows);
        assert_true(table->summary.sampling_rate == 1);
        assert_true(table->pooling_factor == profile_pooling_factor(world.exact, t));
        assert_int_equal(profile_cdf(world.exact, t, &cdf), EMBTIER_OK);
        assert_int_equal(table->cdf.point_count, cdf.point_count);
        assert_memory_equal(table->cdf.rows, cdf.rows, sizeof(*cdf.rows) * cdf.point_count);
        assert_memory_equal(table->cdf.shares, cdf.shares, sizeof(*cdf.rows) * cdf.point_count);
    }
    profiler_stats(world.sampler, &stats);
    assert_true(stats.is_exact);
    assert_int_equal(stats.lookups, 200000);
    assert_int_equal(stats.tables, 2);
    measured_profile_free(measured);
    tear_down(&world);
}

/* ---- Hit rates ---- */

static void compare(const struct world *world, const struct measured_profile *measured,
                    const struct exact_lru *lru, double allowed)
{
    const struct cache_tiers tiers = { LRU_TIERS, { lru->bytes[0], lru->bytes[1] } };
    struct table_prediction predicted[TABLES_MAX];
    double worst = 0;
    struct err_msg msg;

    assert_int_equal(measured_profile_predict(measured, lru->row_bytes, &tiers, predicted, &msg),
                     EMBTIER_OK);
    for (uint32_t t = 0; t < world->count; t++)
        for (uint32_t tier = 0; tier < LRU_TIERS; tier++) {
            const double exact =
                (double)lru->hits[t][tier] / (double)MAX(lru->lookups[t], UINT64_C(1));
            const double error = predicted[t].hit_rates[tier] - exact;

            worst = fabs(error) > fabs(worst) ? error : worst;
        }
    printf("  %.0f and %.0f bytes: the worst error is %+.4f\n", lru->bytes[0], lru->bytes[1],
           worst);
    assert_true(fabs(worst) <= allowed);
}

/* The caches hold these shares of all bytes, half of them in each tier. All hold more than a batch:
 * within one, a prediction does not know the order of the tables. */
static void add_lrus(struct world *world)
{
    static const double shares[SIZES] = { 0.05, 0.1, 0.3, 0.6 };
    double bytes = 0;

    for (uint32_t i = 0; i < world->count; i++)
        bytes += world->sources[i].rows * world->sources[i].row_bytes;
    for (uint32_t k = 0; k < SIZES; k++) {
        const double half = bytes * shares[k] / 2;

        exact_lru_init(&world->lrus[k], world->bases[world->count], (double[]){ half, half });
        for (uint32_t i = 0; i < world->count; i++)
            world->lrus[k].row_bytes[i] = world->sources[i].row_bytes;
    }
    world->lru_count = SIZES;
}

/* Thins all samples as soon as their tables are there. */
static void thin_all(struct world *world, uint32_t shift, uint32_t interval)
{
    double owed[TABLES_MAX] = { 0 };

    run_batch(world, owed);
    for (uint32_t i = 0; i < world->count; i++) {
        sampler_thin(&world->sampler->tables[i], UINT64_MAX >> shift);
        atomic_store(&world->sampler->tables[i].pick_interval, interval);
    }
}

struct thinning {
    uint32_t shift;    /* one row in 2^shift is sampled, */
    uint32_t interval; /* and one lookup in so many is picked */
};

static void predict(const struct source *sources, uint32_t count, uint64_t lookups,
                    struct thinning thinning, uint8_t seed, double allowed)
{
    struct measured_profile *measured;
    struct profiler_stats stats;
    struct world world;

    set_up(&world, sources, count, seed);
    add_lrus(&world);
    if (thinning.shift > 0)
        thin_all(&world, thinning.shift, thinning.interval);
    run(&world, lookups);
    measured = measure(&world);
    profiler_stats(world.sampler, &stats);
    printf("  rate %.4f, %.4f samples for each lookup\n", measured->tables[0].summary.sampling_rate,
           (double)stats.samples / (double)stats.lookups);
    assert_int_equal(stats.lost_samples, 0);
    for (uint32_t k = 0; k < SIZES; k++)
        compare(&world, measured, &world.lrus[k], allowed);
    measured_profile_free(measured);
    tear_down(&world);
}

static void test_predicts_one_table(void **state)
{
    static const double exponents[] = { 0.8, 1.05, 1.2 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(exponents); i++)
        for (uint8_t seed = 1; seed <= BY_BUILD(3, 1, 1); seed++) {
            const struct source source = { 1 << 16, exponents[i], 1, 256 };

            printf("Zipf %.2f\n", exponents[i]);
            predict(&source, 1, 700000, (struct thinning){ 0 }, seed, ONE_TABLE);
        }
}

static void test_predicts_a_thinned_sample(void **state)
{
    static const double exponents[] = { 0.8, 1.05, 1.2 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(exponents); i++)
        for (uint8_t seed = 1; seed <= BY_BUILD(2, 1, 1); seed++) {
            const struct source source = { 1 << 18, exponents[i], 1, 256 };

            printf("Zipf %.2f\n", exponents[i]);
            predict(&source, 1, 1500000, (struct thinning){ 4, 64 }, seed, FEW_ROWS);
        }
}

static void test_predicts_tables_of_a_shared_cache(void **state)
{
    static const struct source sources[] = { { 1 << 16, 0.8, 0.5, 512 },
                                             { 1 << 17, 1.05, 0.35, 256 },
                                             { 1 << 15, 1.2, 0.1, 128 },
                                             { 2000, 1.05, 0.05, 64 } };

    (void)state;
    for (uint8_t seed = 1; seed <= BY_BUILD(3, 1, 1); seed++)
        predict(sources, 4, 1500000, (struct thinning){ 0 }, seed, EACH_TABLE);
}

/* The sample misses the hottest row, or has it and counts it many times. Random lookups know
 * better. */
static void test_cdf_has_the_hottest_rows(void **state)
{
    static const struct source source = { 1 << 18, 1.05, 1, 256 };
    static const double rows[] = { 1, 10, 100 };

    (void)state;
    for (uint8_t seed = 1; seed <= BY_BUILD(4, 2, 2); seed++) {
        struct measured_profile *measured;
        double all = 0, share = 0, mass = 0;
        struct world world;
        uint32_t next = 0;

        set_up(&world, &source, 1, seed);
        thin_all(&world, 6, 64);
        run(&world, 2000000);
        measured = measure(&world);
        for (uint32_t k = 1; k <= source.rows; k++)
            all += pow(k, -source.exponent);
        for (uint32_t k = 1; next < ARRAY_LEN(rows); k++) {
            mass += pow(k, -source.exponent);
            if (k < rows[next])
                continue;
            share = access_cdf_share(&measured->tables[0].cdf, rows[next++]);
            printf("  the %u hottest rows: %.4f, exact %.4f\n", k, share, mass / all);
            assert_true(fabs(share - mass / all) <= 0.03);
        }
        measured_profile_free(measured);
        tear_down(&world);
    }
}

/* ---- Bounds ---- */

/* However hot a row is, a piece of a request has one sample of it. */
static void test_hot_row_costs_no_more(void **state)
{
    static const struct source source = { 100, 0, 1, 64 };
    struct profiler_stats stats;
    uint64_t ids[BATCH] = { 0 };
    struct world world;

    (void)state;
    set_up(&world, &source, 1, 7);
    for (uint32_t i = 0; i < 50; i++)
        look_up(&world, i % LANES, &(uint32_t){ 0 }, 0, ids, BATCH, 1);
    profiler_stats(world.sampler, &stats);
    assert_int_equal(stats.lookups, 50 * BATCH);
    assert_int_equal(stats.samples, 50);
    tear_down(&world);
}

/* A ring that fills up thins the sample; what then still finds no room is counted. The exact counts
 * lack nothing, and the estimate is right while no sample was lost. */
static void test_full_ring_thins_first(void **state)
{
    static const struct source source = { 1 << 18, 0, 1, 256 };
    struct measured_profile *measured;
    struct profiler_stats stats;
    struct world world;

    (void)state;
    set_up(&world, &source, 1, 7);
    world.drain_every = 0;
    do {
        run(&world, 20000);
        profiler_stats(world.sampler, &stats);
    } while (atomic_load(&world.sampler->tables[0].threshold) == UINT64_MAX);
    assert_int_equal(stats.lost_samples, 0);
    run(&world, 100000);
    measured = measure(&world);
    assert_true(measured->tables[0].summary.sampling_rate < 1);
    assert_true(fabs(measured->tables[0].summary.rows /
                         (source.rows * (1 - exp(-(double)measured->lookups / source.rows))) -
                     1) < 0.05);
    measured_profile_free(measured);
    do {
        run(&world, 100000);
        profiler_stats(world.sampler, &stats);
    } while (stats.lost_samples == 0);
    measured = measure(&world);
    assert_int_equal(measured->lookups, stats.lookups);
    assert_false(stats.is_exact);
    measured_profile_free(measured);
    tear_down(&world);
}

/* All rows of a small table were seen before it was thinned, so their number stays right. */
static void test_thinned_small_table_keeps_its_rows(void **state)
{
    static const struct source source = { 100, 0, 1, 64 };
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, &source, 1, 7);
    run(&world, 10000);
    thin_all(&world, 6, 64);
    run(&world, 1000000);
    measured = measure(&world);
    assert_true(measured->tables[0].summary.rows == 100);
    assert_true(fabs(access_cdf_share(&measured->tables[0].cdf, 50) - 0.5) < 0.05);
    measured_profile_free(measured);
    tear_down(&world);
}

/* The pace lowers thresholds and random lookups, when the free samples are used up. */
static void test_pace_bounds_samples(void **state)
{
    static const struct source source = { 1 << 14, 0, 1, 256 };
    struct profiler_stats before, after;
    struct world world;

    (void)state;
    set_up(&world, &source, 1, 7);
    world.is_paced = true;
    run(&world, 3000000);
    profiler_stats(world.sampler, &before);
    run(&world, (uint64_t)SECOND_BATCHES * BATCH);
    profiler_stats(world.sampler, &after);
    assert_true(after.samples - before.samples <= CORES * PROFILER_CORE_SAMPLES_PER_SECOND);
    assert_true(after.samples > before.samples);
    tear_down(&world);
}

/* ---- Tables ---- */

/* If two tables have one name, only the later is there; a dropped one of another name stays. */
static void test_dropped_tables(void **state)
{
    static const struct source sources[] = { { 100, 0, 0.5, 64 },
                                             { 100, 0, 0.5, 64 },
                                             { 100, 0, 0, 64 } };
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, sources, 3, 7);
    run(&world, 10000);
    set_table(&world.tables[0], 0, 200, 50); /* again, with other rows */
    run(&world, 4000);
    measured = measure(&world);
    assert_int_equal(measured->table_count, 2);
    assert_int_equal(measured->lookups, 5000 + 2000 + 2000);
    assert_string_equal(measured->tables[0].table.name, "t1");
    assert_int_equal(measured->tables[0].summary.lookups, 7000);
    assert_string_equal(measured->tables[1].table.name, "t0");
    assert_int_equal(measured->tables[1].summary.lookups, 2000);
    assert_int_equal(measured->tables[1].table.rows, 50);
    measured_profile_free(measured);
    tear_down(&world);
}

static void test_tables_without_room_are_left_out(void **state)
{
    static const struct source sources[] = { { 100, 0, 1, 64 } };
    uint64_t ids[BATCH] = { 0 };
    struct profiler_stats stats;
    struct table other;
    struct world world;
    uint32_t batch = 0;

    (void)state;
    set_up(&world, sources, 1, 7);
    run(&world, 1000);
    set_table(&other, 5, 300, 10);
    sampler_note(&world.sampler->lanes[0],
                 &(struct sampler_lookups){
                     .table = &other, .batch = &batch, .hashes = ids, .stride = 1, .count = 10 });
    sampler_note_updates(&world.sampler->lanes[0], &other, 10);
    profiler_stats(world.sampler, &stats);
    assert_int_equal(stats.lookups, 1000);
    assert_int_equal(stats.tables, 1);
    tear_down(&world);
}

static void test_updated_rows(void **state)
{
    static const struct source sources[] = { { 1000, 0, 1, 64 } };
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, sources, 1, 7);
    run(&world, 10 * BATCH);
    sampler_note_updates(&world.sampler->lanes[0], &world.tables[0], 1000);
    sampler_note_updates(&world.sampler->lanes[2], &world.tables[0], 500);
    measured = measure(&world);
    assert_true(measured->tables[0].summary.updated_batch_rows == 150);
    measured_profile_free(measured);
    tear_down(&world);
}

/* Samples that are lost, or come while results are made, leave lookups without times. Each row that
 * was looked up still has its first one. */
static void test_lookups_without_samples(void **state)
{
    static const struct source sources[] = { { 1000, 0, 0.5, 64 }, { 1000, 0, 0.5, 64 } };
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, sources, 2, 7);
    world.drain_every = 0;
    run(&world, 5 * BATCH);
    measured = measure_undrained(&world);
    for (uint32_t i = 0; i < 2; i++) {
        const struct measured_table *const table = &measured->tables[i];
        double firsts = 0;

        for (uint32_t k = 0; k < measured->segment_count; k++)
            firsts += table->first[k];
        assert_int_equal(table->summary.lookups, 5 * BATCH / 2);
        assert_int_equal(table->bin_count, 0);
        assert_true(table->summary.rows == 1 && firsts == 1);
    }
    measured_profile_free(measured);
    tear_down(&world);
}

/* Looks up @count ids of table 0, at most three, on lane 0. */
static void look_up_part(struct world *world, uint32_t *batch, bool begins_segment, uint32_t count)
{
    const uint64_t hashes[3] = { 1, 2, 3 };

    sampler_note(&world->sampler->lanes[0],
                 &(struct sampler_lookups){ .table = &world->tables[0],
                                            .batch = batch,
                                            .begins_segment = begins_segment,
                                            .hashes = hashes,
                                            .stride = 1,
                                            .count = count });
}

/* A request that began before the profile has neither bag nor batch. If a lane takes two requests
 * in turns, the table counts each segment as a batch. */
static void test_batches_that_are_taken_in_pieces(void **state)
{
    static const struct source sources[] = { { 1000, 0, 1, 64 } };
    uint32_t batches[3] = { 0 };
    struct measured_profile *measured;
    struct world world;

    (void)state;
    set_up(&world, sources, 1, 7);
    look_up_part(&world, &batches[0], false, 3);
    measured = measure(&world);
    assert_int_equal(measured->batches, 1);
    assert_int_equal(measured->tables[0].summary.batches, 1);
    assert_true(measured->tables[0].pooling_factor == 0);
    measured_profile_free(measured);
    for (uint32_t i = 0; i < 8; i++)
        look_up_part(&world, &batches[1 + i % 2], true, 3);
    measured = measure(&world);
    assert_int_equal(measured->tables[0].summary.batches, 8);
    assert_int_equal(measured->batches, 8);
    measured_profile_free(measured);
    tear_down(&world);
}

/* Another lane has counted a batch, and its lookup not yet. */
static void test_a_batch_before_its_lookup(void **state)
{
    static const struct source sources[] = { { 1000, 0, 1, 64 } };
    struct measured_profile *measured;
    struct world world;
    uint32_t batch = 0;

    (void)state;
    set_up(&world, sources, 1, 7);
    look_up_part(&world, &batch, true, 1);
    world.sampler->lanes[1].counts[0].batches = 1;
    measured = measure(&world);
    assert_int_equal(measured->tables[0].summary.lookups, 1);
    assert_int_equal(measured->tables[0].summary.batches, 1);
    measured_profile_free(measured);
    tear_down(&world);
}

static void test_nothing_looked_up(void **state)
{
    static const struct source sources[] = { { 1000, 0, 1, 64 } };
    struct measured_profile *measured = NULL;
    struct err_msg msg = { { 0 } };
    struct profiler *profiler = NULL;
    struct world world;

    (void)state;
    set_up(&world, sources, 1, 7);
    assert_int_equal(profiler_measure(world.profiler, &measured, &msg), EMBTIER_NOT_FOUND);
    assert_int_equal(
        profiler_new(world.sampler, profiler_bytes_least(1, LANES) - 1, CORES, &profiler, &msg),
        EMBTIER_TOO_LARGE);
    assert_non_null(strstr(msg.text, "a profile of 1 table on 3 lanes needs at least"));
    tear_down(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_run_is_exact),
        cmocka_unit_test(test_predicts_one_table),
        cmocka_unit_test(test_predicts_a_thinned_sample),
        cmocka_unit_test(test_predicts_tables_of_a_shared_cache),
        cmocka_unit_test(test_cdf_has_the_hottest_rows),
        cmocka_unit_test(test_hot_row_costs_no_more),
        cmocka_unit_test(test_full_ring_thins_first),
        cmocka_unit_test(test_thinned_small_table_keeps_its_rows),
        cmocka_unit_test(test_pace_bounds_samples),
        cmocka_unit_test(test_dropped_tables),
        cmocka_unit_test(test_tables_without_room_are_left_out),
        cmocka_unit_test(test_updated_rows),
        cmocka_unit_test(test_lookups_without_samples),
        cmocka_unit_test(test_batches_that_are_taken_in_pieces),
        cmocka_unit_test(test_a_batch_before_its_lookup),
        cmocka_unit_test(test_nothing_looked_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
