/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that rows lie where the map of buckets says, and that a damaged map, or another store's, is
 * found before anything is written. */
#include <jansson.h>

#include "store/buckets/bucket_map.h"
#include "store/files/summed_json.h"
#include "store/store_identity.h"
#include "tests/seed.h"
#include "tests/unit/store/store_fixture.h"

#define SHARDS  4 /* in the fixture's two directories */
#define ROWS    600
#define TABLE   1
#define FLIPS   100
#define SECOND  2 /* a generation */
#define A_STORE "0123456789abcdef0123456789abcdef"

/* ---- Files ---- */

static char *path_of(const struct store_fixture *f, unsigned index, char ret_path[400])
{
    snprintf(ret_path, 400, "%s/" BUCKET_MAP_FILE, f->made[index]);
    return ret_path;
}

struct text {
    size_t bytes;
    char at[2 * BUCKET_MAP_DIGITS * ROW_BUCKETS];
};

static struct text *file_read(const struct store_fixture *f, unsigned index)
{
    struct text *const text = test_calloc(1, sizeof(*text));
    char path[400];
    FILE *const file = fopen(path_of(f, index, path), "r");

    assert_non_null(file);
    text->bytes = fread(text->at, 1, sizeof(text->at), file);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void file_write(const struct store_fixture *f, unsigned index, const struct text *text)
{
    char path[400];
    FILE *const file = fopen(path_of(f, index, path), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text->at, 1, text->bytes, file), text->bytes);
    assert_int_equal(fclose(file), 0);
}

static void assert_file_is(const struct store_fixture *f, unsigned index, const struct text *text)
{
    struct text *const now = file_read(f, index);

    assert_int_equal(now->bytes, text->bytes);
    assert_memory_equal(now->at, text->at, text->bytes);
    test_free(now);
}

static bool file_is_there(const struct store_fixture *f, unsigned index)
{
    char path[400];

    return access(path_of(f, index, path), F_OK) == 0;
}

/* Makes and closes a store of @directories directories with ROWS rows. */
static void make_store(struct store_fixture *f, uint32_t directories)
{
    f->config.data.directory_count = directories;
    fixture_open(f);
    fixture_write_all(f, TABLE, 0, ROWS, 1);
    fixture_close(f);
}

static void assert_rows(struct store_fixture *f)
{
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
    fixture_close(f);
}

static struct store_identity *identity_of(const struct store_fixture *f)
{
    struct store_identity *identity = NULL;
    struct err_msg msg;

    must(store_identity_look(&f->config, &identity, &msg), &msg);
    return identity;
}

/* Writes @map into one directory of the store. */
static void map_write(const struct store_fixture *f, unsigned index, const struct bucket_map *map)
{
    struct store_identity *const identity = identity_of(f);
    struct err_msg msg;

    must(bucket_map_write(f->made[index], store_identity_uuid(identity), map, &msg), &msg);
    store_identity_free(identity);
}

/* A start and a check must both be refused. */
static void assert_refused(struct store_fixture *f, enum embtier_err err, const char *words)
{
    struct err_msg msg = { { 0 } };

    assert_int_equal(store_check(&f->config, &msg), err);
    if (!strstr(msg.text, words))
        fail_msg("%s; expected: … %s …", msg.text, words);
    fixture_refused(f, err, words);
}

/* ---- What the map says ---- */

static void test_a_balanced_map_gives_each_shard_its_share(void **state)
{
    static const uint32_t shard_counts[] = { 1, 2, 3, 7, 8, 48, 1000, CONFIG_SHARDS_MAX };
    struct bucket_map *const map = test_malloc(sizeof(*map));

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shard_counts); i++) {
        const uint32_t least = ROW_BUCKETS / shard_counts[i];
        uint32_t counts[CONFIG_SHARDS_MAX] = { 0 };

        bucket_map_balance(map, shard_counts[i]);
        assert_int_equal(map->generation, 1);
        assert_int_equal(map->shard_count, shard_counts[i]);
        for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
            assert_true(map->shards[bucket] < shard_counts[i]);
            counts[map->shards[bucket]]++;
        }
        for (uint32_t shard = 0; shard < shard_counts[i]; shard++)
            assert_true(counts[shard] == least || counts[shard] == least + 1);
    }
    test_free(map);
}

/* The bits that choose the cache's tag and set do not choose the bucket. */
static void test_a_bucket_follows_from_the_highest_bits_of_the_hash(void **state)
{
    (void)state;
    assert_int_equal(row_bucket(0), 0);
    assert_int_equal(row_bucket(UINT64_MAX), ROW_BUCKETS - 1);
    assert_int_equal(row_bucket(UINT64_C(1) << 63), ROW_BUCKETS / 2);
    assert_int_equal(row_bucket((UINT64_C(1) << 48) - 1), 0);
}

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void test_any_map_is_read_as_it_was_written(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));
    uint64_t seed = seed_of_test(__func__, seed_random()) | 1;

    for (int round = 0; round < 6; round++) {
        f->config.data.directory_count = 1;
        f->config.data.shards_per_directory = 1 + (uint32_t)(random_next(&seed) % 20);
        fixture_open(f);
        fixture_close(f);
        bucket_map_balance(map, f->config.data.shards_per_directory);
        for (uint32_t bucket = 1024; bucket < ROW_BUCKETS; bucket++)
            map->shards[bucket] = (uint16_t)(random_next(&seed) % map->shard_count);
        map->generation = 1 + random_next(&seed) % INT64_MAX;
        map_write(f, 0, map);
        fixture_open(f);
        assert_int_equal(store_bucket_map(f->store)->generation, map->generation);
        assert_int_equal(store_bucket_map(f->store)->shard_count, map->shard_count);
        assert_memory_equal(store_bucket_map(f->store)->shards, map->shards, sizeof(map->shards));
        fixture_close(f);
        fixture_remove(f, 0, "");
        fixture_make_directory(f, 0);
    }
    test_free(map);
}

static void test_every_directory_of_a_new_store_has_the_same_map(void **state)
{
    struct store_fixture *f = *state;
    struct text *text;

    make_store(f, 2);
    text = file_read(f, 0);
    assert_file_is(f, 1, text);
    test_free(text);
    assert_rows(f);
}

/* Makes a map that no program makes: the buckets are in reverse order. */
static void make_turned(struct bucket_map *ret_map)
{
    bucket_map_balance(ret_map, SHARDS);
    ret_map->generation = SECOND;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        ret_map->shards[bucket] = (uint16_t)(SHARDS - 1 - ret_map->shards[bucket]);
}

static void test_rows_lie_where_the_map_says_and_not_where_a_new_one_would(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));

    make_store(f, 2);
    make_turned(map);
    map_write(f, 0, map);
    map_write(f, 1, map);
    fixture_open(f);
    assert_memory_equal(store_bucket_map(f->store)->shards, map->shards, sizeof(map->shards));
    assert_int_equal(fixture_count_found(f, TABLE, 0, ROWS), 0);
    fixture_write_all(f, TABLE, 0, ROWS, 2);
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 2), ROWS);
    fixture_close(f);
    bucket_map_balance(map, SHARDS);
    map->generation = SECOND + 1;
    map_write(f, 0, map);
    map_write(f, 1, map);
    assert_rows(f); /* the rows of version 1 have not moved */
    test_free(map);
}

/* ---- Damage ---- */

/* Replaces the store's only copy by @damaged, which must be refused and left alone. */
static void assert_damage_refused(struct store_fixture *f, const struct text *damaged)
{
    struct err_msg msg = { { 0 } };
    struct store *store = NULL;
    enum embtier_err err;

    file_write(f, 0, damaged);
    err = store_open(&(struct store_opts){ .config = &f->config }, &store, &msg);
    if (err != EMBTIER_CORRUPT || !strstr(msg.text, "/d0/" BUCKET_MAP_FILE ": ") ||
        !strstr(msg.text, "no data directory has a whole copy") ||
        !strstr(msg.text, "--restore-from"))
        fail_msg("%s: %s", err_name(err), msg.text);
    assert_int_equal(store_check(&f->config, &msg), EMBTIER_CORRUPT);
    assert_file_is(f, 0, damaged);
}

static void test_a_byte_that_changed_anywhere_is_found(void **state)
{
    struct store_fixture *f = *state;
    struct text *const damaged = test_malloc(sizeof(*damaged));
    uint64_t seed = seed_of_test(__func__, seed_random()) | 1;
    struct text *whole;
    size_t head;

    make_store(f, 1);
    whole = file_read(f, 0);
    head = (size_t)(strstr(whole->at, "\"shards\"") - whole->at);
    for (size_t i = 0; i < head + FLIPS; i++) {
        const size_t at = i < head ? i : head + random_next(&seed) % (whole->bytes - head);

        *damaged = *whole;
        damaged->at[at] ^= (char)(1 << random_next(&seed) % 8);
        assert_damage_refused(f, damaged);
    }
    file_write(f, 0, whole);
    assert_rows(f);
    test_free(damaged);
    test_free(whole);
}

static void test_a_file_that_was_cut_short_anywhere_is_found(void **state)
{
    struct store_fixture *f = *state;
    struct text *const damaged = test_malloc(sizeof(*damaged));
    struct text *whole;

    make_store(f, 1);
    whole = file_read(f, 0);
    *damaged = *whole;
    for (size_t bytes = 0; bytes < whole->bytes; bytes += bytes < 300 ? 7 : 2999) {
        damaged->bytes = bytes;
        assert_damage_refused(f, damaged);
    }
    damaged->bytes = whole->bytes - 1;
    assert_damage_refused(f, damaged);
    *damaged = *whole;
    memcpy(damaged->at + damaged->bytes, "\n", 1); /* a file that has grown is damaged too */
    damaged->bytes++;
    assert_damage_refused(f, damaged);
    file_write(f, 0, whole);
    assert_rows(f);
    test_free(damaged);
    test_free(whole);
}

static void test_a_map_that_is_missing_everywhere_is_not_made_again(void **state)
{
    struct store_fixture *f = *state;

    make_store(f, 2);
    fixture_remove(f, 0, BUCKET_MAP_FILE);
    fixture_remove(f, 1, BUCKET_MAP_FILE);
    assert_refused(f, EMBTIER_CORRUPT, "/" BUCKET_MAP_FILE ": missing; rows cannot be found");
    assert_false(file_is_there(f, 0) || file_is_there(f, 1));
}

static void test_a_good_copy_replaces_one_that_is_damaged_or_missing(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));
    struct text *whole, *damaged;

    make_store(f, 2);
    bucket_map_balance(map, SHARDS); /* a map made anew would have another generation */
    map->generation = SECOND;
    map_write(f, 0, map);
    map_write(f, 1, map);
    whole = file_read(f, 0);
    damaged = file_read(f, 0);
    damaged->at[damaged->bytes / 2] ^= 1;
    for (unsigned index = 0; index < 2; index++) {
        struct err_msg msg;

        file_write(f, index, damaged);
        must(store_check(&f->config, &msg), &msg);
        assert_file_is(f, index, damaged); /* a check changes nothing */
        assert_rows(f);
        assert_file_is(f, index, whole);
        fixture_truncate(f, index, BUCKET_MAP_FILE, 0);
        assert_rows(f);
        assert_file_is(f, index, whole);
        fixture_remove(f, index, BUCKET_MAP_FILE);
        assert_rows(f);
        assert_file_is(f, index, whole);
        assert_file_is(f, !index, whole);
    }
    test_free(whole);
    test_free(damaged);
    test_free(map);
}

/* The state after a crash between two copies. */
static void test_the_newest_copy_replaces_older_ones(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));

    make_turned(map);
    for (unsigned index = 0; index < 2; index++) {
        struct text *newest;

        make_store(f, 2);
        map_write(f, index, map);
        newest = file_read(f, index);
        fixture_open(f);
        assert_int_equal(store_bucket_map(f->store)->generation, SECOND);
        assert_memory_equal(store_bucket_map(f->store)->shards, map->shards, sizeof(map->shards));
        fixture_close(f);
        assert_file_is(f, 0, newest);
        assert_file_is(f, 1, newest);
        test_free(newest);
        for (unsigned i = 0; i < 2; i++) {
            fixture_remove(f, i, "");
            fixture_make_directory(f, i);
        }
    }
    test_free(map);
}

static void test_two_maps_of_one_generation_are_refused(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));
    struct text *texts[2];

    make_store(f, 2);
    make_turned(map);
    map->generation = 1;
    map_write(f, 1, map);
    texts[0] = file_read(f, 0);
    texts[1] = file_read(f, 1);
    assert_refused(f, EMBTIER_CORRUPT,
                   "both of generation 1, but bucket 0 is in shard 0 and in shard 3");
    for (unsigned i = 0; i < 2; i++) {
        assert_file_is(f, i, texts[i]);
        test_free(texts[i]);
    }
    test_free(map);
}

static void test_a_map_that_is_being_made_is_made_again(void **state)
{
    struct store_fixture *f = *state;
    struct store_identity *identity = NULL;
    struct bucket_map *map = NULL;
    struct err_msg msg;

    for (int round = 0; round < 2; round++) { /* after a crash between the two copies */
        must(store_identity_open(&f->config, &identity, &msg), &msg);
        must(bucket_map_open(identity, SHARDS, &map, &msg), &msg);
        assert_int_equal(map->generation, 1);
        bucket_map_free(TAKE(map));
        store_identity_free(TAKE(identity));
        fixture_remove(f, 1, BUCKET_MAP_FILE);
    }
    make_store(f, 2);
    assert_rows(f);
    assert_true(file_is_there(f, 1));
}

/* ---- Whole files that are not this store's map ---- */

static void test_a_map_of_another_store_is_refused(void **state)
{
    struct store_fixture *f = *state, *other = fixture_new();
    struct text *foreign;

    make_store(f, 2);
    make_store(other, 2);
    foreign = file_read(other, 1);
    file_write(f, 1, foreign);
    assert_refused(f, EMBTIER_MISMATCH, "/d1/" BUCKET_MAP_FILE ": belongs to store ");
    assert_file_is(f, 1, foreign); /* it may be the last copy of the other store's map */
    test_free(foreign);
    fixture_destroy(other);
}

static void test_a_map_of_another_number_of_shards_is_refused(void **state)
{
    struct store_fixture *f = *state;
    struct bucket_map *const map = test_malloc(sizeof(*map));

    make_store(f, 2);
    bucket_map_balance(map, SHARDS - 1);
    map_write(f, 1, map);
    assert_refused(f, EMBTIER_MISMATCH,
                   "/d1/" BUCKET_MAP_FILE ": made for 3 shards, but embtier.json says 4");
    bucket_map_balance(map, SHARDS);
    map->shards[77] = SHARDS;
    map_write(f, 1, map);
    assert_refused(f, EMBTIER_CORRUPT,
                   "/d1/" BUCKET_MAP_FILE ": bucket 77 is in shard 4, but the store has 4 shards");
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = bucket % 2 * 3;
    map_write(f, 1, map);
    assert_refused(f, EMBTIER_CORRUPT, "/d1/" BUCKET_MAP_FILE ": shard 1 has no bucket");
    test_free(map);
}

/* Changes one member, and the checksum with it. */
static void forge(const struct store_fixture *f, const char *key, json_t *value)
{
    char path[400];
    struct err_msg msg;
    json_t *const root = json_load_file(path_of(f, 0, path), 0, NULL);

    assert_non_null(root);
    assert_int_equal(value ? json_object_set_new(root, key, value) : json_object_del(root, key), 0);
    assert_int_equal(json_object_set_new(root, SUMMED_JSON_KEY, json_string(SUMMED_JSON_NONE)), 0);
    must(summed_json_write(f->made[0], BUCKET_MAP_FILE, root, &msg), &msg);
    json_decref(root);
}

static void test_a_file_that_says_nonsense_is_refused(void **state)
{
    const struct {
        const char *key;
        json_t *value;
        enum embtier_err err;
        const char *words;
    } cases[] = {
        { "format_version", json_integer(3), EMBTIER_VERSION, "format version 3, this program" },
        { "format_version", json_integer(0), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "format_version", NULL, EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "store_uuid", NULL, EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "store_uuid", json_string(A_STORE), EMBTIER_MISMATCH, "belongs to store " A_STORE },
        { "generation", json_integer(0), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "generation", json_string("1"), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "bucket_count", json_integer(8192), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "shard_count", json_integer(0), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "shard_count", json_integer(1025), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "shard_count", json_integer((json_int_t)1 << 32 | 2), EMBTIER_CORRUPT, "not a map" },
        { "shards", NULL, EMBTIER_CORRUPT, "not a map of 16384 buckets" },
        { "shards", json_string("0000"), EMBTIER_CORRUPT, "not a map of 16384 buckets" },
    };
    struct store_fixture *f = *state;
    struct text *whole;
    char *digits;

    make_store(f, 1);
    whole = file_read(f, 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        forge(f, cases[i].key, cases[i].value);
        assert_refused(f, cases[i].err, cases[i].words);
        file_write(f, 0, whole);
    }
    digits = test_malloc(BUCKET_MAP_DIGITS * ROW_BUCKETS + 1);
    memset(digits, '0', BUCKET_MAP_DIGITS * ROW_BUCKETS);
    digits[BUCKET_MAP_DIGITS * ROW_BUCKETS] = '\0';
    digits[4711] = 'g';
    forge(f, "shards", json_string(digits));
    assert_refused(f, EMBTIER_CORRUPT, "not a map of 16384 buckets");
    test_free(digits);
    file_write(f, 0, whole);
    assert_rows(f);
    test_free(whole);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_balanced_map_gives_each_shard_its_share),
        cmocka_unit_test(test_a_bucket_follows_from_the_highest_bits_of_the_hash),
        STORE_TEST(test_any_map_is_read_as_it_was_written),
        STORE_TEST(test_every_directory_of_a_new_store_has_the_same_map),
        STORE_TEST(test_rows_lie_where_the_map_says_and_not_where_a_new_one_would),
        STORE_TEST(test_a_byte_that_changed_anywhere_is_found),
        STORE_TEST(test_a_file_that_was_cut_short_anywhere_is_found),
        STORE_TEST(test_a_map_that_is_missing_everywhere_is_not_made_again),
        STORE_TEST(test_a_good_copy_replaces_one_that_is_damaged_or_missing),
        STORE_TEST(test_the_newest_copy_replaces_older_ones),
        STORE_TEST(test_two_maps_of_one_generation_are_refused),
        STORE_TEST(test_a_map_that_is_being_made_is_made_again),
        STORE_TEST(test_a_map_of_another_store_is_refused),
        STORE_TEST(test_a_map_of_another_number_of_shards_is_refused),
        STORE_TEST(test_a_file_that_says_nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
