/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/logs/log_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log/log.h"
#include "base/paths.h"
#include "store/database/logs/log_damage.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"

struct log_file {
    char *path;
    uint64_t number;
    struct log_scan scan; /* only if it has marks */
};

struct log_files {
    struct log_file *list;
    size_t count;
};

static void log_files_clear(struct log_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->list[i].path);
    free(files->list);
}

bool log_number(const char *name, uint64_t *ret_number)
{
    char *end;

    if (*name < '0' || *name > '9')
        return false;
    errno = 0;
    *ret_number = strtoull(name, &end, 10);
    return errno == 0 && strcmp(end, ".log") == 0;
}

static enum embtier_err log_files_add(struct log_files *files, const char *path, const char *name,
                                      struct err_msg *msg)
{
    struct log_file *const longer =
        realloc(files->list, (files->count + 1) * sizeof(files->list[0]));
    uint64_t number;

    if (!longer)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    files->list = longer;
    if (!log_number(name, &number))
        return EMBTIER_OK;
    longer[files->count] = (struct log_file){ .path = path_join(path, name), .number = number };
    if (!longer[files->count].path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    files->count++;
    return EMBTIER_OK;
}

static enum embtier_err log_files_list(const char *path, struct log_files *files,
                                       struct err_msg *msg)
{
    DIR *const folder = opendir(path);
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *file;

    if (!folder)
        return err_set_errno(msg, errno, "%s", path);
    while (err == EMBTIER_OK && (file = folder_next(folder, path, &err, msg)))
        err = log_files_add(files, path, file->d_name, msg);
    closedir(folder);
    return err;
}

static enum embtier_err log_cut(const char *path, const struct log_file *file, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(file->path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)file->scan.end) != 0 || fsync(fd) != 0)
        return err_set_errno(msg, errno, "%s: cutting off its unfinished end", file->path);
    TRY(directory_sync(path, msg));
    log_warn("the end of a log was cut off at its first incomplete record, which lies behind "
             "everything that the logs record as synced",
             "log=%s cut_bytes=%" PRIu64 " left_bytes=%" PRIu64, LOG_QUOTED(file->path),
             file->scan.bytes - file->scan.end, file->scan.end);
    return EMBTIER_OK;
}

static enum embtier_err judge(const char *path, const struct log_file *file,
                              const struct log_position *synced, bool same_boot,
                              struct err_msg *msg)
{
    const struct log_scan *const scan = &file->scan;

    if (file->number == synced->log && scan->bytes < synced->bytes)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: has %" PRIu64 " bytes, but %" PRIu64 " had been synced", file->path,
                       scan->bytes, synced->bytes);
    if (scan->how == LOG_IS_WHOLE)
        return EMBTIER_OK;
    if (log_position_covers(synced, file->number, scan->end))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: damaged at byte %" PRIu64 ", where it had been synced", file->path,
                       scan->end);
    if (scan->how == LOG_IS_DAMAGED && same_boot)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: damaged at byte %" PRIu64
                       ": bytes are wrong there, and the machine has not lost power since",
                       file->path, scan->end);
    return log_cut(path, file, msg);
}

enum embtier_err log_ends_mend(const char *path, const struct log_marks *marks, struct err_msg *msg)
{
    _cleanup_(log_files_clear) struct log_files files = { 0 };
    struct log_position synced = { 0 };
    struct log_note note;

    TRY(log_note_read(path, &note, msg));
    TRY(log_files_list(path, &files, msg));
    for (size_t i = 0; i < files.count; i++) {
        struct log_file *const file = &files.list[i];

        if (file->number < note.first_log)
            TRY(log_damage_find(file->path, msg));
        else
            TRY(log_scan(file->path, marks, &file->scan, &synced, msg));
    }
    for (size_t i = 0; i < files.count; i++)
        if (files.list[i].number >= MAX(note.first_log, synced.first))
            TRY(judge(path, &files.list[i], &synced, note.same_boot, msg));
    return EMBTIER_OK;
}
