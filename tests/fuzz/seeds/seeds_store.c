/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_checkpoint, fuzz_catalog, fuzz_records and fuzz_log, written by the server's own
 * code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/macros.h"
#include "daemon/endurance/table_histories.h"
#include "daemon/endurance/write_histories.h"
#include "daemon/jobs/plan/plan_record.h"
#include "store/catalog.h"
#include "store/catalog_journal.h"
#include "store/checkpoint/checkpoint_record.h"
#include "store/database/logs/log_marks.h"
#include "store/members/members.h"
#include "store/resharding/reshard_record.h"
#include "store/store_identity.h"
#include "tests/fuzz/seeds/seeds.h"

enum { KIND_CATALOG, KIND_IDENTITY, KIND_PLAN };                         /* of fuzz_catalog */
enum { KIND_MEMBERS, KIND_TABLE_HISTORIES, KIND_HISTORIES, KIND_ORDER }; /* of fuzz_records */
#define RECORDS_MS (UINT64_C(20000) * DAY_MS) /* when fuzz_records reads them */

static void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err == EMBTIER_OK)
        return;
    fprintf(stderr, "%s: %s\n", err_name(err), msg->text);
    abort();
}

static void write_file(const char *target, const char *name, int kind, const char *file)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", seed_folder(), file);
    seed_write_file(target, name, kind, path);
}

static void seeds_of_checkpoints(void)
{
    struct checkpoint_file files[] = {
        { .name = "000012.sst", .bytes = 4096, .sum = 77, .is_table = true },
        { .name = "MANIFEST-000005", .bytes = 100, .sum = 78 },
    };
    struct checkpoint_database databases[] = {
        { .shard = 0, .sequence = 5, .file_count = 2, .files = files },
        { .shard = 1, .logged = true, .sequence = 6 },
    };
    struct checkpoint_record record = {
        .info = { .id = 3, .created_ms = 1, .has_step = true, .step = 9, .table_count = 2 },
        .store_uuid = "00112233445566778899aabbccddeeff",
        .shard_count = 2,
        .database_count = ARRAY_LEN(databases),
        .databases = databases,
    };
    struct err_msg msg = { { 0 } };

    snprintf(record.info.metadata, sizeof(record.info.metadata), "{\"loss\": 0.5}");
    must(checkpoint_record_write(&record, seed_folder(), &msg), &msg);
    write_file("fuzz_checkpoint", "two-databases", -1, CHECKPOINT_RECORD_FILE);
    record.database_count = 0;
    record.info.has_step = false;
    must(checkpoint_record_write(&record, seed_folder(), &msg), &msg);
    write_file("fuzz_checkpoint", "empty", -1, CHECKPOINT_RECORD_FILE);
}

static struct table_spec spec_of(const char *name, enum embtier_optimizer optimizer,
                                 enum embtier_home home)
{
    struct table_spec spec = { .rows = 100,
                               .dim = 4,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = optimizer,
                               .init = EMBTIER_INIT_UNIFORM,
                               .init_params = { -1, 1 },
                               .home = home,
                               .hot_rows = home == EMBTIER_HOME_SPLIT ? 5 : 0,
#define X(name, field, ...) .field = EMBTIER_DEFAULT,
                               EMBTIER_HYPERPARAMETER_TABLE(X)
#undef X
    };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    table_spec_fill_defaults(&spec);
    return spec;
}

static void add_table(struct catalog *catalog, const char *name, enum embtier_optimizer optimizer,
                      enum embtier_home home, enum catalog_state state)
{
    const struct table_spec spec = spec_of(name, optimizer, home);
    struct err_msg msg = { { 0 } };
    uint32_t id;

    must(catalog_add(catalog, &spec, 7, state, &id, &msg), &msg);
}

static void seed_of_catalog(void)
{
    struct err_msg msg = { { 0 } };
    struct catalog *catalog = NULL;

    must(catalog_open(seed_folder(), &catalog, &msg), &msg);
    add_table(catalog, "users", EMBTIER_OPTIMIZER_ADAM, EMBTIER_HOME_CACHE, CATALOG_LIVE);
    add_table(catalog, "items", EMBTIER_OPTIMIZER_SGD, EMBTIER_HOME_ARRAY, CATALOG_CREATING);
    add_table(catalog, "words", EMBTIER_OPTIMIZER_MOMENTUM, EMBTIER_HOME_SPLIT, CATALOG_DROPPING);
    catalog_free(catalog);
    write_file("fuzz_catalog", "catalog", KIND_CATALOG, CATALOG_FILE);
}

/* The journal of a catalog of one table, with one change of each kind. The catalog makes one only
 * when it has many tables, so the lines are made here, and the fuzz target puts the checksums in.
 */
static void seed_of_journal(void)
{
    static const char text[] =
        "{\n  \"crc32c\": \"00000000\",\n  \"format_version\": 6,\n  \"next_table_id\": 3,\n"
        "  \"tables\": [],\n  \"journal\": 1\n}\n0\n"
        "{\"crc32c\": \"00000000\", \"line\": 0, \"journal\": 1}\n"
        "{\"crc32c\": \"00000000\", \"line\": 1, \"change\": {\"add\": %s}}\n"
        "{\"crc32c\": \"00000000\", \"line\": 2, \"change\": {\"change\": %s}}\n"
        "{\"crc32c\": \"00000000\", \"line\": 3, \"change\": {\"state\": \"dropping\", "
        "\"table_ids\": [3]}}\n"
        "{\"crc32c\": \"00000000\", \"line\": 4, \"change\": {\"state\": \"none\", \"table_ids\": "
        "[3]}}\n";
    const struct catalog_table table = { .table_id = 3,
                                         .state = CATALOG_LIVE,
                                         .owner = CATALOG_NOBODY,
                                         .spec = spec_of("users", EMBTIER_OPTIMIZER_ADAM,
                                                         EMBTIER_HOME_CACHE) };
    json_t *const json = catalog_table_to_json(&table);
    char *const record = json ? json_dumps(json, 0) : NULL;
    char *journal = NULL;

    if (!record || asprintf(&journal, text, record, record) < 0)
        abort();
    seed_write_text("fuzz_catalog", "journal", KIND_CATALOG, journal);
    json_decref(json);
    free(record);
    free(journal);
}

static void seed_of_identity(void)
{
    char path[256], *directories[] = { path };
    struct config config = {
        .data = { .directories = directories, .directory_count = 1, .shards_per_directory = 2 }
    };
    struct store_identity *identity = NULL;
    struct err_msg msg = { { 0 } };

    snprintf(path, sizeof(path), "%s", seed_folder());
    must(store_identity_open(&config, &identity, &msg), &msg);
    must(store_identity_commit(identity, &msg), &msg);
    store_identity_free(identity);
    write_file("fuzz_catalog", "identity", KIND_IDENTITY, "embtier.json");
    snprintf(path, sizeof(path), "%s/LOCK", seed_folder());
    (void)unlink(path);
}

static void seed_of_plan_record(void)
{
    const struct plan_state state = { .generation = 4, .hash = 5, .applied_ms = 6, .tables = 7 };
    struct plan_record *record = NULL;
    struct err_msg msg = { { 0 } };

    must(plan_record_open(seed_folder(), &record, &msg), &msg);
    must(plan_record_set(record, &state, &msg), &msg);
    plan_record_free(record);
    write_file("fuzz_catalog", "plan-record", KIND_PLAN, PLAN_RECORD_FILE);
}

/* ---- Records beside the rows ---- */

static void seed_of_members(void)
{
    static char first[] = "/data/rows", second[] = "/data/more", third[] = "/data/third";
    static char name[] = "/srv/link/third";
    const struct members members = { .generation = 7,
                                     .uuid = "00112233445566778899aabbccddeeff",
                                     .given = 3,
                                     .paths = { first, second, third },
                                     .names = { NULL, NULL, name },
                                     .has_left = { false, true, false } };
    struct err_msg msg = { { 0 } };

    must(members_write(seed_folder(), &members, &msg), &msg);
    write_file("fuzz_records", "directories", KIND_MEMBERS, MEMBERS_FILE);
}

static void seeds_of_orders(void)
{
    static const struct reshard_record to_shards = { .shards = 5, .rate_bytes = 1000 };
    static const struct reshard_record removal = {
        .shards = 4, .order = RESHARD_REMOVE, .deletes_checkpoints = true, .directory = "/data/more"
    };
    struct err_msg msg = { { 0 } };

    must(reshard_record_write(seed_folder(), &to_shards, &msg), &msg);
    write_file("fuzz_records", "order-shards", KIND_ORDER, RESHARD_RECORD_FILE);
    must(reshard_record_write(seed_folder(), &removal, &msg), &msg);
    write_file("fuzz_records", "order-removal", KIND_ORDER, RESHARD_RECORD_FILE);
}

static void seed_of_table_histories(void)
{
    static const struct table_bytes tables[] = { { 1, "a table", 5000 }, { 7, "another", 300 } };
    struct table_histories *histories = NULL;
    struct err_msg msg = { { 0 } };

    must(table_histories_new(seed_folder(), RECORDS_MS - 3 * HOUR_MS, &histories), &msg);
    for (uint64_t hours = 2; hours > 0; hours--) {
        table_histories_begin(histories);
        table_histories_add(histories, tables, ARRAY_LEN(tables), RECORDS_MS - hours * HOUR_MS);
        table_histories_end(histories, 6000, true, RECORDS_MS - hours * HOUR_MS);
    }
    must(table_histories_save(histories, &msg), &msg);
    table_histories_free(histories);
    write_file("fuzz_records", "tables", KIND_TABLE_HISTORIES, TABLE_HISTORIES_FILE);
}

static void seed_of_histories(void)
{
    static struct write_histories histories = { .boot = { "a boot" }, .max_dwpd = 0.5 };
    static const struct host_line ids[] = { { "server" }, { "a device" } };
    struct err_msg msg = { { 0 } };

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        bool is_new;
        struct named_history *const item =
            write_histories_get(&histories, &ids[i], RECORDS_MS - 3 * HOUR_MS, &is_new);

        item->counter = i;
        write_history_add(&item->history, RECORDS_MS - HOUR_MS, 5000);
    }
    must(write_histories_save(&histories, seed_folder(), &msg), &msg);
    write_file("fuzz_records", "devices", KIND_HISTORIES, WRITE_HISTORIES_FILE);
}

/* ---- Logs ---- */

#define LOG_HEAD_BYTES 7

/* Adds a record; the fuzz target puts its checksum in. */
static void add_record(struct seed *log, uint8_t type, const void *bytes, uint16_t count)
{
    const uint8_t head[LOG_HEAD_BYTES] = {
        0, 0, 0, 0, (uint8_t)count, (uint8_t)(count >> 8), type
    };

    seed_add(log, head, sizeof(head));
    seed_add(log, bytes, count);
}

static void write_log(bool has_marks, const void *end, size_t end_bytes, const char *name)
{
    const struct log_marks marks = { .shard = 1 };
    const struct log_position position = { .first = 1, .log = 7, .bytes = 20 };
    unsigned char mark[LOG_MARK_BYTES];
    struct seed log = { .bytes = NULL };

    log_mark_make(&marks, &position, mark); /* the fuzz target signs it with its own key */
    seed_add_byte(&log, has_marks);
    add_record(&log, 1, "a row", 5);
    add_record(&log, 1, mark, sizeof(mark));
    add_record(&log, 2, "the first piece", 15);
    add_record(&log, 3, "the second piece", 16);
    add_record(&log, 4, "the last piece", 14);
    seed_add(&log, end, end_bytes);
    seed_write(&log, "fuzz_log", name);
}

static void seeds_of_logs(void)
{
    static const uint8_t torn[] = { 1, 2, 3, 4, 200, 0, 1, 'x', 'y' };
    static const uint8_t zeros[600], wrong[] = { 255, 255, 255, 255, 1, 0, 1, 'x' };

    for (int has_marks = 0; has_marks < 2; has_marks++) {
        char name[40];

        snprintf(name, sizeof(name), "whole-%d", has_marks);
        write_log(has_marks, NULL, 0, name);
        snprintf(name, sizeof(name), "torn-%d", has_marks);
        write_log(has_marks, torn, sizeof(torn), name);
        snprintf(name, sizeof(name), "zeros-%d", has_marks);
        write_log(has_marks, zeros, sizeof(zeros), name);
        snprintf(name, sizeof(name), "wrong-%d", has_marks);
        write_log(has_marks, wrong, sizeof(wrong), name);
    }
}

void seeds_of_store_files(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    seeds_of_checkpoints();
    seed_of_catalog();
    seed_of_journal();
    seed_of_identity();
    seed_of_plan_record();
    seed_of_members();
    seeds_of_orders();
    seed_of_table_histories();
    seed_of_histories();
    seeds_of_logs();
}
