/* SPDX-License-Identifier: Apache-2.0 */
/* store_fixture.h: a store in temporary directories d0 and d1 of two shards each, for the tests of
 * store/. The bytes of row (table, id) in version v follow from these numbers, so a test can
 * recognise a wrong row. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_STORE_STORE_FIXTURE_H
#define EMBTIER_TESTS_UNIT_STORE_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "store/buckets/bucket_map.h"
#include "store/catalog.h"
#include "store/checkpoint/checkpoint.h"
#include "store/files/summed_json.h"
#include "store/store.h"

#define FIXTURE_WAIT_NS (UINT64_C(120) * 1000 * 1000 * 1000) /* no test takes this long */

#define FIXTURE_WEIGHT_BYTES 128
#define FIXTURE_STATE_BYTES  4
#define FIXTURE_ROW_BYTES    (FIXTURE_WEIGHT_BYTES + FIXTURE_STATE_BYTES)
#define FIXTURE_BATCH_ROWS   500

struct store_fixture {
    char root[200];
    char *directories[2];
    char *made[2]; /* owned copies, since a test may change @directories */
    struct config config;
    struct store *store;
};

/* A batch of rows of one shard. */
struct fixture_batch {
    uint32_t count;
    struct store_row rows[FIXTURE_BATCH_ROWS];
    unsigned char bytes[FIXTURE_BATCH_ROWS][FIXTURE_ROW_BYTES];
};

static inline uint64_t now_ns(void)
{
    return clock_now_ns(&clock_monotonic);
}

static inline void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err != EMBTIER_OK)
        fail_msg("%s: %s", err_name(err), msg->text);
}

static inline void fixture_make_directory(struct store_fixture *f, unsigned index)
{
    assert_int_equal(mkdir(f->made[index], 0700), 0);
}

/* Makes a fixture for directories below @root, which need not exist. */
static inline struct store_fixture *fixture_at(const char *root)
{
    struct store_fixture *f = calloc(1, sizeof(*f));

    if (!f)
        abort();
    snprintf(f->root, sizeof(f->root), "%s", root);
    for (unsigned i = 0; i < ARRAY_LEN(f->directories); i++) {
        assert_true(asprintf(&f->made[i], "%s/d%u", f->root, i) > 0);
        f->directories[i] = f->made[i];
    }
    f->config.data.directories = f->directories;
    f->config.data.directory_count = 2;
    f->config.data.shards_per_directory = 2;
    f->config.rocksdb.memtable_bytes = 8 * MIB;
    f->config.rocksdb.metadata_cache_bytes = 8 * MIB;
    f->config.rocksdb.background_threads = 4;
    f->config.rocksdb.bloom_bits_per_key = 10;
    f->config.rocksdb.compaction_trigger_files = 4;
    f->config.rocksdb.compaction_parallel = 1;
    f->config.rocksdb.direct_io = SWITCH_AUTO;
    return f;
}

/* Makes a fixture with new directories, whose paths contain @name. */
static inline struct store_fixture *fixture_named(const char *name)
{
    const char *tmp = getenv("TMPDIR");
    struct store_fixture *f;
    char root[200];

    snprintf(root, sizeof(root), "%s/%s-XXXXXX", tmp ? tmp : "/tmp", name);
    assert_non_null(mkdtemp(root));
    f = fixture_at(root);
    for (unsigned i = 0; i < ARRAY_LEN(f->directories); i++)
        fixture_make_directory(f, i);
    return f;
}

static inline struct store_fixture *fixture_new(void)
{
    return fixture_named("test-store");
}

static inline int fixture_setup(void **state)
{
    *state = fixture_new();
    return 0;
}

static inline int fixture_unlink_one(const char *path, const struct stat *stat, int type,
                                     struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Removes @name below data directory @index; "" removes all of it. */
static inline void fixture_remove(struct store_fixture *f, unsigned index, const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", f->made[index], name);
    assert_int_equal(nftw(path, fixture_unlink_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Closes the store and keeps its directories. */
static inline void fixture_free(struct store_fixture *f)
{
    store_free(f->store);
    free(f->made[0]);
    free(f->made[1]);
    free(f);
}

static inline void fixture_destroy(struct store_fixture *f)
{
    store_free(TAKE(f->store));
    nftw(f->root, fixture_unlink_one, 16, FTW_DEPTH | FTW_PHYS);
    fixture_free(f);
}

static inline int fixture_teardown(void **state)
{
    fixture_destroy(*state);
    return 0;
}

static inline void fixture_open(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    must(store_open(&(struct store_opts){ .config = &f->config }, &f->store, &msg), &msg);
}

static inline void fixture_close(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    must(store_close(TAKE(f->store), true, &msg), &msg);
}

/* Makes a checkpoint of everything written. Returns its id. */
static inline uint64_t fixture_checkpoint(struct store_fixture *f)
{
    struct checkpoint_draft *draft = NULL;
    struct checkpoint_info info = { 0 };
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };

    must(catalog_open(store_first_directory(f->store), &catalog, &msg), &msg);
    must(checkpoint_begin(store_shelf(f->store), &draft, &msg), &msg);
    must(store_capture(f->store, draft, false, UINT64_MAX, NULL, &msg), &msg);
    must(store_capture(f->store, draft, true, UINT64_MAX, NULL, &msg), &msg);
    must(checkpoint_commit(draft, catalog, NULL, &info, NULL, NULL, NULL, &msg), &msg);
    checkpoint_draft_free(draft);
    catalog_free(catalog);
    return info.id;
}

static inline void fixture_refused(struct store_fixture *f, enum embtier_err err, const char *words)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err got =
        store_open(&(struct store_opts){ .config = &f->config }, &f->store, &msg);

    if (got != err || !strstr(msg.text, words))
        fail_msg("%s: %s; expected %s: … %s …", err_name(got), msg.text, err_name(err), words);
    assert_null(f->store);
}

static inline void fixture_row_bytes(uint32_t table, uint64_t id, uint32_t version,
                                     unsigned char *ret_bytes)
{
    uint64_t x = (id + 1) * UINT64_C(0x9e3779b97f4a7c15) + table * 77 + version * 1000003;

    for (uint32_t i = 0; i < FIXTURE_ROW_BYTES; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ret_bytes[i] = (unsigned char)(x >> 56);
    }
}

/* Tables with these numbers or higher are logged; with the second or higher, the logs are synced
 * too. */
#define FIXTURE_LOGGED UINT32_C(0xf0000000)
#define FIXTURE_SYNCED UINT32_C(0xf8000000)

/* Fills @batch, in order, with the rows of [first, end) that lie in @shard. Returns the id to go on
 * with. */
static inline uint64_t fixture_gather(const struct store_fixture *f, uint32_t shard, uint32_t table,
                                      uint64_t first, uint64_t end, struct fixture_batch *batch)
{
    const struct bucket_map *const map = store_bucket_map(f->store);

    batch->count = 0;
    for (; first < end && batch->count < FIXTURE_BATCH_ROWS; first++) {
        if (map->shards[row_bucket(row_hash(store_hasher(f->store), table, first))] != shard)
            continue;
        batch->rows[batch->count] = (struct store_row){ .table_id = table,
                                                        .logged = table >= FIXTURE_LOGGED,
                                                        .id = first,
                                                        .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                                        .state_bytes = FIXTURE_STATE_BYTES,
                                                        .bytes = batch->bytes[batch->count] };
        batch->count++;
    }
    return first;
}

/* Plays a full disk: any write that would make a file longer than @bytes fails. */
static inline void fixture_limit_files(rlim_t bytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = MIN(bytes, limit.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Calls store_write(), and for a synced table store_sync_logs(). */
static inline enum embtier_err fixture_write_batch(struct store_fixture *f, uint32_t shard,
                                                   uint32_t table, struct fixture_batch *batch,
                                                   struct err_msg *msg)
{
    TRY(store_write(f->store, shard, batch->rows, batch->count, msg));
    return table >= FIXTURE_SYNCED ? store_sync_logs(f->store, &shard, 1, msg) : EMBTIER_OK;
}

/* Writes rows [first, end). Tries again while the store is busy. Any thread may call it, for it
 * asserts nothing: cmocka's assertions jump out of the test, which another thread must not. */
static inline enum embtier_err fixture_try_write_all(struct store_fixture *f, uint32_t table,
                                                     uint64_t first, uint64_t end, uint32_t version,
                                                     struct err_msg *msg)
{
    _cleanup_(freep) struct fixture_batch *batch = malloc(sizeof(*batch));

    if (!batch)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++) {
        for (uint64_t id = first; id < end;) {
            enum embtier_err err;

            id = fixture_gather(f, shard, table, id, end, batch);
            for (uint32_t i = 0; i < batch->count; i++)
                fixture_row_bytes(table, batch->rows[i].id, version, batch->rows[i].bytes);
            while ((err = fixture_write_batch(f, shard, table, batch, msg)) == EMBTIER_BUSY)
                usleep(1000);
            TRY(err);
        }
    }
    return EMBTIER_OK;
}

static inline void fixture_write_all(struct store_fixture *f, uint32_t table, uint64_t first,
                                     uint64_t end, uint32_t version)
{
    struct err_msg msg = { { 0 } };

    must(fixture_try_write_all(f, table, first, end, version, &msg), &msg);
}

static inline void fixture_flush_all(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++)
        must(store_flush(f->store, shard, &msg), &msg);
}

/* Counts the rows of [first, end) that are found, and those of them that hold @version. Any thread
 * may call it. */
static inline enum embtier_err fixture_try_read_all(struct store_fixture *f, uint32_t table,
                                                    uint64_t first, uint64_t end, uint32_t version,
                                                    uint64_t *ret_found, uint64_t *ret_right,
                                                    struct err_msg *msg)
{
    _cleanup_(freep) struct fixture_batch *batch = malloc(sizeof(*batch));

    if (!batch)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *ret_found = *ret_right = 0;
    for (uint32_t shard = 0; shard < store_shard_count(f->store); shard++) {
        for (uint64_t id = first; id < end;) {
            id = fixture_gather(f, shard, table, id, end, batch);
            TRY(store_read(f->store, shard, batch->rows, batch->count, msg));
            for (uint32_t i = 0; i < batch->count; i++) {
                unsigned char expected[FIXTURE_ROW_BYTES];

                fixture_row_bytes(table, batch->rows[i].id, version, expected);
                *ret_found += batch->rows[i].found;
                *ret_right += batch->rows[i].found &&
                              memcmp(expected, batch->bytes[i], sizeof(expected)) == 0;
            }
        }
    }
    return EMBTIER_OK;
}

static inline void fixture_read_all(struct store_fixture *f, uint32_t table, uint64_t first,
                                    uint64_t end, uint32_t version, uint64_t *ret_found,
                                    uint64_t *ret_right)
{
    struct err_msg msg = { { 0 } };

    must(fixture_try_read_all(f, table, first, end, version, ret_found, ret_right, &msg), &msg);
}

static inline uint64_t fixture_count_right(struct store_fixture *f, uint32_t table, uint64_t first,
                                           uint64_t end, uint32_t version)
{
    uint64_t found = 0, right = 0;

    fixture_read_all(f, table, first, end, version, &found, &right);
    return right;
}

static inline uint64_t fixture_count_found(struct store_fixture *f, uint32_t table, uint64_t first,
                                           uint64_t end)
{
    uint64_t found = 0, right = 0;

    fixture_read_all(f, table, first, end, 0, &found, &right);
    return found;
}

static inline off_t fixture_file_bytes(const struct store_fixture *f, unsigned index,
                                       const char *name)
{
    char path[400];
    struct stat info;

    snprintf(path, sizeof(path), "%s/%s", f->made[index], name);
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static inline void fixture_truncate(struct store_fixture *f, unsigned index, const char *name,
                                    off_t bytes)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", f->made[index], name);
    assert_int_equal(truncate(path, bytes), 0);
}

/* Replaces the calling process by this program, with the arguments @part, the fixture's root and
 * @number, which may be NULL. Programs for another processor run under the emulator that meson
 * names. */
static inline _Noreturn void fixture_exec_self(const struct store_fixture *f, const char *part,
                                               const char *number)
{
    const char *const emulator = getenv("MESON_EXE_WRAPPER");
    char self[400] = { 0 };

    if (emulator && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0)
        execl(emulator, emulator, self, part, f->root, number, (char *)NULL);
    else
        execl("/proc/self/exe", program_invocation_short_name, part, f->root, number, (char *)NULL);
    _exit(127);
}

static inline void fixture_replace_text(struct store_fixture *f, unsigned index, const char *name,
                                        const char *from, const char *to)
{
    char path[400], text[4000] = { 0 };
    const char *at;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", f->made[index], name);
    file = fopen(path, "r+");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    at = strstr(text, from);
    assert_non_null(at);
    rewind(file);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(fclose(file), 0);
}

/* Makes place for a new checksum of @json. */
static inline void fixture_unseal(json_t *json)
{
    if (json_object_get(json, SUMMED_JSON_KEY))
        json_object_set_new(json, SUMMED_JSON_KEY, json_string(SUMMED_JSON_NONE));
}

/* The same with a file of JSON, whose checksums are then right again. */
static inline void fixture_forge_text(struct store_fixture *f, unsigned index, const char *name,
                                      const char *from, const char *to)
{
    struct err_msg msg;
    char path[400];
    json_t *root, *record;
    size_t i;

    fixture_replace_text(f, index, name, from, to);
    snprintf(path, sizeof(path), "%s/%s", f->made[index], name);
    root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "tables"), i, record)
    {
        fixture_unseal(record);
        assert_true(summed_json_seal(record));
    }
    fixture_unseal(root);
    must(summed_json_write(f->made[index], name, root, &msg), &msg);
    json_decref(root);
}

/* Puts the output of a shell command about the store in @ret_output, to see what other tools say.
 * Returns its length, or 0 if the command fails. */
static inline size_t fixture_shell(char *ret_output, size_t capacity, const char *format, ...)
    PRINTF_LIKE(3, 4);
static inline size_t fixture_shell(char *ret_output, size_t capacity, const char *format, ...)
{
    char command[1000];
    size_t used;
    va_list args;
    FILE *pipe;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    pipe = popen(command, "r");
    if (!pipe)
        return 0;
    used = fread(ret_output, 1, capacity - 1, pipe);
    ret_output[used] = '\0';
    return pclose(pipe) == 0 ? used : 0;
}

#endif
