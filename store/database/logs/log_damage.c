/* SPDX-License-Identifier: Apache-2.0 */
/* The format is RocksDB's (db/log_format.h): blocks of 32 KiB with records, which do not cross
 * blocks. A record's head: masked CRC-32C of type and bytes, length, type; little-endian. The rest
 * of a block that is too short for a head is zeros. */
#include "store/database/logs/log_damage.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/rocksdb/rocksdb_ext.h"

#define BLOCK_BYTES 32768
#define HEAD_BYTES  7
#define TYPE_AT     6
/* A record has one piece (FULL), or several if it crosses blocks. */
#define TYPE_FULL   1
#define TYPE_FIRST  2
#define TYPE_MIDDLE 3
#define TYPE_LAST   4
/* Records of reused logs; ours are never reused. */
#define TYPE_RECYCLED_FIRST 5
#define TYPE_RECYCLED_LAST  8
#define CRC32C_POLY         UINT32_C(0x82f63b78)
#define MASK_DELTA          UINT32_C(0xa282ead8)

struct reading {
    const char *path;
    int fd;
    uint64_t at;    /* offset of the block */
    size_t bytes;   /* length of the block; less than BLOCK_BYTES at the end */
    bool has_ended; /* with zeros */
    unsigned char block[BLOCK_BYTES];
};

static uint32_t crc32c_add(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (unsigned bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLY : 0);
    return crc;
}

static uint32_t masked(uint32_t crc)
{
    crc = ~crc;
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

/* True if the checksum is right with some length; @bytes: from the record's head on. */
static bool is_whole(const unsigned char *record, size_t bytes)
{
    uint32_t wanted, crc = UINT32_MAX;

    memcpy(&wanted, record, sizeof(wanted));
    wanted = le32toh(wanted);
    for (size_t i = TYPE_AT; i < bytes; i++) {
        crc = crc32c_add(crc, record[i]);
        if (masked(crc) == wanted)
            return true;
    }
    return false;
}

static enum embtier_err damaged(const struct reading *reading, size_t at, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_CORRUPT, "%s: damaged at byte %" PRIu64, reading->path,
                   reading->at + at);
}

static enum embtier_err check_zeros(const struct reading *reading, size_t from, struct err_msg *msg)
{
    for (size_t i = from; i < reading->bytes; i++)
        if (reading->block[i] != 0)
            return damaged(reading, from, msg);
    return EMBTIER_OK;
}

static enum embtier_err check_block(struct reading *reading, struct err_msg *msg)
{
    size_t at = 0;

    while (!reading->has_ended && at + HEAD_BYTES <= reading->bytes) {
        const unsigned char *const record = reading->block + at;
        const size_t length = record[4] | (size_t)record[5] << 8;

        if (record[TYPE_AT] >= TYPE_RECYCLED_FIRST && record[TYPE_AT] <= TYPE_RECYCLED_LAST)
            return damaged(reading, at, msg);
        if (length == 0 && record[TYPE_AT] == 0)
            reading->has_ended = true;
        else if (at + HEAD_BYTES + length <= reading->bytes)
            at += HEAD_BYTES + length;
        else
            return is_whole(record, reading->bytes - at) ? damaged(reading, at, msg) : EMBTIER_OK;
    }
    return reading->has_ended ? check_zeros(reading, at, msg) : EMBTIER_OK;
}

static enum embtier_err read_block(struct reading *reading, struct err_msg *msg)
{
    reading->at += reading->bytes;
    reading->bytes = 0;
    while (reading->bytes < BLOCK_BYTES) {
        const ssize_t got =
            pread(reading->fd, reading->block + reading->bytes, BLOCK_BYTES - reading->bytes,
                  (off_t)(reading->at + reading->bytes));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(msg, errno, "%s", reading->path);
        if (got == 0)
            break;
        reading->bytes += (size_t)got;
    }
    return EMBTIER_OK;
}

static enum embtier_err reading_new(const char *path, struct reading **ret_reading,
                                    struct err_msg *msg)
{
    struct reading *const reading = calloc(1, sizeof(*reading));

    if (!reading)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    reading->path = path;
    reading->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reading->fd < 0) {
        free(reading);
        return err_set_errno(msg, errno, "%s", path);
    }
    *ret_reading = reading;
    return EMBTIER_OK;
}

static void reading_free(struct reading *reading)
{
    if (!reading)
        return;
    close(reading->fd);
    free(reading);
}
DEFINE_CLEANUP(struct reading, reading_free)

enum embtier_err log_damage_find(const char *path, struct err_msg *msg)
{
    _cleanup_(reading_freep) struct reading *reading = NULL;

    TRY(reading_new(path, &reading, msg));
    do {
        TRY(read_block(reading, msg));
        TRY(check_block(reading, msg));
    } while (reading->bytes == BLOCK_BYTES);
    return EMBTIER_OK;
}

/* ---- A log with marks ---- */

/* A disk writes this much as a whole. */
#define SECTOR_BYTES 512
/* This many zeros at the end of a sector, or zeros in all that a record has there, make a hole. The
 * bytes appended since the last sync are missing, and that sync ended within the sector. */
#define HOLE_BYTES 16

struct records {
    struct log_scan scan;
    bool is_within; /* a record of several pieces, which began at scan.end */
    bool has_ended;
};

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool is_right(const unsigned char *record, size_t length)
{
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();
    uint32_t wanted;

    memcpy(&wanted, record, sizeof(wanted));
    rocksdb_ext_sum_add(sum, record + TYPE_AT, HEAD_BYTES - TYPE_AT + length);
    return masked(~rocksdb_ext_sum_end(sum)) == le32toh(wanted);
}

/* True if a part of a damaged record never reached the disk. Such a sector is as at the last sync:
 * zeros throughout, or from some byte on. */
static bool has_hole(const struct reading *reading, size_t from, size_t to)
{
    for (size_t sector = from / SECTOR_BYTES * SECTOR_BYTES; sector < to; sector += SECTOR_BYTES) {
        const size_t end = MIN(sector + SECTOR_BYTES, reading->bytes);
        const size_t bytes = MIN(end - MAX(sector, from), (size_t)HOLE_BYTES);

        if (is_zero(reading->block + end - bytes, bytes))
            return true;
    }
    return false;
}

static void end_at(struct records *records, enum log_end how)
{
    records->scan.how = how;
    records->has_ended = true;
}

/* Either only zeros follow, or a record has zeros for its head. The end of the file tells which. */
static void end_with_zeros(struct reading *reading, struct records *records, size_t at)
{
    end_at(records, has_hole(reading, at, at + HEAD_BYTES) ? LOG_HAS_HOLE : LOG_IS_DAMAGED);
    reading->has_ended = is_zero(reading->block + at, reading->bytes - at);
}

/* True if the piece may come next. */
static bool fits(const struct records *records, unsigned type)
{
    return records->is_within ? type == TYPE_MIDDLE || type == TYPE_LAST
                              : type == TYPE_FULL || type == TYPE_FIRST;
}

/* Checks the piece of a record at @at; false if it is not whole. */
static bool pass_piece(struct reading *reading, struct records *records, size_t at, size_t length)
{
    const unsigned char *const record = reading->block + at;
    const size_t left = reading->bytes - at - HEAD_BYTES;

    if (length == 0 && record[TYPE_AT] == 0)
        end_with_zeros(reading, records, at);
    else if (length > left && reading->bytes < BLOCK_BYTES && !is_whole(record, left + HEAD_BYTES))
        end_at(records, LOG_IS_TORN);
    else if (length > left || !is_right(record, length))
        end_at(records, has_hole(reading, at, at + HEAD_BYTES + MIN(length, left))
                            ? LOG_HAS_HOLE
                            : LOG_IS_DAMAGED);
    else if (!fits(records, record[TYPE_AT]))
        end_at(records, LOG_IS_DAMAGED);
    return !records->has_ended;
}

static void scan_block(struct reading *reading, struct records *records)
{
    size_t at = 0;

    while (at + HEAD_BYTES <= reading->bytes) {
        const unsigned char *const record = reading->block + at;
        const size_t length = record[4] | (size_t)record[5] << 8;

        if (!pass_piece(reading, records, at, length))
            return;
        at += HEAD_BYTES + length;
        records->is_within = record[TYPE_AT] == TYPE_FIRST || record[TYPE_AT] == TYPE_MIDDLE;
        if (!records->is_within)
            records->scan.end = reading->at + at;
    }
    if (reading->bytes < BLOCK_BYTES && (at < reading->bytes || records->is_within))
        end_at(records, LOG_IS_TORN);
}

/* A mark that crosses blocks is interrupted by a record's head, at the beginning of the second
 * block. */
struct marks_search {
    unsigned char bytes[LOG_MARK_BYTES - 1 + BLOCK_BYTES];
    size_t kept;
};

static void search_block(struct marks_search *search, const struct log_marks *marks,
                         const struct reading *reading, struct log_position *synced)
{
    const size_t head = MIN(reading->bytes, (size_t)HEAD_BYTES);
    size_t count = search->kept + reading->bytes - head;

    memcpy(search->bytes + search->kept, reading->block + head, reading->bytes - head);
    log_marks_find(marks, search->bytes, count, synced);
    search->kept = MIN(count, (size_t)LOG_MARK_BYTES - 1);
    memmove(search->bytes, search->bytes + count - search->kept, search->kept);
}

enum embtier_err log_scan(const char *path, const struct log_marks *marks,
                          struct log_scan *ret_scan, struct log_position *synced,
                          struct err_msg *msg)
{
    _cleanup_(reading_freep) struct reading *reading = NULL;
    _cleanup_(freep) struct marks_search *search = calloc(1, sizeof(*search));
    struct records records = { .scan.how = LOG_IS_WHOLE };

    if (!search)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    TRY(reading_new(path, &reading, msg));
    do {
        TRY(read_block(reading, msg));
        if (!records.has_ended)
            scan_block(reading, &records);
        else if (!is_zero(reading->block, reading->bytes))
            reading->has_ended = false;
        search_block(search, marks, reading, synced);
    } while (reading->bytes == BLOCK_BYTES);
    if (reading->has_ended) /* nothing came after the zeros */
        records.scan.how = LOG_IS_TORN;
    records.scan.bytes = reading->at + reading->bytes;
    *ret_scan = records.scan;
    return EMBTIER_OK;
}
