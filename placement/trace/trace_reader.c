/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/trace/trace_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "placement/trace/table_names.h"

struct trace_reader {
    char *path;
    int fd;
    uint64_t offset;     /* of the next byte to read */
    uint64_t file_bytes; /* 0: unknown */
    struct trace_table *tables;
    uint32_t table_count;
    bool at_end;
    bool
        has_bag; /* the last block has bags, so that the next one may go on with the last of them */
    uint64_t last_batch;
    uint32_t last_table;
    struct trace_end_block totals; /* as counted */
    _Alignas(8) unsigned char block[TRACE_BLOCK_BYTES_MAX];
};

/* Ends a function with a CORRUPT that names the place. */
#define damaged(reader, at, msg, ...)                                                              \
    (err_write((msg), "%s: byte %" PRIu64 ": ", (reader)->path, (uint64_t)(at)),                   \
     err_append((msg), __VA_ARGS__), EMBTIER_CORRUPT)

/* Reads up to @count bytes; fewer only at the end of the file. */
static enum embtier_err read_some(struct trace_reader *reader, void *ret_bytes, size_t count,
                                  size_t *ret_got, struct err_msg *msg)
{
    size_t got = 0;

    while (got < count) {
        const ssize_t now = read(reader->fd, (unsigned char *)ret_bytes + got, count - got);

        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return err_set_errno(msg, errno, "%s", reader->path);
        if (now == 0)
            break;
        got += (size_t)now;
    }
    reader->offset += got;
    *ret_got = got;
    return EMBTIER_OK;
}

static enum embtier_err read_all(struct trace_reader *reader, void *ret_bytes, size_t count,
                                 const char *what, struct err_msg *msg)
{
    const uint64_t at = reader->offset;
    size_t got = 0;

    TRY(read_some(reader, ret_bytes, count, &got, msg));
    if (got < count)
        return damaged(reader, reader->offset, msg,
                       "the file ends inside %s that begins at byte %" PRIu64 ": it was cut short",
                       what, at);
    return EMBTIER_OK;
}

/* ---- The header ---- */

static enum embtier_err check_header(const struct trace_reader *reader,
                                     const struct trace_file_header *header, struct err_msg *msg)
{
    const size_t record_bytes_max =
        sizeof(struct trace_file_table) + align_up(EMBTIER_TABLE_NAME_MAX, 8);

    if (memcmp(header->magic, TRACE_MAGIC, sizeof(header->magic)) != 0)
        return damaged(reader, 0, msg, "this is no trace: it does not begin with " TRACE_MAGIC);
    if (header->version > TRACE_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "%s: byte 8: version %" PRIu32
                       " of the format is newer than %d, which this embtier reads: update it",
                       reader->path, header->version, TRACE_VERSION);
    if (header->version == 0)
        return damaged(reader, 8, msg, "version 0 of the format does not exist");
    if (header->table_count > TRACE_TABLES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: byte 12: %" PRIu32 " tables; allowed: at most %d", reader->path,
                       header->table_count, TRACE_TABLES_MAX);
    if (header->table_count == 0)
        return damaged(reader, 12, msg, "no tables");
    if (header->reserved != 0)
        return damaged(reader, 20, msg, "0x%" PRIx32 " in a reserved field; allowed: 0",
                       header->reserved);
    if (header->tables_bytes > record_bytes_max * header->table_count)
        return damaged(reader, 16, msg,
                       "the list of tables has %" PRIu32 " bytes, too many for %" PRIu32 " tables",
                       header->tables_bytes, header->table_count);
    return EMBTIER_OK;
}

/* Reads the name of the record at @begin from @padded, which is filled up with zero bytes. */
static enum embtier_err get_name(const struct trace_reader *reader, size_t begin,
                                 const unsigned char *padded, uint8_t name_bytes, char *ret_name,
                                 struct err_msg *msg)
{
    if (name_bytes > EMBTIER_TABLE_NAME_MAX)
        return damaged(reader, begin, msg, "a table's name has %d characters; allowed: at most %d",
                       name_bytes, EMBTIER_TABLE_NAME_MAX);
    memcpy(ret_name, padded, name_bytes);
    ret_name[name_bytes] = '\0';
    if (strlen(ret_name) != name_bytes || !table_name_is_valid(ret_name))
        return damaged(reader, begin, msg, "a table's name is not allowed");
    for (size_t i = name_bytes; i < align_up(name_bytes, 8); i++)
        if (padded[i] != 0)
            return damaged(reader, begin + sizeof(struct trace_file_table) + i, msg,
                           "table '%s': a byte that is not 0 follows the name", ret_name);
    return EMBTIER_OK;
}

/* Reads the record at @at of @bytes. */
static enum embtier_err get_record(const struct trace_reader *reader, const unsigned char *bytes,
                                   size_t count, size_t *at, struct trace_table *ret_table,
                                   struct err_msg *msg)
{
    struct trace_file_table record;
    const size_t begin = *at;

    if (count - begin < sizeof(record))
        return damaged(reader, begin, msg, "the list of tables is too short");
    memcpy(&record, bytes + begin, sizeof(record));
    *at += sizeof(record);
    if (count - *at < align_up(record.name_bytes, 8))
        return damaged(reader, begin, msg, "the list of tables is too short");
    TRY(get_name(reader, begin, bytes + *at, record.name_bytes, ret_table->name, msg));
    if (record.dim == 0 || record.dim > EMBTIER_DIM_MAX)
        return damaged(reader, begin + 8, msg, "table '%s': dim %" PRIu32 "; allowed: 1 to %d",
                       ret_table->name, record.dim, EMBTIER_DIM_MAX);
    if (!dtype_word((enum embtier_dtype)record.dtype))
        return damaged(reader, begin + 12, msg, "table '%s': unknown dtype %d", ret_table->name,
                       record.dtype);
    if (record.reserved != 0)
        return damaged(reader, begin + 14, msg,
                       "table '%s': 0x%" PRIx16 " in a reserved field; allowed: 0", ret_table->name,
                       record.reserved);
    *at += align_up(record.name_bytes, 8);
    ret_table->rows = record.rows;
    ret_table->dim = record.dim;
    ret_table->dtype = (enum embtier_dtype)record.dtype;
    return EMBTIER_OK;
}

static enum embtier_err check_names(const struct trace_reader *reader, struct err_msg *msg)
{
    size_t at = sizeof(struct trace_file_header);
    uint32_t repeated = 0;

    if (table_names_find_repeated(reader->tables, sizeof(*reader->tables), reader->table_count,
                                  &repeated) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", reader->path);
    if (repeated == reader->table_count)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < repeated; i++)
        at += sizeof(struct trace_file_table) + align_up(strlen(reader->tables[i].name), 8);
    return damaged(reader, at, msg, "two tables have the name '%s'", reader->tables[repeated].name);
}

static enum embtier_err get_records(struct trace_reader *reader, const unsigned char *bytes,
                                    size_t count, struct err_msg *msg)
{
    size_t at = sizeof(struct trace_file_header);

    reader->tables = calloc(reader->table_count, sizeof(*reader->tables));
    if (!reader->tables)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", reader->path);
    for (uint32_t i = 0; i < reader->table_count; i++)
        TRY(get_record(reader, bytes, count, &at, &reader->tables[i], msg));
    if (at != count)
        return damaged(reader, at, msg, "bytes follow the last table");
    return check_names(reader, msg);
}

static enum embtier_err read_header(struct trace_reader *reader, struct err_msg *msg)
{
    struct trace_file_header header;
    _cleanup_(freep) unsigned char *bytes = NULL;
    uint64_t checksum;
    size_t count;

    TRY(read_all(reader, &header, sizeof(header), "the header", msg));
    TRY(check_header(reader, &header, msg));
    count = sizeof(header) + header.tables_bytes;
    bytes = malloc(count);
    if (!bytes)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", reader->path);
    memcpy(bytes, &header, sizeof(header));
    TRY(read_all(reader, bytes + sizeof(header), header.tables_bytes, "the list of tables", msg));
    TRY(read_all(reader, &checksum, sizeof(checksum), "the header's checksum", msg));
    if (checksum != XXH3_64bits(bytes, count))
        return damaged(reader, count, msg, "the header's checksum differs");
    reader->table_count = header.table_count;
    return get_records(reader, bytes, count, msg);
}

enum embtier_err trace_reader_open(const char *path, struct trace_reader **ret_reader,
                                   struct err_msg *msg)
{
    _cleanup_(trace_reader_freep) struct trace_reader *reader = calloc(1, sizeof(*reader));
    struct stat stat;

    if (!reader)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    reader->path = strdup(path);
    if (!reader->path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    if (reader->fd < 0 || fstat(reader->fd, &stat) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (S_ISREG(stat.st_mode)) {
        reader->file_bytes = (uint64_t)stat.st_size;
        (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    TRY(read_header(reader, msg));
    *ret_reader = TAKE(reader);
    return EMBTIER_OK;
}

void trace_reader_free(struct trace_reader *reader)
{
    if (!reader)
        return;
    closep(&reader->fd);
    free(reader->tables);
    free(reader->path);
    free(reader);
}

const struct trace_table *trace_reader_tables(const struct trace_reader *reader,
                                              uint32_t *ret_count)
{
    *ret_count = reader->table_count;
    return reader->tables;
}

/* ---- Blocks ---- */

/* Checks all that decides how many bytes the block has. */
static enum embtier_err check_counts(const struct trace_reader *reader, uint64_t at,
                                     const struct trace_block_header *header, struct err_msg *msg)
{
    if (header->magic != TRACE_BLOCK_MAGIC)
        return damaged(reader, at, msg, "no block begins here");
    if (header->kind != TRACE_BLOCK_LOOKUPS && header->kind != TRACE_BLOCK_END)
        return damaged(reader, at + 4, msg, "unknown kind of block, %" PRIu32, header->kind);
    if (header->kind == TRACE_BLOCK_END)
        return EMBTIER_OK;
    if (header->bag_count > TRACE_BLOCK_BAGS_MAX)
        return damaged(reader, at + 24, msg, "%" PRIu32 " bags; allowed: at most %u",
                       header->bag_count, TRACE_BLOCK_BAGS_MAX);
    if (header->id_count > TRACE_BLOCK_IDS_MAX)
        return damaged(reader, at + 28, msg, "%" PRIu32 " ids; allowed: at most %u",
                       header->id_count, TRACE_BLOCK_IDS_MAX);
    return EMBTIER_OK;
}

static enum embtier_err check_place(const struct trace_reader *reader, uint64_t at,
                                    const struct trace_block_header *header, struct err_msg *msg)
{
    const bool continues = (header->flags & TRACE_FLAG_CONTINUES) != 0;

    if (header->table >= reader->table_count)
        return damaged(reader, at + 16, msg, "table %" PRIu32 "; the trace has %" PRIu32,
                       header->table, reader->table_count);
    if (header->batch < reader->last_batch)
        return damaged(reader, at + 8, msg, "batch %" PRIu64 " comes after batch %" PRIu64,
                       header->batch, reader->last_batch);
    if ((header->flags & ~(uint32_t)(TRACE_FLAG_UPDATE | TRACE_FLAG_CONTINUES)) != 0)
        return damaged(reader, at + 20, msg, "unknown flags 0x%" PRIx32, header->flags);
    if (continues && (header->bag_count == 0 || !reader->has_bag ||
                      header->table != reader->last_table || header->batch != reader->last_batch))
        return damaged(reader, at + 20, msg, "there is no bag before that could go on here");
    return EMBTIER_OK;
}

static enum embtier_err check_payload(const struct trace_reader *reader, uint64_t at,
                                      const struct trace_lookups *lookups, struct err_msg *msg)
{
    const struct trace_table *const table = &reader->tables[lookups->table];
    const uint64_t bags_at = at + sizeof(struct trace_block_header);
    const uint64_t ids_at = bags_at + trace_bag_ends_bytes(lookups->bag_count);
    uint32_t last = 0;

    for (uint32_t i = 0; i < lookups->bag_count; i++) {
        if (lookups->bag_ends[i] < last || lookups->bag_ends[i] > lookups->id_count)
            return damaged(reader, bags_at + UINT64_C(4) * i, msg,
                           "a bag ends at %" PRIu32 "; allowed: %" PRIu32 " to %" PRIu32,
                           lookups->bag_ends[i], last, lookups->id_count);
        last = lookups->bag_ends[i];
    }
    if (last != lookups->id_count)
        return damaged(reader, at + 28, msg, "%" PRIu32 " ids are in no bag",
                       lookups->id_count - last);
    if (lookups->bag_count % 2 != 0 && lookups->bag_ends[lookups->bag_count] != 0)
        return damaged(reader, bags_at + UINT64_C(4) * lookups->bag_count, msg,
                       "bytes that are not 0 follow the bag ends");
    for (uint32_t i = 0; table->rows > 0 && i < lookups->id_count; i++)
        if (lookups->ids[i] >= table->rows)
            return damaged(reader, ids_at + UINT64_C(8) * i, msg,
                           "id %" PRIu64 "; table '%s' has %" PRIu64 " rows", lookups->ids[i],
                           table->name, table->rows);
    return EMBTIER_OK;
}

static enum embtier_err check_end(struct trace_reader *reader, uint64_t at, struct err_msg *msg)
{
    struct trace_end_block end;
    unsigned char more;
    size_t got = 0;

    memcpy(&end, reader->block, sizeof(end));
    if (end.block_count != reader->totals.block_count ||
        end.bag_count != reader->totals.bag_count || end.id_count != reader->totals.id_count)
        return damaged(reader, at, msg,
                       "the end block counts %" PRIu64 " blocks, %" PRIu64 " bags and %" PRIu64
                       " ids; before it came %" PRIu64 ", %" PRIu64 " and %" PRIu64,
                       end.block_count, end.bag_count, end.id_count, reader->totals.block_count,
                       reader->totals.bag_count, reader->totals.id_count);
    TRY(read_some(reader, &more, 1, &got, msg));
    if (got > 0)
        return damaged(reader, reader->offset - 1, msg, "bytes follow the end block");
    reader->at_end = true;
    return EMBTIER_OK;
}

/* Reads a block into @reader->block, and checks its sum. */
static enum embtier_err read_block(struct trace_reader *reader, uint64_t at,
                                   struct trace_block_header *ret_header, struct err_msg *msg)
{
    struct trace_block_header *const header = ret_header;
    uint64_t checksum;
    size_t summed = sizeof(*header);
    size_t got = 0;

    TRY(read_some(reader, reader->block, sizeof(*header), &got, msg));
    if (got == 0)
        return damaged(reader, at, msg, "the end block is missing: the file was cut short");
    if (got < sizeof(*header))
        return damaged(
            reader, reader->offset, msg,
            "the file ends inside a block that begins at byte %" PRIu64 ": it was cut short", at);
    memcpy(header, reader->block, sizeof(*header));
    TRY(check_counts(reader, at, header, msg));
    if (header->kind == TRACE_BLOCK_LOOKUPS)
        summed = trace_block_bytes(header->bag_count, header->id_count) - TRACE_CHECKSUM_BYTES;
    TRY(read_all(reader, reader->block + sizeof(*header), summed - sizeof(*header),
                 "a block's lookups", msg));
    TRY(read_all(reader, &checksum, sizeof(checksum), "a block's checksum", msg));
    if (checksum != XXH3_64bits(reader->block, summed))
        return damaged(reader, at, msg, "the checksum of the block that begins here differs");
    return EMBTIER_OK;
}

enum embtier_err trace_reader_next(struct trace_reader *reader, struct trace_lookups *ret_lookups,
                                   bool *ret_end, struct err_msg *msg)
{
    const uint64_t at = reader->offset;
    struct trace_block_header header;
    struct trace_lookups lookups;

    *ret_end = reader->at_end;
    if (reader->at_end)
        return EMBTIER_OK;
    TRY(read_block(reader, at, &header, msg));
    if (header.kind == TRACE_BLOCK_END) {
        TRY(check_end(reader, at, msg));
        *ret_end = true;
        return EMBTIER_OK;
    }
    TRY(check_place(reader, at, &header, msg));
    lookups = (struct trace_lookups){
        .batch = header.batch,
        .table = header.table,
        .is_update = (header.flags & TRACE_FLAG_UPDATE) != 0,
        .continues = (header.flags & TRACE_FLAG_CONTINUES) != 0,
        .bag_count = header.bag_count,
        .id_count = header.id_count,
        .bag_ends = (const uint32_t *)(reader->block + sizeof(header)),
        .ids = (const uint64_t *)(reader->block + sizeof(header) +
                                  trace_bag_ends_bytes(header.bag_count)),
    };
    TRY(check_payload(reader, at, &lookups, msg));
    reader->has_bag = header.bag_count > 0;
    reader->last_batch = header.batch;
    reader->last_table = header.table;
    reader->totals.block_count++;
    reader->totals.bag_count += header.bag_count - (lookups.continues ? 1 : 0);
    reader->totals.id_count += header.id_count;
    *ret_lookups = lookups;
    return EMBTIER_OK;
}

uint64_t trace_reader_offset(const struct trace_reader *reader)
{
    return reader->offset;
}

uint64_t trace_reader_file_bytes(const struct trace_reader *reader)
{
    return reader->file_bytes;
}
