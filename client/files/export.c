/* SPDX-License-Identifier: Apache-2.0 */
/* An export is a folder (export_folder.h) with files of rows, and EXPORT_MANIFEST_FILE, which
 * describes them. The caller's thread asks the server for rows; another thread writes those that
 * came before. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/export_folder.h"
#include "client/files/export_manifest.h"
#include "client/lib/checkpoint.h"
#include "client/lib/connection.h"
#include "client/lib/load.h"
#include "client/lib/table.h"

#define FILE_BYTES (UINT64_C(4) << 30)
/* Bytes of rows beyond the expected number that a file has room for. */
#define SLACK_BYTES (64 * MIB)

/* An export in progress. */
struct exporting {
    struct embtier *server;
    struct embtier_export_options options;
    embtier_progress_fn *progress;
    void *progress_context;
    struct export_folder *folder;
    struct embtier_scan *scan;
    struct export_manifest manifest;

    /* The writing thread's, while it runs: */
    uint64_t rows_per_part;
    struct tensor_writer *writer; /* of the part in progress, or NULL */
    uint64_t part_rows;           /* rows in it so far */
    uint64_t bytes;               /* of all complete files */
    enum embtier_err write_err;
    struct err_msg write_msg;

    /* Handed over from one thread to the other and back: */
    struct embtier_scan_rows rows; /* 0 rows: there are no more */
    bool given_up;                 /* no more rows will come, and those written are of no use */
    sem_t filled, written;
};

static struct err_msg *msg_of(const struct exporting *e)
{
    return &e->server->message;
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

static void clear(struct exporting *e)
{
    tensor_writer_free(e->writer);
    embtier_scan_close(e->scan);
    export_folder_free(e->folder);
    export_manifest_clear(&e->manifest);
}

/* ---- Rows ---- */

static enum tensor_dtype weight_dtype(enum embtier_dtype dtype)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return TENSOR_F16;
    case EMBTIER_DTYPE_BF16:
        return TENSOR_BF16;
    default:
        return TENSOR_F32;
    }
}

/* Describes tensor @column. @ret_offset is where it begins in a row of the scan. */
static struct tensor describe(const struct exporting *e, enum export_column column,
                              uint32_t *ret_offset)
{
    const struct table_spec *const spec = &e->manifest.spec;
    struct tensor tensor = { .dtype = weight_dtype(spec->dtype), .columns = spec->dim };

    *ret_offset = 0;
    if (column == EXPORT_STATE) {
        *ret_offset = table_spec_weight_bytes(spec);
        tensor.dtype = TENSOR_F32;
        tensor.columns = table_spec_state_bytes(spec) / (uint32_t)sizeof(float);
    } else if (column == EXPORT_IDS) {
        /* Most libraries support signed ids better. */
        tensor.dtype =
            spec->rows == EMBTIER_UNBOUNDED || spec->rows > INT64_MAX ? TENSOR_U64 : TENSOR_I64;
        tensor.columns = 0;
    }
    snprintf(tensor.name, sizeof(tensor.name), "%s", export_column_name(column));
    return tensor;
}

/* Refuses an export that an import would refuse. */
static enum embtier_err check_parts(uint64_t parts, struct err_msg *msg)
{
    if (parts <= EXPORT_PARTS_MAX)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "an export has at most %d files per tensor: allow more bytes per file",
                   EXPORT_PARTS_MAX);
}

static enum embtier_err begin_part(struct exporting *e)
{
    struct tensor tensors[EXPORT_COLUMNS];
    char stem[EMBTIER_TABLE_NAME_MAX + 16];
    uint32_t count = 0, offset;

    TRY(check_parts((uint64_t)e->manifest.part_count + 1, &e->write_msg));
    for (int c = 0; c < EXPORT_COLUMNS; c++)
        if (export_manifest_has(&e->manifest, (enum export_column)c))
            tensors[count++] = describe(e, (enum export_column)c, &offset);
    snprintf(stem, sizeof(stem), "%s-%0*u", e->manifest.spec.name, EXPORT_PART_DIGITS,
             e->manifest.part_count + 1);
    e->part_rows = 0;
    return tensor_writer_new(&(struct tensor_writer_opts){ .folder = export_folder_fd(e->folder),
                                                           .stem = stem,
                                                           .format = e->manifest.format,
                                                           .tensors = tensors,
                                                           .tensor_count = count,
                                                           .most_rows = e->rows_per_part },
                             &e->writer, &e->write_msg);
}

static enum embtier_err end_part(struct exporting *e)
{
    char first_id[24], checkpoint[24];
    const char *const metadata[] = { "embtier.table",
                                     e->manifest.spec.name,
                                     "embtier.checkpoint",
                                     checkpoint,
                                     e->manifest.all_rows ? "embtier.first_id" : NULL,
                                     first_id,
                                     NULL };
    struct tensor_written written = { 0 };

    snprintf(checkpoint, sizeof(checkpoint), "%llu", (unsigned long long)e->manifest.checkpoint);
    snprintf(first_id, sizeof(first_id), "%llu", (unsigned long long)e->manifest.rows);
    TRY(tensor_writer_end(e->writer, metadata, &written, &e->write_msg));
    tensor_writer_free(TAKE(e->writer));
    e->bytes += written.bytes;
    return export_manifest_add(&e->manifest, &written, &e->write_msg);
}

/* Adds @count of @rows, from number @from on, to the part in progress. */
static enum embtier_err add_rows(struct exporting *e, const struct embtier_scan_rows *rows,
                                 uint32_t from, uint32_t count)
{
    uint32_t tensor = 0;

    for (int c = 0; c < EXPORT_COLUMNS; c++) {
        const uint8_t *first = (const uint8_t *)rows->rows + (size_t)from * rows->row_bytes;
        size_t stride = rows->row_bytes;
        uint32_t offset;

        if (!export_manifest_has(&e->manifest, (enum export_column)c))
            continue;
        describe(e, (enum export_column)c, &offset);
        if (c == EXPORT_IDS) {
            first = (const uint8_t *)(rows->ids + from);
            stride = sizeof(*rows->ids);
        }
        TRY(tensor_writer_add(e->writer, tensor++, first + offset, stride, count, &e->write_msg));
    }
    e->part_rows += count;
    return EMBTIER_OK;
}

static enum embtier_err write_rows(struct exporting *e, const struct embtier_scan_rows *rows)
{
    uint32_t done = 0;

    while (done < rows->count) {
        uint32_t count;

        if (!e->writer)
            TRY(begin_part(e));
        count = (uint32_t)MIN((uint64_t)(rows->count - done), e->rows_per_part - e->part_rows);
        TRY(add_rows(e, rows, done, count));
        done += count;
        if (e->part_rows == e->rows_per_part)
            TRY(end_part(e));
    }
    return EMBTIER_OK;
}

static enum embtier_err write_last(struct exporting *e)
{
    if (!e->writer && e->manifest.part_count == 0) /* so that there is a file, of no rows */
        TRY(begin_part(e));
    return e->writer ? end_part(e) : EMBTIER_OK;
}

/* Writes rows while the server fills the other half of the scan's buffer. */
static void *writing(void *context)
{
    struct exporting *const e = context;
    bool is_last = false;

    while (!is_last) {
        wait_for(&e->filled);
        if (e->given_up)
            break;
        is_last = e->rows.count == 0;
        e->write_err = is_last ? write_last(e) : write_rows(e, &e->rows);
        sem_post(&e->written);
    }
    return NULL;
}

/* Hands rows over once the earlier ones are written. @rows NULL: the scan has failed. The other
 * thread ends if the scan or the writing has failed. */
static enum embtier_err hand_over(struct exporting *e, const struct embtier_scan_rows *rows)
{
    enum embtier_err err;

    wait_for(&e->written);
    err = e->write_err; /* the other thread has it again from here on */
    e->given_up = err != EMBTIER_OK || !rows;
    if (!e->given_up)
        e->rows = *rows;
    sem_post(&e->filled);
    return err;
}

static enum embtier_err read_rows(struct exporting *e)
{
    const uint64_t expected = embtier_scan_row_count(e->scan);
    struct embtier_scan_rows rows = { 0 };
    uint64_t done = 0;

    do {
        const enum embtier_err err = embtier_scan_next(e->scan, &rows);

        if (err != EMBTIER_OK) {
            (void)!hand_over(e, NULL);
            return err;
        }
        TRY(hand_over(e, &rows));
        done += rows.count;
        if (e->progress) /* an estimate that was exceeded is unknown */
            e->progress(e->progress_context, done, done <= expected ? expected : 0, "rows");
    } while (rows.count > 0);
    return EMBTIER_OK;
}

/* Blocks all signals: they are for the application's threads. A file over the limit of its length
 * is then an error of the write, not a signal. */
static int start_writing(struct exporting *e, pthread_t *ret_thread)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret_thread, NULL, writing, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static enum embtier_err copy_rows(struct exporting *e)
{
    enum embtier_err err;
    pthread_t thread;
    int rc;

    sem_init(&e->filled, 0, 0);
    sem_init(&e->written, 0, 1);
    rc = start_writing(e, &thread);
    if (rc == 0) {
        err = read_rows(e);
        pthread_join(thread, NULL);
    } else {
        err = err_set_errno(msg_of(e), rc, "thread");
    }
    sem_destroy(&e->filled);
    sem_destroy(&e->written);
    if (e->write_err != EMBTIER_OK) {
        *msg_of(e) = e->write_msg;
        return e->write_err;
    }
    return err;
}

/* ---- The whole ---- */

/* Checks the table before a checkpoint is made in vain. */
static enum embtier_err check_table(const struct exporting *e, const char *name)
{
    struct embtier_table *table = NULL;
    enum embtier_err err = EMBTIER_OK;

    TRY(embtier_table_open(e->server, name, &table));
    if (e->options.all_rows && embtier_table_info(table)->rows == EMBTIER_UNBOUNDED)
        err = err_set(msg_of(e), EMBTIER_INVALID,
                      "table '%s' is unbounded: only its written rows can be exported", name);
    embtier_table_close(table);
    return err;
}

static enum embtier_err note_checkpoint(struct exporting *e, uint64_t id)
{
    int has_step = 0;

    TRY(checkpoint_step(e->server, id, &has_step, &e->manifest.step));
    e->manifest.checkpoint = id;
    e->manifest.has_step = has_step != 0;
    return EMBTIER_OK;
}

/* Only some users may make a checkpoint, and any may read one. */
static enum embtier_err make_checkpoint(struct exporting *e, uint64_t *ret_id)
{
    const struct embtier_checkpoint_options made = {
        .struct_bytes = sizeof(made),
        .automatic = 1,
    };
    struct embtier_checkpoint_list *list = NULL;
    const enum embtier_err err =
        embtier_checkpoint_create(e->server, &made, e->progress, e->progress_context, &list);

    if (err == EMBTIER_PERMISSION)
        err_append(msg_of(e), "; an export of the current rows makes a checkpoint: export one that "
                              "exists (checkpoint \"newest\", --checkpoint newest)");
    TRY(err);
    *ret_id = embtier_checkpoint_list_at(list, 0)->id;
    embtier_checkpoint_list_free(list);
    return EMBTIER_OK;
}

/* For the newest checkpoint the server says which one it is, when the scan is opened. */
static enum embtier_err find_checkpoint(struct exporting *e, const char *table)
{
    uint64_t id = e->options.checkpoint;

    if (id == EMBTIER_CHECKPOINT_NEWEST)
        return EMBTIER_OK;
    if (id == 0) {
        TRY(check_table(e, table));
        TRY(make_checkpoint(e, &id));
    }
    return note_checkpoint(e, id);
}

/* Returns the number of rows that a file has room for. Until the file ends, its tensors lie apart
 * by this room, so it is not much more than the rows that can come. If more rows come than
 * expected, they go into a further file. */
static uint64_t find_rows_per_part(const struct exporting *e, uint64_t file_bytes, uint64_t each)
{
    const uint64_t expected = embtier_scan_row_count(e->scan);
    uint64_t most = file_bytes / each, likely = 0;

    if (e->manifest.spec.rows != EMBTIER_UNBOUNDED)
        most = MIN(most, e->manifest.spec.rows);
    if (!__builtin_mul_overflow(expected, 4, &likely) &&
        !__builtin_add_overflow(likely, SLACK_BYTES / each + 1, &likely))
        most = MIN(most, likely);
    return MAX(most, UINT64_C(1));
}

static enum embtier_err open_scan(struct exporting *e, const char *table)
{
    const struct embtier_scan_options options = { .struct_bytes = sizeof(options),
                                                  .checkpoint = e->manifest.checkpoint,
                                                  .with_state = e->options.with_state,
                                                  .all_rows = e->options.all_rows };
    const uint64_t file_bytes = e->options.file_bytes ? e->options.file_bytes : FILE_BYTES;
    uint64_t each, rows;

    TRY(embtier_scan_open(e->server, table, &options, &e->scan));
    if (options.checkpoint == 0)
        TRY(note_checkpoint(e, embtier_scan_checkpoint(e->scan)));
    e->manifest.spec = *scan_table_spec(e->scan);
    e->manifest.with_state = e->options.with_state != 0;
    e->manifest.all_rows = e->options.all_rows != 0;
    e->manifest.format = e->options.npy ? TENSOR_NPY : TENSOR_SAFETENSORS;
    each = table_spec_weight_bytes(&e->manifest.spec) + sizeof(uint64_t);
    if (e->manifest.with_state)
        each += table_spec_state_bytes(&e->manifest.spec);
    e->rows_per_part = find_rows_per_part(e, file_bytes, each);
    /* The number of written rows is an estimate, so half of it is checked here; begin_part() checks
     * the real number. */
    rows = embtier_scan_row_count(e->scan);
    if (!e->manifest.all_rows)
        rows /= 2;
    return check_parts(rows / e->rows_per_part + (rows % e->rows_per_part != 0), msg_of(e));
}

static enum embtier_err make_export(struct exporting *e, const char *table, const char *path)
{
    TRY(table_check_name(e->server, table));
    TRY(export_folder_new(path, &e->folder, msg_of(e)));
    TRY(find_checkpoint(e, table));
    TRY(open_scan(e, table));
    TRY(copy_rows(e));
    TRY(export_manifest_write(&e->manifest, export_folder_fd(e->folder), msg_of(e)));
    return export_folder_finish(e->folder, msg_of(e));
}

enum embtier_err embtier_export(struct embtier *server, const char *table, const char *path,
                                const struct embtier_export_options *given,
                                embtier_progress_fn *progress, void *progress_context,
                                struct embtier_exported *ret_exported)
{
    struct exporting e = {
        .server = server,
        .options = EMBTIER_EXPORT_OPTIONS_INIT,
        .progress = progress,
        .progress_context = progress_context,
    };
    struct err_msg message;
    enum embtier_err err;

    if (given)
        TRY(options_read(given, sizeof(e.options), &e.options, sizeof(e.options), "export",
                         "EMBTIER_EXPORT_OPTIONS_INIT", &server->message));
    err = make_export(&e, table, path);
    message = server->message;
    if (err == EMBTIER_OK && ret_exported)
        *ret_exported = (struct embtier_exported){ .checkpoint = e.manifest.checkpoint,
                                                   .rows = e.manifest.rows,
                                                   .bytes = e.bytes,
                                                   .parts = e.manifest.part_count };
    clear(&e);
    server->message = message; /* closing the scan must not overwrite it */
    return err;
}
