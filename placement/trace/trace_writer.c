/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/trace/trace_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/system/new_file.h"
#include "placement/trace/table_names.h"

struct trace_writer {
    char *path;
    struct new_file *file; /* NULL: finished */
    bool failed;
    uint64_t *rows; /* of each table */
    uint32_t table_count;
    uint64_t last_batch;
    uint64_t block_batch; /* of the last block, as the next one */
    uint32_t block_table;
    struct trace_end_block totals;
    _Alignas(8) unsigned char block[TRACE_BLOCK_BYTES_MAX];
};

static enum embtier_err write_all(struct trace_writer *writer, const void *bytes, size_t count,
                                  struct err_msg *msg)
{
    const unsigned char *at = bytes;

    while (count > 0) {
        const ssize_t written = write(fileno(new_file_stream(writer->file)), at, count);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            writer->failed = true;
            return err_set_errno(msg, errno, "%s", writer->path);
        }
        at += written;
        count -= (size_t)written;
    }
    return EMBTIER_OK;
}

/* ---- The header ---- */

static enum embtier_err check_tables(const struct trace_table *tables, uint32_t table_count,
                                     struct err_msg *msg)
{
    if (table_count == 0 || table_count > TRACE_TABLES_MAX)
        return err_set(msg, EMBTIER_INVALID, "%" PRIu32 " tables; allowed: 1 to %d", table_count,
                       TRACE_TABLES_MAX);
    for (uint32_t i = 0; i < table_count; i++) {
        if (!table_name_is_valid(tables[i].name))
            return err_set(msg, EMBTIER_INVALID,
                           "table %" PRIu32 ": allowed names: 1 to %d of A-Z a-z 0-9 _ . -", i,
                           EMBTIER_TABLE_NAME_MAX);
        if (tables[i].dim == 0 || tables[i].dim > EMBTIER_DIM_MAX)
            return err_set(msg, EMBTIER_INVALID, "table '%s': dim %" PRIu32 "; allowed: 1 to %d",
                           tables[i].name, tables[i].dim, EMBTIER_DIM_MAX);
        if (!dtype_word(tables[i].dtype))
            return err_set(msg, EMBTIER_INVALID, "table '%s': unknown dtype %d", tables[i].name,
                           (int)tables[i].dtype);
    }
    return EMBTIER_OK;
}

static enum embtier_err check_names(const struct trace_table *tables, uint32_t table_count,
                                    struct err_msg *msg)
{
    uint32_t repeated = 0;

    if (table_names_find_repeated(tables, sizeof(*tables), table_count, &repeated) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for %" PRIu32 " tables", table_count);
    if (repeated < table_count)
        return err_set(msg, EMBTIER_INVALID, "two tables have the name '%s'",
                       tables[repeated].name);
    return EMBTIER_OK;
}

static size_t record_bytes(const struct trace_table *table)
{
    return sizeof(struct trace_file_table) + (size_t)align_up(strlen(table->name), 8);
}

static void put_record(const struct trace_table *table, unsigned char *ret_at)
{
    const struct trace_file_table record = { .rows = table->rows,
                                             .dim = table->dim,
                                             .dtype = (uint8_t)table->dtype,
                                             .name_bytes = (uint8_t)strlen(table->name) };

    memcpy(ret_at, &record, sizeof(record));
    memcpy(ret_at + sizeof(record), table->name, record.name_bytes);
}

static enum embtier_err write_header(struct trace_writer *writer, const struct trace_table *tables,
                                     struct err_msg *msg)
{
    struct trace_file_header header = { .version = TRACE_VERSION,
                                        .table_count = writer->table_count };
    _cleanup_(freep) unsigned char *bytes = NULL;
    size_t at = sizeof(header);
    uint64_t checksum;

    memcpy(header.magic, TRACE_MAGIC, sizeof(header.magic));
    for (uint32_t i = 0; i < writer->table_count; i++)
        header.tables_bytes += (uint32_t)record_bytes(&tables[i]);
    bytes = calloc(1, sizeof(header) + header.tables_bytes);
    if (!bytes)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", writer->path);
    memcpy(bytes, &header, sizeof(header));
    for (uint32_t i = 0; i < writer->table_count; i++) {
        put_record(&tables[i], bytes + at);
        at += record_bytes(&tables[i]);
    }
    checksum = XXH3_64bits(bytes, at);
    TRY(write_all(writer, bytes, at, msg));
    return write_all(writer, &checksum, sizeof(checksum), msg);
}

enum embtier_err trace_writer_new(const char *path, const struct trace_table *tables,
                                  uint32_t table_count, struct trace_writer **ret_writer,
                                  struct err_msg *msg)
{
    _cleanup_(trace_writer_freep) struct trace_writer *writer = NULL;

    TRY(check_tables(tables, table_count, msg));
    TRY(check_names(tables, table_count, msg));
    writer = calloc(1, sizeof(*writer));
    if (!writer)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    writer->table_count = table_count;
    writer->path = strdup(path);
    writer->rows = calloc(table_count, sizeof(*writer->rows));
    if (!writer->path || !writer->rows)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    for (uint32_t i = 0; i < table_count; i++)
        writer->rows[i] = tables[i].rows;
    TRY(new_file_open(path, &writer->file, msg));
    TRY(write_header(writer, tables, msg));
    *ret_writer = TAKE(writer);
    return EMBTIER_OK;
}

void trace_writer_free(struct trace_writer *writer)
{
    if (!writer)
        return;
    new_file_free(writer->file);
    free(writer->path);
    free(writer->rows);
    free(writer);
}

/* ---- Lookups ---- */

static enum embtier_err check_bags(const struct trace_lookups *lookups, struct err_msg *msg)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < lookups->bag_count; i++) {
        if (lookups->bag_ends[i] < last || lookups->bag_ends[i] > lookups->id_count)
            return err_set(msg, EMBTIER_BAG_RANGE,
                           "bag %" PRIu32 " ends at %" PRIu32 "; allowed: %" PRIu32 " to %" PRIu32,
                           i, lookups->bag_ends[i], last, lookups->id_count);
        last = lookups->bag_ends[i];
    }
    if (last != lookups->id_count)
        return err_set(msg, EMBTIER_BAG_RANGE,
                       "the last bag ends at %" PRIu32 ", and there are %" PRIu32 " ids", last,
                       lookups->id_count);
    return EMBTIER_OK;
}

static enum embtier_err check_lookups(const struct trace_writer *writer,
                                      const struct trace_lookups *lookups, struct err_msg *msg)
{
    uint64_t rows;

    if (writer->failed || !writer->file)
        return err_set(msg, EMBTIER_INVALID, "%s: writing has ended", writer->path);
    if (lookups->table >= writer->table_count)
        return err_set(msg, EMBTIER_INVALID, "table %" PRIu32 "; the trace has %" PRIu32,
                       lookups->table, writer->table_count);
    if (lookups->batch < writer->last_batch)
        return err_set(msg, EMBTIER_INVALID, "batch %" PRIu64 " comes after batch %" PRIu64,
                       lookups->batch, writer->last_batch);
    if (lookups->continues &&
        (writer->totals.block_count == 0 || lookups->bag_count == 0 ||
         lookups->table != writer->block_table || lookups->batch != writer->block_batch))
        return err_set(msg, EMBTIER_INVALID, "there is no bag before that could go on here");
    TRY(check_bags(lookups, msg));
    rows = writer->rows[lookups->table];
    for (uint32_t i = 0; rows > 0 && i < lookups->id_count; i++)
        if (lookups->ids[i] >= rows)
            return err_set(msg, EMBTIER_ID_RANGE, "id %" PRIu64 "; the table has %" PRIu64 " rows",
                           lookups->ids[i], rows);
    return EMBTIER_OK;
}

/* Lookups that have been written so far, and the part that the next block takes. */
struct split {
    uint32_t bag;
    uint32_t id;
    uint32_t bag_count;
    uint32_t id_count;
    bool continues; /* the last block ended inside @bag */
};

/* The part takes as many bags as fit. It cuts the last one if that one alone does not fit in what
 * is left of the ids. */
static void split_next(struct split *split, const struct trace_lookups *lookups)
{
    const uint32_t left = lookups->id_count - split->id;

    split->id_count = MIN(left, TRACE_BLOCK_IDS_MAX);
    split->bag_count = 0;
    while (split->bag_count < TRACE_BLOCK_BAGS_MAX &&
           split->bag + split->bag_count < lookups->bag_count) {
        const uint32_t end = lookups->bag_ends[split->bag + split->bag_count] - split->id;

        split->bag_count++;
        if (end > split->id_count)
            return; /* cut: it goes on in the next block */
    }
    split->id_count = split->bag_count == 0
                          ? 0
                          : MIN(split->id_count,
                                lookups->bag_ends[split->bag + split->bag_count - 1] - split->id);
}

static enum embtier_err write_block(struct trace_writer *writer,
                                    const struct trace_lookups *lookups, const struct split *split,
                                    struct err_msg *msg)
{
    const struct trace_block_header header = {
        .magic = TRACE_BLOCK_MAGIC,
        .kind = TRACE_BLOCK_LOOKUPS,
        .batch = lookups->batch,
        .table = lookups->table,
        .flags = (lookups->is_update ? TRACE_FLAG_UPDATE : 0u) |
                 (split->continues ? TRACE_FLAG_CONTINUES : 0u),
        .bag_count = split->bag_count,
        .id_count = split->id_count,
    };
    const size_t bytes = trace_block_bytes(split->bag_count, split->id_count);
    const size_t summed = bytes - TRACE_CHECKSUM_BYTES;
    uint32_t *const bag_ends = (uint32_t *)(writer->block + sizeof(header));
    unsigned char *const ids =
        writer->block + sizeof(header) + trace_bag_ends_bytes(split->bag_count);
    uint64_t checksum;

    memcpy(writer->block, &header, sizeof(header));
    if (split->bag_count % 2 != 0)
        bag_ends[split->bag_count] = 0; /* padding */
    for (uint32_t i = 0; i < split->bag_count; i++)
        bag_ends[i] = MIN(lookups->bag_ends[split->bag + i] - split->id, split->id_count);
    if (split->id_count > 0)
        memcpy(ids, lookups->ids + split->id, sizeof(uint64_t) * split->id_count);
    checksum = XXH3_64bits(writer->block, summed);
    memcpy(writer->block + summed, &checksum, sizeof(checksum));
    TRY(write_all(writer, writer->block, bytes, msg));
    writer->block_batch = lookups->batch;
    writer->block_table = lookups->table;
    writer->totals.block_count++;
    writer->totals.bag_count += split->bag_count - (split->continues ? 1 : 0);
    writer->totals.id_count += split->id_count;
    return EMBTIER_OK;
}

enum embtier_err trace_writer_add(struct trace_writer *writer, const struct trace_lookups *lookups,
                                  struct err_msg *msg)
{
    struct split split = { .continues = lookups->continues };

    TRY(check_lookups(writer, lookups, msg));
    writer->last_batch = lookups->batch;
    while (split.bag < lookups->bag_count) {
        bool cut;

        split_next(&split, lookups);
        TRY(write_block(writer, lookups, &split, msg));
        split.id += split.id_count;
        split.bag += split.bag_count;
        cut = lookups->bag_ends[split.bag - 1] > split.id;
        split.bag -= cut ? 1 : 0;
        split.continues = cut;
    }
    return EMBTIER_OK;
}

enum embtier_err trace_writer_finish(struct trace_writer *writer, struct err_msg *msg)
{
    uint64_t checksum;

    if (writer->failed || !writer->file)
        return err_set(msg, EMBTIER_INVALID, "%s: writing has ended", writer->path);
    writer->totals.magic = TRACE_BLOCK_MAGIC;
    writer->totals.kind = TRACE_BLOCK_END;
    checksum = XXH3_64bits(&writer->totals, sizeof(writer->totals));
    TRY(write_all(writer, &writer->totals, sizeof(writer->totals), msg));
    TRY(write_all(writer, &checksum, sizeof(checksum), msg));
    writer->failed = true; /* unless it ends well */
    TRY(new_file_finish(writer->file, msg));
    new_file_free(TAKE(writer->file));
    return EMBTIER_OK;
}
