/* SPDX-License-Identifier: Apache-2.0 */
/* Write-ahead logs whose ends are mended after a crash (store/database/logs/log_ends.h). Bytes may
 * be cut off, but none may change, and a log that was mended is whole. */
#include "tests/fuzz/lib/sums.h"

#include "base/log/log.h"
#include "base/row_hash.h"
#include "store/database/logs/log_damage.h"
#include "store/database/logs/log_ends.h"

#define DATABASE   "database"
#define NOTE       "database.marks"
#define LOG        "database/000007.log"
#define LOG_NUMBER 7
#define HEAD_BYTES 7
#define TYPE_AT    6
#define MASK_DELTA UINT32_C(0xa282ead8)

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

/* Puts right checksums into the records. One whose checksum is all ones keeps it. */
static void repair(uint8_t *bytes, size_t count)
{
    size_t at = 0;

    while (count - at >= HEAD_BYTES) {
        const size_t length = bytes[at + 4] | (size_t)bytes[at + 5] << 8;
        struct rocksdb_ext_sum *sum;
        uint32_t crc;

        if (length > count - at - HEAD_BYTES)
            return;
        sum = rocksdb_ext_sum_new();
        rocksdb_ext_sum_add(sum, bytes + at + TYPE_AT, HEAD_BYTES - TYPE_AT + length);
        crc = masked(rocksdb_ext_sum_end(sum));
        if (memcmp(bytes + at, "\xff\xff\xff\xff", sizeof(crc)) != 0 && bytes[at + TYPE_AT] != 0)
            memcpy(bytes + at, &crc, sizeof(crc));
        at += HEAD_BYTES + length;
    }
}

static struct log_marks marks_of_tests(void)
{
    static const unsigned char key[ROW_HASH_KEY_BYTES] = { 1, 2, 3 };
    struct log_marks marks = { .shard = 1 };

    row_hasher_init(&marks.hasher, key);
    return marks;
}

/* Puts a right mark wherever one begins. */
static void repair_marks(const struct log_marks *marks, uint8_t *bytes, size_t count)
{
    uint8_t *at = bytes;

    while ((at = memmem(at, count - (size_t)(at - bytes), "embtier\x01", 8)) &&
           count - (size_t)(at - bytes) >= LOG_MARK_BYTES) {
        struct log_position position;

        memcpy(&position, at + 8, sizeof(position));
        log_mark_make(marks, &position, at);
        at += LOG_MARK_BYTES;
    }
}

static size_t file_bytes(const char *path)
{
    struct stat stat_of_log;

    FUZZ_CHECK(stat(path, &stat_of_log) == 0);
    return (size_t)stat_of_log.st_size;
}

/* Logs from before the furthest mark's first one are not needed, and stay as they are. */
static void check_whole(const char *path, const struct log_marks *marks)
{
    struct log_position synced = { 0 };
    struct err_msg msg = { { 0 } };
    struct log_scan scan;

    FUZZ_CHECK(log_scan(path, marks, &scan, &synced, &msg) == EMBTIER_OK);
    FUZZ_CHECK(LOG_NUMBER < synced.first || (scan.how == LOG_IS_WHOLE && scan.end == scan.bytes));
}

static void mend(const struct log_marks *marks, bool has_marks, size_t bytes)
{
    struct err_msg msg = { { 0 } };
    char database[256], path[256];

    snprintf(database, sizeof(database), "%s/" DATABASE, fuzz_folder());
    snprintf(path, sizeof(path), "%s/" LOG, fuzz_folder());
    if (log_ends_mend(database, marks, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && file_bytes(path) == bytes);
        return;
    }
    FUZZ_CHECK(file_bytes(path) <= bytes);
    if (has_marks)
        check_whole(path, marks);
}

static void make_database(bool has_marks)
{
    struct err_msg msg = { { 0 } };
    char path[256];

    snprintf(path, sizeof(path), "%s/" DATABASE, fuzz_folder());
    (void)mkdir(path, 0700);
    FUZZ_CHECK(log_note_write(path, has_marks ? 1 : UINT64_MAX, &msg) == EMBTIER_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    const bool has_marks = fuzz_byte(&input) & 1;
    _cleanup_(freep) uint8_t *copy = fuzz_copy(input.at, input.left);
    const struct log_marks marks = marks_of_tests();

    log_set_level(LOG_LEVEL_ERROR);
    repair_marks(&marks, copy, input.left);
    repair(copy, input.left);
    make_database(has_marks);
    fuzz_put_file(LOG, copy, input.left);
    mend(&marks, has_marks, input.left);
    return 0;
}
