/* SPDX-License-Identifier: Apache-2.0 */
/* An import checks every file before it asks the server for a table, and again when the file's turn
 * comes. Files of others get a manifest of one part, so that all are read in one way. Another
 * program may replace a file at any time. So everything from one path is read through one opened
 * file, and is of one time. Rows go from the files into the server's buffer; the table exists once
 * the last row is in (load.h). */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/paths.h"
#include "base/text/text_escape.h"
#include "client/files/export_manifest.h"
#include "client/files/tensor_file.h"
#include "client/files/tensor_index.h"
#include "client/files/tensor_place.h"
#include "client/lib/connection.h"
#include "client/lib/load.h"
#include "client/lib/table.h"

#define AS_EXPORTED (-1) /* a durability: the caller gave none */

/* A tensor of an open file. */
struct column {
    char *path; /* NULL: there is no such tensor */
    struct tensor_reader *reader;
    bool is_shared; /* the reader is another column's, or the import's */
    uint32_t tensor;
    uint32_t row_bytes;
    enum tensor_dtype dtype;
    XXH3_state_t *sum;
};

/* An import in progress. */
struct importing {
    struct embtier *server;
    struct embtier_import_options options;
    embtier_progress_fn *progress;
    void *progress_context;
    const char *path;
    char *indexed; /* the file's path, if an index named it; or NULL */
    bool is_export;
    struct tensor_reader *file;            /* of others, open from first to last; or NULL */
    struct export_manifest manifest;       /* its spec is that of the new table */
    char weight[TENSOR_NAME_MAX + 1];      /* the tensor's name, in a file of others */
    struct column columns[EXPORT_COLUMNS]; /* of the current part */
    struct embtier_load *load;
    uint64_t rows_done;
    uint64_t bytes_done;
};

static struct err_msg *msg_of(const struct importing *in)
{
    return &in->server->message;
}

static enum embtier_err no_memory(const struct importing *in)
{
    return err_set(msg_of(in), EMBTIER_NO_MEMORY, "out of memory");
}

/* ---- One part ---- */

static void close_part(struct importing *in)
{
    for (int c = 0; c < EXPORT_COLUMNS; c++) {
        if (!in->columns[c].is_shared)
            tensor_reader_free(in->columns[c].reader);
        XXH3_freeState(in->columns[c].sum);
        free(in->columns[c].path);
        in->columns[c] = (struct column){ 0 };
    }
}

/* True for a .npy file. */
static bool is_array(const struct tensor_reader *reader)
{
    return tensor_reader_count(reader) == 1 && tensor_reader_at(reader, 0)->name[0] == '\0';
}

/* Finds a tensor by its name. A .npy file has only one, which is unnamed. */
static enum embtier_err find_tensor(const struct importing *in, struct column *column,
                                    const char *name)
{
    const uint32_t count = tensor_reader_count(column->reader);

    if (is_array(column->reader))
        return EMBTIER_OK; /* it is number 0 */
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(tensor_reader_at(column->reader, i)->name, name) == 0) {
            column->tensor = i;
            return EMBTIER_OK;
        }
    return err_set(msg_of(in), EMBTIER_NOT_FOUND, "%s: has no tensor '%s'", column->path, name);
}

static bool is_weight_dtype(const struct importing *in, enum tensor_dtype dtype)
{
    switch (in->manifest.spec.dtype) {
    case EMBTIER_DTYPE_F16:
        return dtype == TENSOR_F16;
    case EMBTIER_DTYPE_BF16: /* .npy has no word for it; an export's table tells the dtype */
        return dtype == TENSOR_BF16 || (in->is_export && in->manifest.format == TENSOR_NPY &&
                                        dtype == tensor_dtype_from_numpy("<u2"));
    default:
        return dtype == TENSOR_F32;
    }
}

/* Room for "[1000, 64]". */
struct shape_text {
    char text[TENSOR_RANK_MAX * 24];
};

static const char *shape_text(struct shape_text *buffer, const struct tensor_info *info)
{
    size_t at = 0;

    for (uint32_t i = 0; i < info->rank && i < TENSOR_RANK_MAX; i++)
        at += (size_t)snprintf(buffer->text + at, sizeof(buffer->text) - at, "%s%llu",
                               i > 0 ? ", " : "[", (unsigned long long)info->shape[i]);
    snprintf(buffer->text + at, sizeof(buffer->text) - at, "%s", info->rank > 0 ? "]" : "[]");
    return buffer->text;
}

static enum embtier_err check_shape(const struct importing *in, enum export_column column,
                                    const struct tensor_info *info, uint64_t rows)
{
    const struct table_spec *const spec = &in->manifest.spec;
    const char *const path = in->columns[column].path;
    uint64_t numbers = 0;
    bool dtype_fits;

    if (column == EXPORT_WEIGHT) {
        numbers = spec->dim;
        dtype_fits = is_weight_dtype(in, info->dtype);
    } else if (column == EXPORT_STATE) {
        numbers = table_spec_state_bytes(spec) / sizeof(float);
        dtype_fits = info->dtype == TENSOR_F32;
    } else {
        dtype_fits = info->dtype == TENSOR_I64 || info->dtype == TENSOR_U64;
    }
    if (!dtype_fits)
        return err_set(msg_of(in), EMBTIER_MISMATCH, "%s: %s is of dtype %s, which does not fit %s",
                       path, export_column_name(column), tensor_dtype_word(info->dtype),
                       column == EXPORT_WEIGHT  ? dtype_word(spec->dtype)
                       : column == EXPORT_STATE ? "state, which is F32"
                                                : "ids, which are I64 or U64");
    if (info->rank == (numbers > 0 ? 2 : 1) && info->rows == rows &&
        (numbers == 0 || info->shape[1] == numbers))
        return EMBTIER_OK;
    return err_set(msg_of(in), EMBTIER_MISMATCH,
                   "%s: %s has the shape %s, which should be [%llu%s%.0llu]%s", path,
                   export_column_name(column), shape_text(&(struct shape_text){ { 0 } }, info),
                   (unsigned long long)rows, numbers > 0 ? ", " : "", (unsigned long long)numbers,
                   column == EXPORT_STATE ? ", the numbers that the optimizer keeps" : "");
}

/* Returns the reader of @path, or NULL if the file is not open. */
static struct tensor_reader *find_open(const struct importing *in, const char *path)
{
    if (in->file && strcmp(path, in->path) == 0)
        return in->file;
    for (int c = 0; c < EXPORT_COLUMNS; c++)
        if (in->columns[c].reader && strcmp(path, in->columns[c].path) == 0)
            return in->columns[c].reader;
    return NULL;
}

static enum embtier_err open_column(struct importing *in, const struct export_part *part,
                                    enum export_column c)
{
    const char *const name =
        c == EXPORT_WEIGHT && !in->is_export ? in->weight : export_column_name(c);
    struct column *const column = &in->columns[c];
    const struct tensor_info *info;

    column->path = in->is_export ? path_join(in->path, part->files[c]) : strdup(part->files[c]);
    column->sum = XXH3_createState();
    if (!column->path || !column->sum)
        return no_memory(in);
    XXH3_64bits_reset(column->sum);
    column->reader = find_open(in, column->path);
    column->is_shared = column->reader != NULL;
    if (!column->reader)
        TRY(tensor_reader_open(column->path, &column->reader, msg_of(in)));
    TRY(find_tensor(in, column, name));
    info = tensor_reader_at(column->reader, column->tensor);
    TRY(check_shape(in, c, info, part->rows));
    column->row_bytes = (uint32_t)info->row_bytes;
    column->dtype = info->dtype;
    return EMBTIER_OK;
}

/* Opens and checks all files of a part. */
static enum embtier_err open_part(struct importing *in, const struct export_part *part)
{
    for (int c = 0; c < EXPORT_COLUMNS; c++)
        if (export_manifest_has(&in->manifest, (enum export_column)c))
            TRY(open_column(in, part, (enum export_column)c));
    return EMBTIER_OK;
}

/* ---- Rows ---- */

static void add_to_sum(const struct column *column, const uint8_t *first, size_t stride,
                       uint32_t rows)
{
    if (stride == column->row_bytes) {
        XXH3_64bits_update(column->sum, first, (size_t)rows * stride);
        return;
    }
    for (uint32_t i = 0; i < rows; i++)
        XXH3_64bits_update(column->sum, first + i * stride, column->row_bytes);
}

static enum embtier_err read_column(struct importing *in, enum export_column c, uint64_t first_row,
                                    uint32_t rows, uint8_t *dest, size_t stride)
{
    struct column *const column = &in->columns[c];

    TRY(tensor_reader_read(column->reader, column->tensor, first_row, rows, dest, stride,
                           msg_of(in)));
    if (in->is_export)
        add_to_sum(column, dest, stride, rows);
    in->bytes_done += (uint64_t)rows * column->row_bytes;
    return EMBTIER_OK;
}

/* Refuses negative ids. As unsigned numbers they would be large ids, which an unbounded table
 * accepts. */
static enum embtier_err read_ids(struct importing *in, uint64_t first_row, uint32_t rows,
                                 uint64_t *ids)
{
    const struct column *const column = &in->columns[EXPORT_IDS];

    TRY(read_column(in, EXPORT_IDS, first_row, rows, (uint8_t *)ids, sizeof(*ids)));
    for (uint32_t i = 0; column->dtype == TENSOR_I64 && i < rows; i++)
        if (ids[i] > INT64_MAX)
            return err_set(msg_of(in), EMBTIER_ID_RANGE, "%s: id %lld of row %llu is negative",
                           column->path, (long long)ids[i], (unsigned long long)(first_row + i));
    return EMBTIER_OK;
}

static enum embtier_err read_rows(struct importing *in, const struct export_part *part,
                                  uint64_t first_row, uint32_t rows)
{
    const struct embtier_load_buffer buffer = embtier_load_buffer(in->load);
    uint8_t *const bytes = buffer.rows;

    TRY(read_column(in, EXPORT_WEIGHT, first_row, rows, bytes, buffer.row_bytes));
    if (export_manifest_has(&in->manifest, EXPORT_STATE))
        TRY(read_column(in, EXPORT_STATE, first_row, rows,
                        bytes + table_spec_weight_bytes(&in->manifest.spec), buffer.row_bytes));
    if (export_manifest_has(&in->manifest, EXPORT_IDS))
        return read_ids(in, first_row, rows, buffer.ids);
    for (uint32_t i = 0; i < rows; i++)
        buffer.ids[i] = part->first_id + first_row + i;
    return EMBTIER_OK;
}

/* CORRUPT if the data of an export are not those that were written. */
static enum embtier_err check_sums(const struct importing *in, const struct export_part *part)
{
    for (int c = 0; in->is_export && c < EXPORT_COLUMNS; c++)
        if (in->columns[c].reader && XXH3_64bits_digest(in->columns[c].sum) != part->sums[c])
            return err_set(msg_of(in), EMBTIER_CORRUPT,
                           "%s: %s is not what was exported: its checksum differs",
                           in->columns[c].path, export_column_name((enum export_column)c));
    return EMBTIER_OK;
}

static void tell_rows(const struct importing *in)
{
    if (in->progress)
        in->progress(in->progress_context, in->rows_done, in->manifest.rows, "rows");
}

static enum embtier_err load_part(struct importing *in, const struct export_part *part)
{
    const uint32_t capacity = embtier_load_buffer(in->load).capacity;

    TRY(open_part(in, part));
    for (uint64_t done = 0; done < part->rows;) {
        const uint32_t rows = (uint32_t)MIN(part->rows - done, (uint64_t)capacity);

        TRY(read_rows(in, part, done, rows));
        TRY(embtier_load_rows(in->load, rows));
        done += rows;
        in->rows_done += rows;
        tell_rows(in);
    }
    return check_sums(in, part);
}

/* ---- Kinds of files ---- */

static enum embtier_err from_export(struct importing *in)
{
    const struct embtier_import_options *const options = &in->options;

    TRY(export_manifest_read(in->path, &in->manifest, msg_of(in)));
    if (options->table || options->tensor || options->ids_path ||
        options->rows != EMBTIER_ROWS_OF_FILE)
        return err_set(msg_of(in), EMBTIER_INVALID,
                       "%s is an export, which describes its own table: give no table options, "
                       "tensor, ids or number of rows",
                       in->path);
    in->is_export = true;
    if (options->without_state)
        in->manifest.with_state = false;
    if (options->durability != AS_EXPORTED)
        in->manifest.spec.durability = (enum embtier_durability)options->durability;
    in->manifest.spec.home = options->home;
    table_spec_set_tier(&in->manifest.spec, options->home_tier);
    return table_spec_check(&in->manifest.spec, msg_of(in));
}

static const struct tensor_info *find_named(const struct tensor_reader *reader, const char *name)
{
    for (uint32_t i = 0; i < tensor_reader_count(reader); i++)
        if (strcmp(tensor_reader_at(reader, i)->name, name) == 0)
            return tensor_reader_at(reader, i);
    return NULL;
}

/* Finds `weight`, or the only two-dimensional tensor; or the array of a .npy file. */
static enum embtier_err find_weights(const struct importing *in, const struct tensor_reader *reader,
                                     const struct tensor_info **ret_info)
{
    const char *const name = in->options.tensor ? in->options.tensor : "weight";
    const struct tensor_info *info = find_named(reader, name), *only = NULL;
    uint32_t count = 0;

    if (is_array(reader) && in->options.tensor)
        return err_set(msg_of(in), EMBTIER_NOT_FOUND,
                       "%s: has no tensor '%s': a .npy file holds one unnamed array", in->path,
                       name);
    if (is_array(reader))
        info = tensor_reader_at(reader, 0);
    for (uint32_t i = 0; !info && !in->options.tensor && i < tensor_reader_count(reader); i++)
        if (tensor_reader_at(reader, i)->rank == 2) {
            only = tensor_reader_at(reader, i);
            count++;
        }
    if (count == 1)
        info = only;
    if (!info)
        return err_set(
            msg_of(in), EMBTIER_NOT_FOUND,
            count > 1
                ? "%s: has no tensor '%s', but %u other two-dimensional tensors: name one of them"
                : "%s: has no tensor '%s'",
            in->path, name, count);
    *ret_info = info;
    return EMBTIER_OK;
}

static enum embtier_err read_shape(const struct importing *in, const struct tensor_info *info,
                                   struct table_spec *spec)
{
    const char *const name = info->name[0] ? info->name : "it";

    if (info->rank != 2 || info->shape[1] == 0 || info->shape[1] > EMBTIER_DIM_MAX)
        return err_set(msg_of(in), EMBTIER_MISMATCH,
                       "%s: %s has the shape %s; a table's is [rows, dim], dim 1 to %d", in->path,
                       name, shape_text(&(struct shape_text){ { 0 } }, info), EMBTIER_DIM_MAX);
    spec->dim = (uint32_t)info->shape[1];
    switch (info->dtype) {
    case TENSOR_F32:
        spec->dtype = EMBTIER_DTYPE_F32;
        return EMBTIER_OK;
    case TENSOR_F16:
        spec->dtype = EMBTIER_DTYPE_F16;
        return EMBTIER_OK;
    case TENSOR_BF16:
        spec->dtype = EMBTIER_DTYPE_BF16;
        return EMBTIER_OK;
    default:
        return err_set(msg_of(in), EMBTIER_MISMATCH,
                       "%s: %s is of dtype %s; a table's is F32, F16 or BF16 (in NumPy: save "
                       "array.astype('float32'))",
                       in->path, name, tensor_dtype_word(info->dtype));
    }
}

static enum embtier_err find_row_count(const struct importing *in,
                                       const struct tensor_info *weights, bool has_ids,
                                       uint64_t *ret_rows)
{
    const uint64_t rows = in->options.rows;

    if (rows != EMBTIER_ROWS_OF_FILE) {
        if (!has_ids && rows != EMBTIER_UNBOUNDED && rows < weights->rows)
            return err_set(msg_of(in), EMBTIER_ID_RANGE,
                           "%s: has %llu rows, which do not fit into a table of %llu", in->path,
                           (unsigned long long)weights->rows, (unsigned long long)rows);
        *ret_rows = rows;
        return EMBTIER_OK;
    }
    if (!has_ids && weights->rows == 0)
        return err_set(msg_of(in), EMBTIER_MISMATCH,
                       "%s: has no rows, so the number of the table's rows must be given",
                       in->path);
    *ret_rows = has_ids ? EMBTIER_UNBOUNDED : weights->rows;
    return EMBTIER_OK;
}

/* Makes the table's spec from the caller's options and the file. */
static enum embtier_err make_spec(struct importing *in, const struct tensor_info *weights,
                                  bool has_ids, struct table_spec *ret_spec)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;
    struct table_spec spec = { 0 };

    TRY(read_shape(in, weights, &spec));
    if (in->options.table)
        TRY(table_options_read(in->server, in->options.table, &options));
    options.name = "import"; /* for the check; the real name comes later */
    options.dim = spec.dim;
    options.dtype = spec.dtype;
    TRY(find_row_count(in, weights, has_ids, &options.rows));
    if (in->options.durability != AS_EXPORTED)
        options.durability = (enum embtier_durability)in->options.durability;
    if (in->options.home != EMBTIER_HOME_CACHE || in->options.home_tier) {
        options.home = in->options.home;
        options.home_tier = in->options.home_tier;
    }
    return table_options_to_spec(in->server, &options, ret_spec);
}

/* Refuses a .npy file of an export: only the table.json beside it describes it. If a newer version
 * wrote that table.json, it cannot be read, and the import is refused too. */
static enum embtier_err check_array_alone(const struct importing *in)
{
    _cleanup_(freep) char *copy = strdup(in->path), *folder_copy = strdup(in->path);
    _cleanup_(export_manifest_clear) struct export_manifest manifest = { 0 };
    const char *name, *folder;
    struct err_msg msg;
    enum embtier_err err;

    if (!copy || !folder_copy)
        return no_memory(in);
    name = basename(copy);
    folder = dirname(folder_copy);
    err = export_manifest_read(folder, &manifest, &msg);
    if (err == EMBTIER_VERSION || err == EMBTIER_NO_MEMORY)
        return err_set(msg_of(in), err, "%s", msg.text);
    for (uint32_t i = 0; i < manifest.part_count; i++)
        for (int c = 0; c < EXPORT_COLUMNS; c++)
            if (manifest.parts[i].files[c] && strcmp(manifest.parts[i].files[c], name) == 0)
                return err_set(msg_of(in), EMBTIER_INVALID,
                               "%s is one file of an export of table '%s': import its folder, %s, "
                               "or give the ids of its rows",
                               in->path, manifest.spec.name, folder);
    return EMBTIER_OK; /* any other table.json is no reason to refuse */
}

/* Checks a file that may be part of an export. By itself it is a table only if its rows have their
 * own ids, and if the caller means that. */
static enum embtier_err check_alone(const struct importing *in, const struct tensor_reader *reader,
                                    bool has_ids)
{
    const char *const table = tensor_reader_metadata(reader, "embtier.table");
    const char *const first_id = tensor_reader_metadata(reader, "embtier.first_id");
    struct text_shown shown;

    if (is_array(reader))
        return has_ids ? EMBTIER_OK : check_array_alone(in);
    if (table && !in->options.tensor)
        return err_set(msg_of(in), EMBTIER_INVALID,
                       "%s is one file of an export of table '%s': import its folder, or name the "
                       "tensor to import it as a separate table",
                       in->path, text_show(&shown, table));
    if (first_id && strcmp(first_id, "0") != 0 && !has_ids)
        return err_set(msg_of(in), EMBTIER_INVALID,
                       "%s is one file of an export, and its rows begin at id %s: import its "
                       "folder, or give the ids of its rows",
                       in->path, text_show(&shown, first_id));
    return EMBTIER_OK;
}

static enum embtier_err from_file(struct importing *in)
{
    struct export_manifest *const m = &in->manifest;
    const char *ids_path = in->options.ids_path;
    const struct tensor_info *weights = NULL;
    const struct tensor_reader *reader;
    struct export_part *part;

    TRY(tensor_reader_open(in->path, &in->file, msg_of(in)));
    reader = in->file;
    TRY(find_weights(in, reader, &weights));
    assert(weights);
    snprintf(in->weight, sizeof(in->weight), "%s", weights->name);
    if (!ids_path && find_named(reader, "ids"))
        ids_path = in->path;
    TRY(check_alone(in, reader, ids_path != NULL));
    TRY(make_spec(in, weights, ids_path != NULL, &m->spec));
    m->with_state = !in->options.without_state && find_named(reader, "state") != NULL;
    if (m->with_state && table_spec_state_bytes(&m->spec) == 0)
        return err_set(msg_of(in), EMBTIER_MISMATCH,
                       "%s: has optimizer state, and the table's optimizer, %s, keeps none: name "
                       "another optimizer, or leave the state out",
                       in->path, optimizer_word(m->spec.optimizer));
    m->all_rows = !ids_path;
    m->rows = weights->rows;
    m->parts = calloc(1, sizeof(*m->parts));
    if (!m->parts)
        return no_memory(in);
    m->part_count = 1;
    part = &m->parts[0];
    part->rows = weights->rows;
    part->files[EXPORT_WEIGHT] = strdup(in->path);
    part->files[EXPORT_STATE] = strdup(in->path);
    part->files[EXPORT_IDS] = strdup(ids_path ? ids_path : "");
    return part->files[EXPORT_WEIGHT] && part->files[EXPORT_STATE] && part->files[EXPORT_IDS]
               ? EMBTIER_OK
               : no_memory(in);
}

/* Reads an export, or a model whose index names the file with the tensor. */
static enum embtier_err from_folder(struct importing *in)
{
    _cleanup_(freep) char *manifest = path_join(in->path, EXPORT_MANIFEST_FILE);

    if (!manifest)
        return no_memory(in);
    if (access(manifest, F_OK) != 0)
        TRY(tensor_index_find(in->path, in->options.tensor, &in->indexed, msg_of(in)));
    if (!in->indexed)
        return from_export(in);
    in->path = in->indexed;
    return from_file(in);
}

/* ---- The whole ---- */

static enum embtier_err give_name(struct importing *in, const char *name)
{
    struct table_spec *const spec = &in->manifest.spec;

    if (!name && !in->is_export)
        return err_set(msg_of(in), EMBTIER_INVALID, "%s: not an export, so the table needs a name",
                       in->path);
    if (!name)
        return EMBTIER_OK;
    TRY(table_check_name(in->server, name));
    memcpy(spec->name, name, strlen(name) + 1);
    return EMBTIER_OK;
}

static enum embtier_err check_all(struct importing *in)
{
    for (uint32_t i = 0; i < in->manifest.part_count; i++) {
        TRY(open_part(in, &in->manifest.parts[i]));
        close_part(in);
    }
    return EMBTIER_OK;
}

static enum embtier_err load_all(struct importing *in)
{
    const bool with_state = export_manifest_has(&in->manifest, EXPORT_STATE);

    TRY(load_open_spec(in->server, &in->manifest.spec, with_state, in->manifest.rows, 0,
                       &in->load));
    tell_rows(in); /* so that the wait for the server does not count in the rate */
    for (uint32_t i = 0; i < in->manifest.part_count; i++) {
        TRY(load_part(in, &in->manifest.parts[i]));
        close_part(in);
    }
    return embtier_load_end(in->load, in->progress, in->progress_context);
}

static enum embtier_err check_durability(const struct importing *in)
{
    const int durability = in->options.durability;

    if (durability == AS_EXPORTED || durability_word(durability))
        return EMBTIER_OK;
    return err_set(msg_of(in), EMBTIER_INVALID,
                   "durability %d is not known; %d means the export's durability, or the default",
                   durability, AS_EXPORTED);
}

static enum embtier_err import(struct importing *in, const char *name)
{
    struct stat info;

    TRY(check_durability(in));
    if (stat(in->path, &info) != 0)
        return err_set_errno(msg_of(in), errno, "%s", in->path);
    if (S_ISDIR(info.st_mode))
        TRY(from_folder(in));
    else
        TRY(from_file(in));
    TRY(give_name(in, name));
    TRY(check_all(in));
    return load_all(in);
}

enum embtier_err embtier_import(struct embtier *server, const char *name, const char *path,
                                const struct embtier_import_options *given,
                                embtier_progress_fn *progress, void *progress_context,
                                struct embtier_imported *ret_imported)
{
    struct importing in = {
        .server = server,
        .options = EMBTIER_IMPORT_OPTIONS_INIT,
        .progress = progress,
        .progress_context = progress_context,
        .path = path,
    };
    enum embtier_err err;

    if (given)
        TRY(options_read(given, sizeof(in.options), &in.options, sizeof(in.options), "import",
                         "EMBTIER_IMPORT_OPTIONS_INIT", &server->message));
    err = import(&in, name);
    if (err == EMBTIER_OK && ret_imported) {
        ret_imported->rows = in.rows_done;
        ret_imported->bytes = in.bytes_done;
        memcpy(ret_imported->name, in.manifest.spec.name, sizeof(ret_imported->name));
    }
    embtier_load_close(in.load);
    close_part(&in);
    tensor_reader_free(in.file);
    export_manifest_clear(&in.manifest);
    free(in.indexed);
    return err;
}
