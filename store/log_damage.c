/* SPDX-License-Identifier: Apache-2.0 */
/* The format is RocksDB's (db/log_format.h): blocks of 32 KiB of records, which do not cross their
 * borders. A record's head: masked CRC-32C of type and bytes, length, type; little-endian. What is
 * left at the end of a block and too short for a head is zeros. */
#include "store/log_damage.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 32768
#define HEAD_BYTES  7
#define TYPE_AT     6
/* Of records of logs that are used again, which ours never are. */
#define TYPE_RECYCLED_FIRST 5
#define TYPE_RECYCLED_LAST  8
#define CRC32C_POLY         UINT32_C(0x82f63b78)
#define MASK_DELTA          UINT32_C(0xa282ead8)

struct reading {
    const char *path;
    int fd;
    uint64_t at;    /* of the block */
    size_t bytes;   /* of the block that there are */
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

/* Whether there is a length with which it is right; @bytes from its head on. */
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

enum embtier_err log_damage_find(const char *path, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_(freep) struct reading *reading = calloc(1, sizeof(*reading));

    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    if (!reading)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    reading->path = path;
    reading->fd = fd;
    do {
        TRY(read_block(reading, msg));
        TRY(check_block(reading, msg));
    } while (reading->bytes == BLOCK_BYTES);
    return EMBTIER_OK;
}
