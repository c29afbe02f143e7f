/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the catalog keeps its changes over restarts and crashes, and refuses damaged files. */
#include "store/catalog.h"
#include "store/files/durable_file.h"

#include "tests/unit/store/store_fixture.h"

#include <errno.h>

/* The linker puts this in place of fsync(). */
static bool directories_cannot_be_synced;
int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat stat;

    if (directories_cannot_be_synced && fstat(fd, &stat) == 0 && S_ISDIR(stat.st_mode)) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

static struct table_spec spec_make(const char *name)
{
    struct table_spec spec = { .rows = UINT64_MAX,
                               .dim = 64,
                               .dtype = EMBTIER_DTYPE_BF16,
                               .optimizer = EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD,
                               .init = EMBTIER_INIT_UNIFORM,
                               .init_params = { -0.1, 1.0 / 3.0 },
                               .eps = 1.0 / 3e7,
                               .weight_decay = 0.1,
                               .rounds_to_nearest = true,
                               .durability = EMBTIER_DURABILITY_SYNC,
                               .home = EMBTIER_HOME_ARRAY,
                               .home_tier = "pmem",
                               .allows_nonfinite = true,
                               .seed = UINT64_MAX - 1,
                               .init_version = 1,
                               .uuid = "0123456789abcdef0123456789abcdef",
                               .step = EMBTIER_STEP_MAX };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    return spec;
}

static struct catalog *catalog_must_open(const struct store_fixture *f)
{
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };

    must(catalog_open(f->made[0], &catalog, &msg), &msg);
    return catalog;
}

static uint32_t catalog_must_add(struct catalog *catalog, const char *name,
                                 enum catalog_state state)
{
    const struct table_spec spec = spec_make(name);
    struct err_msg msg = { { 0 } };
    uint32_t id = 0;

    must(catalog_add(catalog, &spec, CATALOG_NOBODY, state, &id, &msg), &msg);
    return id;
}

static void test_tables_come_back_bit_for_bit_after_reopening(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    const struct table_spec spec = spec_make("clicks");
    struct err_msg msg = { { 0 } };
    const uint32_t clicks = catalog_must_add(catalog, "clicks", CATALOG_LIVE);
    const uint32_t users = catalog_must_add(catalog, "users", CATALOG_CREATING);
    const uint32_t old = catalog_must_add(catalog, "old", CATALOG_LIVE);

    must(catalog_set_state(catalog, old, CATALOG_DROPPING, &msg), &msg);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_int_equal(catalog_count(catalog), 3);
    assert_int_equal(catalog_at(catalog, 0)->table_id, clicks);
    assert_memory_equal(&catalog_at(catalog, 0)->spec, &spec, sizeof(spec));
    assert_int_equal(catalog_at(catalog, 1)->table_id, users);
    assert_int_equal(catalog_at(catalog, 1)->state, CATALOG_CREATING);
    assert_int_equal(catalog_at(catalog, 2)->state, CATALOG_DROPPING);
    assert_non_null(catalog_find(catalog, "users"));
    assert_null(catalog_find(catalog, "old"));
    catalog_free(catalog);
}

static void test_owners_come_back_also_from_a_journal_and_from_copies(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    struct catalog *copy;
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < 100; i++) { /* some in the file, some in the journal */
        struct table_spec spec;
        char name[16];
        uint32_t id;

        snprintf(name, sizeof(name), "t%u", i);
        spec = spec_make(name);
        must(catalog_add(catalog, &spec, i == 0 ? CATALOG_NOBODY : UINT32_MAX - 1 - i, CATALOG_LIVE,
                         &id, &msg),
             &msg);
    }
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    copy = catalog_dup(catalog);
    assert_non_null(copy);
    assert_int_equal(catalog_count(catalog), 100);
    for (uint32_t i = 0; i < 100; i++) {
        const uid_t owner = i == 0 ? CATALOG_NOBODY : UINT32_MAX - 1 - i;

        assert_int_equal(catalog_at(catalog, i)->owner, owner);
        assert_int_equal(catalog_at(copy, i)->owner, owner);
    }
    catalog_free(copy);
    catalog_free(catalog);
}

/* The home of table number @i. */
static struct table_spec home_of(uint32_t i)
{
    struct table_spec spec = spec_make("home");

    spec.home = (enum embtier_home)(i % 3);
    memset(spec.home_tier, 0, sizeof(spec.home_tier));
    table_spec_set_tier(&spec, spec.home == EMBTIER_HOME_CACHE ? "" : "other");
    if (spec.home == EMBTIER_HOME_SPLIT) {
        spec.hot_rows = 1000 + i;
        spec.hot_sum = UINT64_MAX - i;
    }
    return spec;
}

static void test_a_new_home_comes_back_also_from_a_journal(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    struct err_msg msg = { { 0 } };
    struct table_spec home;

    for (uint32_t i = 0; i < 100; i++) { /* some in the file, some in the journal */
        char name[16];

        snprintf(name, sizeof(name), "t%u", i);
        home = home_of(i);
        must(catalog_set_home(catalog, catalog_must_add(catalog, name, CATALOG_LIVE), &home, &msg),
             &msg);
    }
    home = home_of(0);
    assert_int_equal(catalog_set_home(catalog, 999, &home, &msg), EMBTIER_NO_TABLE);
    table_spec_set_tier(&home, "other");
    assert_int_equal(catalog_set_home(catalog, catalog_at(catalog, 0)->table_id, &home, &msg),
                     EMBTIER_INVALID);
    home = home_of(2);
    home.hot_rows = 0;
    assert_int_equal(catalog_set_home(catalog, catalog_at(catalog, 0)->table_id, &home, &msg),
                     EMBTIER_INVALID);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_int_equal(catalog_count(catalog), 100);
    for (uint32_t i = 0; i < 100; i++) {
        const struct catalog_table *const table = catalog_at(catalog, i);
        struct table_spec spec = home_of(i);

        memcpy(spec.name, table->spec.name, sizeof(spec.name));
        assert_memory_equal(&table->spec, &spec, sizeof(spec));
        assert_int_equal(table->state, CATALOG_LIVE);
        assert_ptr_equal(catalog_find(catalog, spec.name), table);
    }
    catalog_free(catalog);
}

static void test_table_ids_are_never_used_again(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    struct err_msg msg = { { 0 } };
    const uint32_t first = catalog_must_add(catalog, "a", CATALOG_LIVE);

    must(catalog_remove(catalog, first, &msg), &msg);
    assert_int_equal(catalog_count(catalog), 0);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_true(catalog_must_add(catalog, "a", CATALOG_LIVE) > first);
    catalog_free(catalog);
}

static void test_name_is_free_again_once_its_table_is_dropping(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    const struct table_spec spec = spec_make("a");
    const uint32_t id = catalog_must_add(catalog, "a", CATALOG_CREATING);
    struct err_msg msg = { { 0 } };
    uint32_t other = 0;

    assert_int_equal(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &other, &msg),
                     EMBTIER_EXISTS);
    must(catalog_set_state(catalog, id, CATALOG_LIVE, &msg), &msg);
    assert_int_equal(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &other, &msg),
                     EMBTIER_EXISTS);
    must(catalog_set_state(catalog, id, CATALOG_DROPPING, &msg), &msg);
    assert_int_equal(catalog_set_state(catalog, id, CATALOG_LIVE, &msg), EMBTIER_DROPPED);
    must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &other, &msg), &msg);
    assert_int_equal(catalog_find(catalog, "a")->table_id, other);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_int_equal(catalog_count(catalog), 2);
    assert_int_equal(catalog_set_state(catalog, 999, CATALOG_LIVE, &msg), EMBTIER_NO_TABLE);
    assert_int_equal(catalog_remove(catalog, 999, &msg), EMBTIER_NO_TABLE);
    catalog_free(catalog);
}

static void test_change_that_cannot_be_stored_changes_nothing(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    const struct table_spec spec = spec_make("b");
    struct err_msg msg = { { 0 } };
    char path[400];
    uint32_t id = 12345;

    catalog_must_add(catalog, "a", CATALOG_LIVE);
    /* A directory in place of the temporary file: not even root can write that. */
    snprintf(path, sizeof(path), "%s/catalog.json.tmp", f->made[0]);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_not_equal(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, &msg),
                         EMBTIER_OK);
    assert_non_null(strstr(msg.text, "catalog.json.tmp"));
    assert_int_equal(id, 12345);
    assert_int_equal(catalog_count(catalog), 1);
    assert_int_equal(rmdir(path), 0);
    must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, &msg), &msg);
    catalog_free(catalog);
}

static void test_half_written_new_catalog_is_ignored(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    char path[400];
    FILE *file;

    catalog_must_add(catalog, "a", CATALOG_LIVE);
    catalog_free(catalog);
    snprintf(path, sizeof(path), "%s/catalog.json.tmp", f->made[0]);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"format_ver", file);
    assert_int_equal(fclose(file), 0);
    catalog = catalog_must_open(f);
    assert_int_equal(catalog_count(catalog), 1);
    catalog_must_add(catalog, "b", CATALOG_LIVE);
    catalog_free(catalog);
}

static void catalog_refused(const struct store_fixture *f, enum embtier_err err, const char *words)
{
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };
    const enum embtier_err got = catalog_open(f->made[0], &catalog, &msg);

    if (got != err || !strstr(msg.text, words))
        fail_msg("%s: %s; expected %s: … %s …", err_name(got), msg.text, err_name(err), words);
    assert_null(catalog);
}

#define NO_TABLE "table 1 in the list, 'a', is damaged: it is no table"

/* A file that was written wrongly, so that its checksums are right. */
static void test_a_catalog_that_makes_no_sense_is_refused(void **state)
{
    static const struct {
        const char *from, *to;
        enum embtier_err err;
        const char *words;
    } damages[] = {
        { "\"format_version\": 6", "\"format_version\": 9", EMBTIER_VERSION,
          "format version 9, this program reads 6: a newer embtierd made it" },
        { "\"format_version\": 6", "\"format_version\": 5", EMBTIER_VERSION,
          "format version 5, this program reads 6: an older one made it, and it cannot be" },
        { "\"tables\"", "\"cables\"", EMBTIER_CORRUPT, "catalog.json: not a catalog" },
        { "\"dim\": 64", "\"dim\": 0", EMBTIER_CORRUPT, "dim 0 is out of range" },
        { "\"dim\": 64", "\"dim\": \"64\"", EMBTIER_CORRUPT, NO_TABLE },
        { "bf16", "bf17", EMBTIER_CORRUPT, "dtype -1 is not known" },
        { "\"table_id\": 1", "\"table_id\": 7", EMBTIER_CORRUPT, "table id 7 is out of order" },
        { "\"name\": \"b\"", "\"name\": \"a\"", EMBTIER_CORRUPT, "two tables named a" },
        { "\"live\"", "\"dead\"", EMBTIER_CORRUPT, NO_TABLE },
        { "\"eps\"", "\"epsilon\"", EMBTIER_CORRUPT, NO_TABLE },
        { "\"eps\"", "\"alpha\"", EMBTIER_CORRUPT,
          "optimizer rowwise_adagrad has no alpha; it has eps, weight_decay, clip_norm" },
        { "\"weight_decay\": ", "\"weight_decay\": -", EMBTIER_CORRUPT,
          "weight_decay -0.1 is out of range" },
        { "\"clip_norm\": ", "\"clip_norm\": true, \"alpha\": ", EMBTIER_CORRUPT, NO_TABLE },
        { "\"hyperparameters\"", "\"hyper\"", EMBTIER_CORRUPT, NO_TABLE },
        { "\"rounds_to_nearest\": true", "\"rounds_to_nearest\": 1", EMBTIER_CORRUPT, NO_TABLE },
        { "\"allows_nonfinite\"", "\"allows\"", EMBTIER_CORRUPT, NO_TABLE },
        { "\"durability\"", "\"endurance\"", EMBTIER_CORRUPT, NO_TABLE },
        { "\"sync\"", "\"sink\"", EMBTIER_CORRUPT, "durability -1 is not known" },
        { "\"array\"", "\"attic\"", EMBTIER_CORRUPT, "home -1 is not known" },
        { "\"array\"", "1", EMBTIER_CORRUPT, NO_TABLE },
        { "\"home\"", "\"hole\"", EMBTIER_CORRUPT, ": home cache has no tier" },
        { "\"pmem\"", "7", EMBTIER_CORRUPT, NO_TABLE },
        { "\"pmem\"", "\"p mem\"", EMBTIER_CORRUPT, "a tier's name has 1 to 31" },
        { "\"pmem\"", "\"0123456789abcdef0123456789abcdef\"", EMBTIER_CORRUPT,
          "a tier's name has 1 to 31" },
        { "\"seed\": \"", "\"seed\": \"1", EMBTIER_CORRUPT, NO_TABLE },
    };
    struct store_fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(damages); i++) {
        struct catalog *catalog = catalog_must_open(f);

        catalog_must_add(catalog, "a", CATALOG_LIVE);
        catalog_must_add(catalog, "b", CATALOG_LIVE);
        catalog_free(catalog);
        fixture_forge_text(f, 0, "catalog.json", damages[i].from, damages[i].to);
        catalog_refused(f, damages[i].err, damages[i].words);
        fixture_remove(f, 0, "catalog.json");
    }
}

static void test_damage_is_refused_with_the_file_and_the_record(void **state)
{
    static const struct {
        const char *from, *to, *words;
    } damages[] = {
        { "{", "", "catalog.json:2: damaged near the record of table 1 in" },
        { "\"format_version\": 6", "\"format_version\": 7", "damaged: its checksum is" },
        { "\"next_table_id\": ", "\"next_table_id\": 1", "damaged: its checksum is" },
        { "\"crc32c\"", "\"crc32d\"", "it has no checksum" },
        { "\"crc32c\": \"", "\"crc32c\": \"f", "its checksum is" },
        { "\"tables\"", "\"cables\"", "its checksum is" },
        { "\"dim\": 64", "\"dim\": 65", "table 1 in the list, 'a', is damaged: its checksum" },
        { "\"home\"", "\"hole\"", "table 1 in the list, 'a', is damaged: its checksum" },
        { "\"name\": \"b\"", "\"name\": \"c\"", "table 2 in the list, 'c', is damaged" },
        { "\"name\": \"b\"", "\"nome\": \"b\"", "table 2 in the list, '?', is damaged" },
        { "\"name\": \"b\"", "\"name\" \"b\"", "damaged near the record of table 2 in" },
    };
    struct store_fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(damages); i++) {
        struct catalog *catalog = catalog_must_open(f);

        catalog_must_add(catalog, "a", CATALOG_LIVE);
        catalog_must_add(catalog, "b", CATALOG_LIVE);
        catalog_free(catalog);
        fixture_replace_text(f, 0, "catalog.json", damages[i].from, damages[i].to);
        catalog_refused(f, EMBTIER_CORRUPT, damages[i].words);
        catalog_refused(f, EMBTIER_CORRUPT, ": put the catalog's files back from a copy");
        fixture_remove(f, 0, "catalog.json");
    }
}

/* Returns where the first record of @text, a catalog.json, begins. */
static char *first_record(char *text, size_t *ret_bytes)
{
    char *const start = strchr(strstr(text, "\"tables\""), '{');
    char *const end = strstr(start, "\n    }");

    assert_non_null(end);
    *ret_bytes = (size_t)(end + strlen("\n    }") - start);
    return start;
}

static bool is_json(const char *text, const json_t *wanted)
{
    json_t *const json = json_loads(text, 0, NULL);
    const bool is_same = json && json_equal(json, wanted);

    json_decref(json);
    return is_same;
}

static void write_bytes(const char *path, const char *text, size_t bytes)
{
    FILE *const file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_a_turned_bit_in_a_record_is_found_and_the_record_named(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    struct err_msg msg = { { 0 } };
    size_t record_bytes, bytes;
    char path[400], *text, *record;
    json_t *whole;

    catalog_must_add(catalog, "a", CATALOG_LIVE);
    catalog_must_add(catalog, "b", CATALOG_LIVE);
    catalog_free(catalog);
    must(durable_file_read(f->made[0], CATALOG_FILE, &text, &msg), &msg);
    bytes = strlen(text);
    snprintf(path, sizeof(path), "%s/" CATALOG_FILE, f->made[0]);
    whole = json_loads(text, 0, NULL);
    record = first_record(text, &record_bytes);
    for (size_t bit = 0; bit < 8 * record_bytes; bit++) {
        record[bit / 8] = (char)(record[bit / 8] ^ (1 << bit % 8));
        write_bytes(path, text, bytes);
        catalog_refused(f, EMBTIER_CORRUPT, path);
        /* A zero byte cuts the text short; 1e-10 and 1E-10 are the same. */
        if (record[bit / 8] != '\0' && !is_json(text, whole))
            catalog_refused(f, EMBTIER_CORRUPT, "the record of table 1 in the list");
        record[bit / 8] = (char)(record[bit / 8] ^ (1 << bit % 8));
    }
    json_decref(whole);
    free(text);
}

/* A later version may add a hyperparameter to an optimizer. */
static void test_hyperparameter_that_a_catalog_has_not_has_its_default(void **state)
{
    struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);

    catalog_must_add(catalog, "a", CATALOG_LIVE);
    catalog_free(catalog);
    fixture_forge_text(f, 0, "catalog.json", "\"hyperparameters\": {",
                       "\"hyperparameters\": {}, \"ignored\": {");
    catalog = catalog_must_open(f);
    assert_true(catalog_at(catalog, 0)->spec.eps == 1e-10);
    assert_true(catalog_at(catalog, 0)->spec.rounds_to_nearest);
    catalog_free(catalog);
}

static void test_lost_catalog_of_a_store_is_not_an_empty_one(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    catalog_free(catalog_must_open(f));
    fixture_close(f);
    fixture_remove(f, 0, "catalog.json");
    catalog_refused(f, EMBTIER_CORRUPT, "catalog.json: missing");
}

/* When its directory cannot be synced, the file already has its new name. It gets the old name
 * back, so that the next start sees the same catalog as this one. */
static void test_failed_change_does_not_happen_at_the_next_start(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_must_open(f);
    const struct table_spec spec = spec_make("late");
    struct err_msg msg = { { 0 } };
    uint32_t id;

    directories_cannot_be_synced = true;
    assert_int_equal(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, &msg),
                     EMBTIER_IO);
    directories_cannot_be_synced = false;
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_int_equal(catalog_count(catalog), 0);

    id = catalog_must_add(catalog, "kept", CATALOG_LIVE);
    directories_cannot_be_synced = true;
    assert_int_equal(catalog_set_state(catalog, id, CATALOG_DROPPING, &msg), EMBTIER_IO);
    directories_cannot_be_synced = false;
    assert_int_equal(catalog_find(catalog, "kept")->state, CATALOG_LIVE);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    assert_non_null(catalog_find(catalog, "kept"));
    assert_int_equal(catalog_find(catalog, "kept")->state, CATALOG_LIVE);
    catalog_free(catalog);
}

/* A table that is not whole in a checkpoint is DROPPING there, so that a restore removes the part
 * that the files have. A table still being created may be one that the checkpoint publishes. */
static void test_checkpoint_s_catalog_has_live_only_what_was_live_all_the_time(void **state)
{
    const struct store_fixture *const f = *state;
    struct catalog *const catalog = catalog_must_open(f);
    struct err_msg msg = { { 0 } };
    const enum catalog_state wanted[] = { CATALOG_LIVE,     CATALOG_DROPPING, CATALOG_DROPPING,
                                          CATALOG_CREATING, CATALOG_CREATING, CATALOG_DROPPING,
                                          CATALOG_DROPPING };
    uint32_t ids[ARRAY_LEN(wanted)];
    struct catalog *then;

    ids[0] = catalog_must_add(catalog, "stays", CATALOG_LIVE);
    ids[1] = catalog_must_add(catalog, "is_dropped", CATALOG_LIVE);
    ids[2] = catalog_must_add(catalog, "is_gone", CATALOG_LIVE);
    ids[3] = catalog_must_add(catalog, "is_made", CATALOG_CREATING);
    ids[4] = catalog_must_add(catalog, "becomes_live", CATALOG_CREATING);
    then = catalog_dup(catalog);
    assert_non_null(then);
    must(catalog_set_state(catalog, ids[1], CATALOG_DROPPING, &msg), &msg);
    must(catalog_remove(catalog, ids[2], &msg), &msg);
    must(catalog_set_state(catalog, ids[4], CATALOG_LIVE, &msg), &msg);
    ids[5] = catalog_must_add(catalog, "is_new", CATALOG_LIVE);
    ids[6] = catalog_must_add(catalog, "is_gone", CATALOG_LIVE);

    must(catalog_settle(then, catalog, &msg), &msg);
    assert_int_equal(catalog_count(then), ARRAY_LEN(wanted));
    for (uint32_t i = 0; i < ARRAY_LEN(wanted); i++) {
        assert_int_equal(catalog_at(then, i)->table_id, ids[i]);
        assert_int_equal(catalog_at(then, i)->state, wanted[i]);
    }
    catalog_free(then);
    catalog_free(catalog);
}

#define CATALOG_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* One table of each durability. */
static const char *const kinds[] = { "replayed", "logged", "synced" };

static struct catalog *catalog_of_steps(const struct store_fixture *f)
{
    struct catalog *catalog = catalog_must_open(f);
    struct err_msg msg = { { 0 } };

    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
        struct table_spec spec = spec_make(kinds[i]);
        uint32_t id = 0;

        spec.durability = (enum embtier_durability)i;
        spec.step = 0;
        must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, &msg), &msg);
    }
    return catalog;
}

static void check_steps(const struct catalog *catalog, const uint64_t *wanted)
{
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        assert_int_equal(catalog_find(catalog, kinds[i])->spec.step, wanted[i]);
}

static void set_steps(struct catalog *catalog, uint64_t step)
{
    for (uint32_t i = 0; i < catalog_count(catalog); i++)
        catalog_set_step(catalog, i, step);
}

static void test_steps_are_on_disk_when_the_catalog_was_folded(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_of_steps(f);
    struct err_msg msg = { { 0 } };

    set_steps(catalog, 7);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    check_steps(catalog, (uint64_t[]){ 0, 0, 0 });
    set_steps(catalog, 7);
    must(catalog_fold(catalog, &msg), &msg);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    check_steps(catalog, (uint64_t[]){ 7, 7, 7 });
    catalog_free(catalog);
}

static void test_going_back_changes_the_steps_of_tables_whose_rows_go_back(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = catalog_of_steps(f);
    struct catalog *then;
    struct err_msg msg = { { 0 } };

    set_steps(catalog, 3);
    then = catalog_dup(catalog);
    assert_non_null(then);
    set_steps(catalog, 9);
    (void)catalog_must_add(catalog, "young", CATALOG_LIVE); /* a synced table */
    must(catalog_go_back(catalog, then, &msg), &msg);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    check_steps(catalog, (uint64_t[]){ 3, 9, 9 });
    assert_int_equal(catalog_find(catalog, "young")->spec.step, EMBTIER_STEP_MAX);
    must(catalog_go_back(catalog, NULL, &msg), &msg);
    catalog_free(catalog);
    catalog = catalog_must_open(f);
    check_steps(catalog, (uint64_t[]){ 0, 9, 9 });
    assert_int_equal(catalog_count(catalog), 4);
    catalog_free(catalog);
    catalog_free(then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CATALOG_TEST(test_tables_come_back_bit_for_bit_after_reopening),
        CATALOG_TEST(test_owners_come_back_also_from_a_journal_and_from_copies),
        CATALOG_TEST(test_a_new_home_comes_back_also_from_a_journal),
        CATALOG_TEST(test_table_ids_are_never_used_again),
        CATALOG_TEST(test_name_is_free_again_once_its_table_is_dropping),
        CATALOG_TEST(test_change_that_cannot_be_stored_changes_nothing),
        CATALOG_TEST(test_failed_change_does_not_happen_at_the_next_start),
        CATALOG_TEST(test_half_written_new_catalog_is_ignored),
        CATALOG_TEST(test_a_catalog_that_makes_no_sense_is_refused),
        CATALOG_TEST(test_damage_is_refused_with_the_file_and_the_record),
        CATALOG_TEST(test_a_turned_bit_in_a_record_is_found_and_the_record_named),
        CATALOG_TEST(test_hyperparameter_that_a_catalog_has_not_has_its_default),
        CATALOG_TEST(test_lost_catalog_of_a_store_is_not_an_empty_one),
        CATALOG_TEST(test_checkpoint_s_catalog_has_live_only_what_was_live_all_the_time),
        CATALOG_TEST(test_steps_are_on_disk_when_the_catalog_was_folded),
        CATALOG_TEST(test_going_back_changes_the_steps_of_tables_whose_rows_go_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
