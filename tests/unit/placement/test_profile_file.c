/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile_file.c: is a saved profile what it was, and does a bad one end in a clear error? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "placement/profile/profile_file.h"
#include "placement/synthetic/zipf.h"
#include "tests/unit/placement/chosen_rows.h"
#include "tests/unit/placement/trace_fixture.h"

#define TABLES 2
#define BATCH  1000

static const struct trace_table tables[TABLES] = {
    { "users", UINT64_MAX, 64, EMBTIER_DTYPE_F32 },
    { "items", 0, 16, EMBTIER_DTYPE_BF16 },
};

/* Measures 40 batches of the first table; the second one has no lookups if @is_idle. */
static struct measured_profile *measure(bool is_idle)
{
    struct measured_profile *measured = NULL;
    struct profile *profile = NULL;
    struct random random = { 2 };
    struct err_msg msg;
    uint64_t ids[BATCH];

    assert_int_equal(profile_new(tables, TABLES, TABLES * MIB, &profile, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < 80; i++) {
        const struct zipf zipf = zipf_make(i % 2 == 0 ? 100000 : 2000, 0.9);
        const uint32_t bag_ends[] = { BATCH };
        const struct trace_lookups lookups = { .batch = i / 2,
                                               .table = i % 2,
                                               .is_update = true,
                                               .bag_count = 1,
                                               .id_count = BATCH,
                                               .bag_ends = bag_ends,
                                               .ids = ids };

        for (uint32_t k = 0; k < BATCH; k++)
            ids[k] = zipf_draw(&zipf, &random);
        if (i % 2 == 0 || !is_idle)
            assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
    }
    assert_int_equal(measured_profile_make(profile, tables, &measured), EMBTIER_OK);
    profile_free(profile);
    return measured;
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-5 * MAX(fabs(a), 1.0));
}

static void compare_predictions(const struct measured_profile *a, const struct measured_profile *b)
{
    const struct cache_tiers tiers = { 2, { 100000, 500000 } };
    struct table_prediction one[TABLES], other[TABLES];
    struct err_msg msg;

    assert_int_equal(measured_profile_predict(a, (double[]){ 256, 32 }, &tiers, one, &msg),
                     EMBTIER_OK);
    assert_int_equal(measured_profile_predict(b, (double[]){ 256, 32 }, &tiers, other, &msg),
                     EMBTIER_OK);
    for (uint32_t i = 0; i < TABLES; i++)
        for (uint32_t tier = 0; tier < 2; tier++) {
            assert_near(one[i].hit_rates[tier], other[i].hit_rates[tier]);
            assert_near(one[i].bytes[tier], other[i].bytes[tier]);
        }
}

static void test_loads_what_was_saved(void **state)
{
    const struct trace_fixture *const fixture = *state;

    for (int is_idle = 0; is_idle < 2; is_idle++) {
        struct measured_profile *const saved = measure(is_idle != 0);
        struct measured_profile *loaded = NULL;
        struct err_msg msg;

        assert_int_equal(profile_file_save(saved, fixture->path, &msg), EMBTIER_OK);
        assert_int_equal(profile_file_load(fixture->path, &loaded, &msg), EMBTIER_OK);
        assert_int_equal(loaded->lookups, is_idle ? 40000 : 80000);
        assert_int_equal(loaded->batches, 40);
        assert_int_equal(loaded->table_count, TABLES);
        for (uint32_t i = 0; i < TABLES; i++) {
            const struct measured_table *const a = &saved->tables[i], *const b = &loaded->tables[i];

            assert_string_equal(b->table.name, tables[i].name);
            assert_int_equal(b->table.rows, tables[i].rows);
            assert_int_equal(b->table.dim, tables[i].dim);
            assert_int_equal(b->table.dtype, tables[i].dtype);
            assert_int_equal(a->summary.lookups, b->summary.lookups);
            assert_int_equal(a->summary.batches, b->summary.batches);
            assert_near(a->summary.rows, b->summary.rows);
            assert_near(a->summary.batch_rows, b->summary.batch_rows);
            assert_near(a->summary.updated_batch_rows, b->summary.updated_batch_rows);
            assert_near(a->pooling_factor, b->pooling_factor);
            assert_int_equal(a->cdf.point_count, b->cdf.point_count);
            for (uint32_t k = 0; k < a->cdf.point_count; k++)
                assert_near(a->cdf.shares[k], b->cdf.shares[k]);
        }
        compare_predictions(saved, loaded);
        measured_profile_free(saved);
        measured_profile_free(loaded);
        unlink(fixture->path);
    }
}

/* ---- Estimates ---- */

/* Makes tables of different names. */
static struct trace_table *unbounded_tables(uint32_t table_count)
{
    struct trace_table *const all = calloc(table_count, sizeof(*all));

    for (uint32_t i = 0; i < table_count; i++) {
        all[i] = tables[1];
        snprintf(all[i].name, sizeof(all[i].name), "t%" PRIu32, i);
    }
    return all;
}

/* Adds one lookup of @id to each table. */
static void look_up(struct profile *profile, uint32_t table_count, uint64_t id)
{
    const uint32_t bag_ends[] = { 1 };

    for (uint32_t table = 0; table < table_count; table++) {
        const struct trace_lookups lookups = {
            .table = table, .bag_count = 1, .id_count = 1, .bag_ends = bag_ends, .ids = &id
        };

        assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
    }
}

/* Saves and loads. Estimates may be wrong, but no more than what is possible. */
static void assert_possible(const char *path, const struct profile *profile, uint32_t table_count)
{
    _cleanup_(freep) struct trace_table *all = unbounded_tables(table_count);
    _cleanup_(measured_profile_freep) struct measured_profile *saved = NULL;
    _cleanup_(measured_profile_freep) struct measured_profile *loaded = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(measured_profile_make(profile, all, &saved), EMBTIER_OK);
    assert_int_equal(profile_file_save(saved, path, &msg), EMBTIER_OK);
    if (profile_file_load(path, &loaded, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    for (uint32_t i = 0; i < table_count; i++) {
        const struct measured_table *const table = &loaded->tables[i];

        assert_true(table->summary.rows >= 1 && table->cdf.point_count >= 1);
        assert_near(table->cdf.rows[table->cdf.point_count - 1], table->summary.rows);
    }
    assert_int_equal(unlink(path), 0);
}

/* Tables of all sizes and slopes, sampled and not. */
static void test_saves_all_kinds_of_tables(void **state)
{
    enum { COUNT = 40, LOOKUPS = 20000 };
    const struct trace_fixture *const fixture = *state;
    const uint64_t memory_bytes = COUNT * table_profile_bytes(TABLE_PROFILE_SLOTS_MIN);
    _cleanup_(freep) struct trace_table *all = unbounded_tables(COUNT);
    _cleanup_(profile_freep) struct profile *profile = NULL;
    struct random random = { 31 };
    struct err_msg msg;

    assert_int_equal(profile_new(all, COUNT, memory_bytes, &profile, &msg), EMBTIER_OK);
    for (uint32_t table = 0; table < COUNT; table++) {
        const struct zipf zipf = zipf_make(UINT64_C(1) << table, table % 8 * 0.25);
        const uint32_t bag_ends[] = { 1 };

        for (uint32_t i = 0; i < LOOKUPS; i++) {
            const uint64_t id = zipf_draw(&zipf, &random);
            const struct trace_lookups lookups = {
                .table = table, .bag_count = 1, .id_count = 1, .bag_ends = bag_ends, .ids = &id
            };

            assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
        }
    }
    assert_possible(fixture->path, profile, COUNT);
}

/* Half of the lookups are of one row that pads bags, and all others are the first of their row. So
 * the sample's estimate of rows is more than its lookups for about every other table. Small samples
 * show that with few lookups. */
static void test_saves_a_padded_trace(void **state)
{
    enum { COUNT = 8 };
    static const uint32_t lengths[] = { 1000, 10000, 50000, 100000, 200000 };
    const struct trace_fixture *const fixture = *state;
    _cleanup_(profile_freep) struct profile *profile = NULL;
    struct err_msg msg;
    const uint64_t memory_bytes = COUNT * table_profile_bytes(TABLE_PROFILE_SLOTS_MIN);
    _cleanup_(freep) struct trace_table *all = unbounded_tables(COUNT);
    uint64_t id = 0;

    assert_int_equal(profile_new(all, COUNT, memory_bytes, &profile, &msg), EMBTIER_OK);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        while (id < lengths[i]) {
            look_up(profile, COUNT, 0);
            look_up(profile, COUNT, ++id);
        }
        assert_possible(fixture->path, profile, COUNT);
    }
}

/* Rows that all leave the sample with the first fall of its rate, then one row that is held. */
static void test_saves_an_emptied_sample(void **state)
{
    static const uint32_t repeats[] = { 1, 100, 10000 };
    const struct trace_fixture *const fixture = *state;

    for (size_t i = 0; i < ARRAY_LEN(repeats); i++) {
        _cleanup_(profile_freep) struct profile *profile = NULL;
        struct err_msg msg;

        assert_int_equal(profile_new(&tables[1], 1, MIB, &profile, &msg), EMBTIER_OK);
        for (uint64_t k = 0; k < TABLE_PROFILE_SLOTS_MAX / 4 * 3; k++)
            look_up(profile, 1, row_of_hash(PROFILE_SEED, UINT64_MAX - 1 - k));
        for (uint32_t k = 0; k < repeats[i]; k++)
            look_up(profile, 1, row_of_hash(PROFILE_SEED, UINT64_MAX));
        assert_true(profile_summary(profile, 0).sampling_rate < 1);
        assert_possible(fixture->path, profile, 1);
    }
}

static void test_replaces_no_file(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(measured_profile_freep) struct measured_profile *measured = measure(false);
    struct err_msg msg;

    assert_int_equal(profile_file_save(measured, fixture->path, &msg), EMBTIER_OK);
    assert_int_equal(profile_file_save(measured, fixture->path, &msg), EMBTIER_EXISTS);
    assert_int_equal(access(fixture->path, F_OK), 0);
}

/* Saves in a process that the kernel kills after some bytes. Returns its number. */
static pid_t save_in_part(const struct measured_profile *measured, const char *path)
{
    const pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit limit = { 1000, 1000 };
        struct err_msg msg;

        (void)signal(SIGXFSZ, SIG_DFL);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        _exit((int)profile_file_save(measured, path, &msg));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    return pid;
}

static void test_a_killed_save_leaves_its_name_free(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(measured_profile_freep) struct measured_profile *measured = measure(false);
    _cleanup_(measured_profile_freep) struct measured_profile *loaded = NULL;
    char pattern[sizeof(fixture->path) + 32];
    struct err_msg msg;
    glob_t partial;

    snprintf(pattern, sizeof(pattern), "%s.%d-*.partial", fixture->path,
             (int)save_in_part(measured, fixture->path));
    assert_int_equal(access(fixture->path, F_OK), -1);
    assert_int_equal(glob(pattern, 0, NULL, &partial), 0);
    assert_int_equal(partial.gl_pathc, 1);
    assert_int_equal(unlink(partial.gl_pathv[0]), 0);
    globfree(&partial);
    assert_int_equal(profile_file_save(measured, fixture->path, &msg), EMBTIER_OK);
    assert_int_equal(profile_file_load(fixture->path, &loaded, &msg), EMBTIER_OK);
}

/* A table with all bins of all segments, so that its line is the longest that there is. */
static void test_loads_the_longest_line(void **state)
{
    enum { BINS = REUSE_SEGMENTS_MAX * TIME_HISTOGRAM_BINS };
    const struct trace_fixture *const fixture = *state;
    _cleanup_(freep) struct measured_bin *bins = calloc(BINS, sizeof(*bins));
    _cleanup_(measured_profile_freep) struct measured_profile *loaded = NULL;
    struct measured_table table = { .table = tables[0], .bin_count = BINS, .bins = bins };
    const struct measured_profile saved = { .lookups = INT64_MAX,
                                            .batches = INT64_MAX,
                                            .segment_length = INT64_MAX / REUSE_SEGMENTS_MAX + 1,
                                            .segment_count = REUSE_SEGMENTS_MAX,
                                            .table_count = 1,
                                            .tables = &table };
    struct err_msg msg = { { 0 } };

    memset(table.table.name, 'n', EMBTIER_TABLE_NAME_MAX);
    table.pooling_factor = 1.23456789;
    table.summary = (struct table_summary){ INT64_MAX,     INT64_MAX,     1.23456789e12,
                                            1.23456789e-5, 1.23456789e-6, 1.23456789e-7 };
    for (uint32_t i = 0; i < REUSE_SEGMENTS_MAX; i++)
        table.first[i] = table.summary.rows / REUSE_SEGMENTS_MAX;
    table.cdf.point_count = ACCESS_CDF_POINTS_MAX;
    for (uint32_t i = 0; i < ACCESS_CDF_POINTS_MAX; i++) {
        table.cdf.shares[i] = (i + 1.0) / ACCESS_CDF_POINTS_MAX;
        table.cdf.rows[i] = table.cdf.shares[i] * table.summary.rows;
    }
    for (uint32_t i = 0; i < BINS; i++)
        bins[i] = (struct measured_bin){ (uint16_t)(i / TIME_HISTOGRAM_BINS),
                                         (uint16_t)(i % TIME_HISTOGRAM_BINS), 1.23456789e12f };
    assert_int_equal(profile_file_save(&saved, fixture->path, &msg), EMBTIER_OK);
    if (profile_file_load(fixture->path, &loaded, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_int_equal(loaded->tables[0].bin_count, BINS);
}

/* ---- Damaged files ---- */

#define HEADER_OF(tables, lookups, segment_length)                                                 \
    "{\"format\":\"embtier-profile\",\"version\":1,\"tables\":" tables ",\"lookups\":" lookups     \
    ",\"batches\":2,\"segments\":2,\"segment_length\":" segment_length "}\n"
#define HEADER HEADER_OF("1", "10", "50")
#define TABLE  TABLE_OF("a")
#define TABLE_OF(name)                                                                             \
    "{\"name\":\"" name "\",\"rows\":9,\"dim\":4,\"dtype\":\"f32\",\"lookups\":10,\"batches\":2,"  \
    "\"pooling_factor\":5,\"distinct_rows\":4,\"batch_rows\":3,\"updated_batch_rows\":1,"          \
    "\"sampling_rate\":1,\"cdf_rows\":[1,4],\"cdf_shares\":[0.5,1],\"first\":[3,1],"               \
    "\"reuse\":[[1,1],[2,2,5,3]]}\n"

static enum embtier_err load_text(const char *path, const char *text, struct err_msg *ret_msg)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured = NULL;
    FILE *const file = fopen(path, "w");

    *ret_msg = (struct err_msg){ { 0 } };
    fputs(text, file);
    fclose(file);
    return profile_file_load(path, &measured, ret_msg);
}

/* Returns @whole with one part replaced. */
static char *bent(const char *whole, const char *from, const char *to)
{
    const char *const at = strstr(whole, from);
    char *text = NULL;

    assert_non_null(at);
    assert_true(asprintf(&text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from)) > 0);
    return text;
}

struct bad_value {
    const char *from, *to;
    enum embtier_err err;
    const char *text;
};

static const struct bad_value bad_figures[] = {
    { "embtier-profile", "other", EMBTIER_CORRUPT, ":1: format: not embtier-profile" },
    { "\"version\":1", "\"version\":2", EMBTIER_VERSION, ":1: version: 2 is newer than 1" },
    { "\"version\":1", "\"version\":1.5", EMBTIER_CORRUPT, ":1: version: not a whole number" },
    { "\"tables\":1", "\"tables\":0", EMBTIER_CORRUPT, ":1: tables: 0; allowed: 1" },
    { "\"tables\":1", "\"tables\":8193", EMBTIER_TOO_LARGE, ":1: tables: 8193; allowed" },
    { "\"tables\":1", "\"tables\":2", EMBTIER_CORRUPT, ":3: the file was cut short" },
    { "\"lookups\":10", "\"lookups\":-1", EMBTIER_CORRUPT, ":1: lookups: -1; allowed: 0" },
    { "\"segments\":2", "\"segments\":17", EMBTIER_CORRUPT, ":1: segments: 17; allowed: 1 to 16" },
    { "th\":50", "th\":4", EMBTIER_CORRUPT, ":1: segment_length: 2 segments of 4 do not hold" },
    { "th\":50", "th\":9223372036854775807", EMBTIER_CORRUPT,
      ":1: segment_length: 9223372036854775807; allowed: 1 to 4611686018427387904" },
    { "\"batches\":2,\"seg", "\"batches\":[],\"seg", EMBTIER_CORRUPT, ":1: batches: not a" },
    { "\"batches\":2,\"seg", "\"batches\":0,\"seg", EMBTIER_CORRUPT,
      ":1: batches: 0; allowed: 1 to 9223372036854775807" },
    { "\"name\":\"a\"", "\"name\":\"/\"", EMBTIER_CORRUPT, ":2: name: not the name" },
    { "\"rows\":9", "\"rows\":0", EMBTIER_CORRUPT, ":2: rows: 0; allowed: 1" },
    { "\"rows\":9", "\"rows\":\"9\"", EMBTIER_CORRUPT, ":2: rows: not a number of rows" },
    { "\"rows\":9", "\"rows\":\"-1\"", EMBTIER_CORRUPT, ":2: rows: not a number of rows" },
    { "\"rows\":9", "\"rows\":\" 9223372036854775808\"", EMBTIER_CORRUPT,
      ":2: rows: not a number of rows" },
    { "\"rows\":9", "\"rows\":\"+9223372036854775808\"", EMBTIER_CORRUPT,
      ":2: rows: not a number of rows" },
    { "\"rows\":9", "\"rows\":\"\"", EMBTIER_CORRUPT, ":2: rows: not a number of rows" },
    { "\"dim\":4", "\"dim\":8193", EMBTIER_CORRUPT, ":2: dim: 8193; allowed: 1 to 8192" },
    { "\"f32\"", "\"f64\"", EMBTIER_CORRUPT, ":2: dtype: allowed: f32, f16, bf16" },
    { "\"lookups\":10,\"batches\":2,\"p", "\"lookups\":11,\"batches\":2,\"p", EMBTIER_CORRUPT,
      ":2: lookups: 11; allowed: 0 to 10" },
    { "10,\"batches\":2,\"p", "10,\"batches\":0,\"p", EMBTIER_CORRUPT,
      ":2: batches: 0; allowed: 1 to 2" },
    { "10,\"batches\":2,\"p", "10,\"batches\":3,\"p", EMBTIER_CORRUPT,
      ":2: batches: 3; allowed: 1 to 2" },
    { "\"pooling_factor\":5", "\"pooling_factor\":-5", EMBTIER_CORRUPT, ":2: pooling_factor: -5" },
    { "\"pooling_factor\":5", "\"pooling_factor\":11", EMBTIER_CORRUPT,
      ":2: pooling_factor: 11; allowed: 0 to 10" },
    { "\"pooling_factor\":5", "\"pooling_factor\":1e-290", EMBTIER_CORRUPT,
      ":2: pooling_factor: 1e-290; allowed: 0, or 1.08420217e-18 to 10" },
    { "\"pooling_factor\":5", "\"pooling_factor\":NaN", EMBTIER_CORRUPT,
      ":2: pooling_factor: character " },
    { "\"pooling_factor\":5", "\"pooling_factor\" \t :NaN", EMBTIER_CORRUPT,
      ":2: pooling_factor: character " },
    { "\"pooling_factor\":5", "\"pooling_factor\":1e999", EMBTIER_CORRUPT,
      ":2: pooling_factor: character " },
    { "\"pooling_factor\":5,", "", EMBTIER_CORRUPT, ":2: pooling_factor: not a number" },
    { "\"distinct_rows\":4", "\"distinct_rows\":11", EMBTIER_CORRUPT, ":2: distinct_rows: 11;" },
    { "\"distinct_rows\":4", "\"distinct_rows\":5e-324", EMBTIER_CORRUPT,
      ":2: distinct_rows: 4.94065646e-324; allowed: 1 to 9" },
    { "\"rows\":9", "\"rows\":3", EMBTIER_CORRUPT, ":2: distinct_rows: 4; allowed: 1 to 3" },
    { "\"distinct_rows\":4,\"batch_rows\":3", "\"distinct_rows\":9,\"batch_rows\":6",
      EMBTIER_CORRUPT, ":2: batch_rows: 6; allowed: 0 to 5" },
    { "\"batch_rows\":3", "\"batch_rows\":5", EMBTIER_CORRUPT,
      ":2: batch_rows: 5; allowed: 0 to 4" },
    { "\"updated_batch_rows\":1", "\"updated_batch_rows\":4", EMBTIER_CORRUPT,
      ":2: updated_batch_rows: 4; allowed: 0 to 3" },
    { "\"sampling_rate\":1", "\"sampling_rate\":2", EMBTIER_CORRUPT, ":2: sampling_rate: 2;" },
    { "\"sampling_rate\":1", "\"sampling_rate\":0", EMBTIER_CORRUPT,
      ":2: sampling_rate: 0; allowed: 5.42101081e-20 to 1" },
    { "]]}\n", "]]}\n\n", EMBTIER_CORRUPT, ":3: lines follow the last table" },
    { "]]}\n", "]]}", EMBTIER_CORRUPT, ":2: the file was cut short" },
    { "{\"name\"", "[{\"name\"", EMBTIER_CORRUPT, ":2: character " },
    { "{\"name\":\"a\"", "{\"name\":\"\\\"[:\",\"x\":-", EMBTIER_CORRUPT, ":2: x: character " },
};

static const struct bad_value bad_curves[] = {
    { "[1,4]", "[4,1]", EMBTIER_CORRUPT, ":2: cdf_rows: 1 comes after 4" },
    { "[1,4]", "[1,NaN]", EMBTIER_CORRUPT, ":2: cdf_rows: character " },
    { "[1,4]", "[-Infinity,4]", EMBTIER_CORRUPT, ":2: cdf_rows: character " },
    { "[0.5,1]", "[NaN,1]", EMBTIER_CORRUPT, ":2: cdf_shares: character " },
    { "[0.5,1]", "[0.5,Infinity]", EMBTIER_CORRUPT, ":2: cdf_shares: character " },
    { "[2,2,5,3]", "[2,2,5,NaN]", EMBTIER_CORRUPT, ":2: reuse: character " },
    { "[1,4]", "[4,4]", EMBTIER_CORRUPT, ":2: cdf_rows: 4 comes after 4" },
    { "[1,4]", "[0,4]", EMBTIER_CORRUPT, ":2: cdf_rows: 0 comes after 0" },
    { "[1,4]", "[5e-324,4]", EMBTIER_CORRUPT,
      ":2: cdf_rows: 4.94065646e-324; allowed: at least 8.47032947e-22" },
    { "[1,4]", "[1,3.9]", EMBTIER_CORRUPT, ":2: cdf_rows: the last one is 3.9; allowed" },
    { "[1,4],\"cdf_shares\":[0.5,1]", "[],\"cdf_shares\":[]", EMBTIER_CORRUPT,
      ":2: cdf_rows: 0 points for 10 lookups" },
    { "[0.5,1]", "[0.2,1]", EMBTIER_CORRUPT, ":2: cdf_shares: the rows after the 1 hottest" },
    { "[1,4]", "[1,5]", EMBTIER_CORRUPT, ":2: cdf_rows: 5; allowed: 0 to 4" },
    { "[1,4]", "[1]", EMBTIER_CORRUPT, ":2: cdf_shares: not as many as cdf_rows" },
    { "[0.5,1]", "[1,0.5]", EMBTIER_CORRUPT, ":2: cdf_shares: 0.5; allowed: 1 to 1" },
    { "[0.5,1]", "[0.5,0.9]", EMBTIER_CORRUPT, ":2: cdf_shares: the last one is 0.9" },
    { "[0.5,1]", "[0.5,\"1\"]", EMBTIER_CORRUPT, ":2: cdf_shares: not a number" },
    { "[3,1]", "[3]", EMBTIER_CORRUPT, ":2: first, reuse: allowed: one element" },
    { "[3,1]", "[3,2]", EMBTIER_CORRUPT, ":2: first: 5 lookups; allowed: distinct_rows, 4" },
    { "[3,1],\"reuse\":[[1,1],[2,2,5,3]]", "[0,0],\"reuse\":[[],[]]", EMBTIER_CORRUPT,
      ":2: first: 0 lookups; allowed: distinct_rows, 4" },
    { "[2,2,5,3]", "[2,2,5,4]", EMBTIER_CORRUPT, ":2: reuse: with first 11 lookups, more than" },
    { "[[1,1],[2,2,5,3]]", "[[],[]]", EMBTIER_CORRUPT,
      ":2: reuse: with first 4 lookups; allowed: lookups, 10, as sampling_rate is 1" },
    { "\"reuse\":[[1,1],[2,2,5,3]]", "\"optimizer\":\"adam\",\"reuse\":[[1,1],[2,2]]",
      EMBTIER_CORRUPT, ":2: reuse: with first 7 lookups; allowed: lookups, 10, as" },
    { "[[1,1],[2", "[1,[2", EMBTIER_CORRUPT, ":2: reuse: segment 0 is no array" },
    { "[2,2,5,3]", "[2,2,5]", EMBTIER_CORRUPT, ":2: reuse: segment 1 is no array" },
    { "[2,2,5,3]", "[5,2,5,3]", EMBTIER_CORRUPT, ":2: reuse: 5; allowed: 6 to" },
    { "[2,2,5,3]", "[2,2,33,3]", EMBTIER_CORRUPT, ":2: reuse: no bin begins at time 33" },
    { "[2,2,5,3]", "[2,2,104,3]", EMBTIER_CORRUPT, ":2: reuse: 104; allowed: 3 to 100" },
    { "[2,2,5,3]", "[2,2,5,-3]", EMBTIER_CORRUPT, ":2: reuse: -3; allowed: 0 to" },
};

static void assert_explained(const char *path, const struct bad_value *bad)
{
    _cleanup_(freep) char *text = bent(HEADER TABLE, bad->from, bad->to);
    struct err_msg msg;

    assert_int_equal(load_text(path, text, &msg), bad->err);
    if (!strstr(msg.text, bad->text))
        fail_msg("%s: %s", bad->to, msg.text);
}

static void test_explains_bad_values(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    assert_int_equal(load_text(fixture->path, HEADER TABLE, &msg), EMBTIER_OK);
    for (size_t i = 0; i < ARRAY_LEN(bad_figures); i++)
        assert_explained(fixture->path, &bad_figures[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad_curves); i++)
        assert_explained(fixture->path, &bad_curves[i]);
}

static void test_a_counted_batch_has_a_lookup(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(freep) char *header = bent(HEADER TABLE, "\"batches\":2", "\"batches\":11");
    _cleanup_(freep) char *both = bent(header, "\"batches\":2,\"p", "\"batches\":11,\"p");
    struct err_msg msg;

    assert_int_equal(load_text(fixture->path, header, &msg), EMBTIER_OK);
    assert_int_equal(load_text(fixture->path, both, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, ":2: batches: 11; allowed: 1 to 10"));
}

/* Estimates and the samples that a server misses come this far. */
static void test_loads_what_is_only_rare(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        { "\"pooling_factor\":5", "\"pooling_factor\":0" },
        { "\"pooling_factor\":5", "\"pooling_factor\":1e-9" },
        { "\"pooling_factor\":5", "\"pooling_factor\":10" },
        { "\"batch_rows\":3,\"updated_batch_rows\":1",
          "\"batch_rows\":0,\"updated_batch_rows\":0" },
        { "\"sampling_rate\":1", "\"sampling_rate\":5.42101086e-20" },
        { "\"sampling_rate\":1,\"cdf_rows\":[1,4]",
          "\"sampling_rate\":0.5,\"cdf_rows\":[1e-20,4]" },
        { "\"reuse\":[[1,1],[2,2,5,3]]", "\"optimizer\":\"adam\",\"reuse\":[[],[]]" },
        { "1,\"cdf_rows\":[1,4],\"cdf_shares\":[0.5,1],\"first\":[3,1],\"reuse\":[[1,1],[2,2,5,3]]",
          "0.5,\"cdf_rows\":[1,4],\"cdf_shares\":[0.5,1],\"first\":[0,4],\"reuse\":[[],[1,1]]" },
        { "\"first\":[3,1],\"reuse\":[[1,1],[2,2,5,3]]",
          "\"first\":[0,0],\"reuse\":[[1,5],[2,2,5,3]]" },
        { "[2,2,5,3]", "[2,2,100,3]" },
        { "th\":50", "th\":4611686018427387904" },
    };
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_(freep) char *text = bent(HEADER TABLE, cases[i].from, cases[i].to);

        if (load_text(fixture->path, text, &msg) != EMBTIER_OK)
            fail_msg("case %zu: %s", i, msg.text);
    }
}

/* Else a report's hit rates over all tables would not be shares. */
static void test_lookups_of_tables_add_up(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    assert_int_equal(
        load_text(fixture->path, HEADER_OF("2", "20", "10") TABLE_OF("a") TABLE_OF("b"), &msg),
        EMBTIER_OK);
    assert_int_equal(
        load_text(fixture->path, HEADER_OF("2", "19", "10") TABLE_OF("a") TABLE_OF("b"), &msg),
        EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, ":3: lookups: with the tables before, more than line 1's 19"));
    assert_int_equal(
        load_text(fixture->path, HEADER_OF("2", "21", "11") TABLE_OF("a") TABLE_OF("b"), &msg),
        EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, ":3: lookups: of all tables, 1 fewer than line 1's 21"));
}

static void test_refuses_a_name_twice(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct err_msg msg;

    assert_int_equal(load_text(fixture->path,
                               HEADER_OF("3", "30", "15") TABLE_OF("b") TABLE_OF("a") TABLE_OF("b"),
                               &msg),
                     EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, ":4: name: a table before has the name 'b' too"));
}

static void test_refuses_every_cut(void **state)
{
    static const char whole[] = HEADER TABLE;
    const struct trace_fixture *const fixture = *state;
    char text[sizeof(whole)];
    struct err_msg msg;

    for (size_t bytes = 0; bytes + 1 < sizeof(whole); bytes++) {
        memcpy(text, whole, bytes);
        text[bytes] = '\0';
        assert_int_equal(load_text(fixture->path, text, &msg), EMBTIER_CORRUPT);
        assert_non_null(strstr(msg.text, "the file was cut short"));
    }
}

static void test_refuses_an_endless_line(void **state)
{
    const struct trace_fixture *const fixture = *state;
    _cleanup_(freep) char *text = malloc(PROFILE_FILE_LINE_BYTES_MAX + 10);
    struct err_msg msg;

    memset(text, ' ', PROFILE_FILE_LINE_BYTES_MAX + 9);
    text[PROFILE_FILE_LINE_BYTES_MAX + 9] = '\0';
    assert_int_equal(load_text(fixture->path, text, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, ":1: the line is too long"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_fixture_new, trace_fixture_free)
    const struct CMUnitTest tests[] = {
        TEST(test_loads_what_was_saved),
        TEST(test_loads_the_longest_line),
        TEST(test_saves_all_kinds_of_tables),
        TEST(test_saves_a_padded_trace),
        TEST(test_saves_an_emptied_sample),
        TEST(test_replaces_no_file),
        TEST(test_a_killed_save_leaves_its_name_free),
        TEST(test_explains_bad_values),
        TEST(test_a_counted_batch_has_a_lookup),
        TEST(test_loads_what_is_only_rare),
        TEST(test_lookups_of_tables_add_up),
        TEST(test_refuses_a_name_twice),
        TEST(test_refuses_every_cut),
        TEST(test_refuses_an_endless_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
