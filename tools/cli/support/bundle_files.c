/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/support/bundle_files.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/paths.h"
#include "base/system/new_file.h"
#include "base/text/text_escape.h"
#include "tools/cli/child/child_output.h"
#include "tools/cli/json_values.h"
#include "tools/cli/support/secrets.h"

#define TAR_LIMIT_MS      60000
#define ARCHIVE_BYTES_MAX (256 * MIB)

struct bundle_files {
    char *parent; /* a folder with one folder in it */
    char *folder;
    char *name;
    json_t *parts;
};

/* ---- The folder ---- */

enum embtier_err bundle_files_new(const char *name, struct bundle_files **ret_files,
                                  struct err_msg *msg)
{
    const char *const temporary = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe)
    _cleanup_(bundle_files_freep) struct bundle_files *files = calloc(1, sizeof(*files));
    _cleanup_(freep) char *parent =
        path_join(temporary && temporary[0] ? temporary : "/tmp", "embtier-support-XXXXXX");

    if (!files || !parent)
        return err_set(msg, EMBTIER_NO_MEMORY, "no memory for a bundle");
    if (!mkdtemp(parent))
        return err_set_errno(msg, errno, "no folder %s can be made", TEXT_SHOWN(parent));
    files->parent = TAKE(parent);
    files->folder = path_join(files->parent, name);
    files->name = strdup(name);
    files->parts = json_array();
    if (!files->folder || !files->name || !files->parts)
        return err_set(msg, EMBTIER_NO_MEMORY, "no memory for a bundle");
    if (mkdir(files->folder, 0700) != 0)
        return err_set_errno(msg, errno, "no folder %s can be made", TEXT_SHOWN(files->folder));
    *ret_files = TAKE(files);
    return EMBTIER_OK;
}

static void remove_folder(const char *path)
{
    DIR *const folder = opendir(path);
    const struct dirent *entry;

    if (!folder)
        return;
    while ((entry = readdir(folder))) // NOLINT(concurrency-mt-unsafe)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

void bundle_files_free(struct bundle_files *files)
{
    if (!files)
        return;
    if (files->folder)
        remove_folder(files->folder);
    if (files->parent)
        rmdir(files->parent);
    json_decref(files->parts);
    free(files->parent);
    free(files->folder);
    free(files->name);
    free(files);
}

/* ---- Its files ---- */

static enum embtier_err write_file(const struct bundle_files *files, const char *name,
                                   const char *text, size_t bytes)
{
    _cleanup_(freep) char *path = path_join(files->folder, name);
    FILE *file;

    if (!path)
        return EMBTIER_NO_MEMORY;
    file = fopen(path, "wxe"); /* no other user can look into the folder */
    if (!file)
        return err_from_errno(errno);
    if (fwrite(text, 1, bytes, file) != bytes) {
        (void)fclose(file);
        return EMBTIER_IO;
    }
    return fclose(file) == 0 ? EMBTIER_OK : EMBTIER_IO;
}

void bundle_files_add(struct bundle_files *files, const char *name, char *text, size_t bytes)
{
    char plain[NAME_MAX + 1];
    enum embtier_err err;
    size_t hidden;

    snprintf(plain, sizeof(plain), "%s", name);
    for (char *at = strchr(plain, '/'); at; at = strchr(at, '/'))
        *at = '_';
    hidden = secrets_hide(text, bytes);
    err = write_file(files, plain, text, bytes);
    if (err != EMBTIER_OK)
        bundle_files_lack(files, plain, err_text(err));
    else
        (void)json_array_append_new(
            files->parts, json_pack("{s:o, s:I, s:I}", "name", cli_json_text(plain), "bytes",
                                    (json_int_t)bytes, "hidden_secrets", (json_int_t)hidden));
}

void bundle_files_lack(struct bundle_files *files, const char *name, const char *why)
{
    struct err_msg hidden;

    err_write(&hidden, "%s", why);
    (void)secrets_hide(hidden.text, strlen(hidden.text));
    (void)json_array_append_new(files->parts, json_pack("{s:o, s:o}", "name", cli_json_text(name),
                                                        "missing", cli_json_text(hidden.text)));
}

const json_t *bundle_files_parts(const struct bundle_files *files)
{
    return files->parts;
}

/* ---- The archive ---- */

static enum embtier_err write_manifest(const struct bundle_files *files, struct err_msg *msg)
{
    char *const text = json_dumps(files->parts, JSON_INDENT(2));
    enum embtier_err err = EMBTIER_NO_MEMORY;

    if (text)
        err = write_file(files, "manifest.json", text, strlen(text));
    free(text);
    return err == EMBTIER_OK ? err : err_set(msg, err, "manifest.json cannot be written");
}

static enum embtier_err write_archive(const char *path, const struct child_output *archive,
                                      struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *file = NULL;

    TRY(new_file_open_mode(path, 0600, false, &file, msg));
    /* new_file_finish() checks for errors. */
    (void)fwrite(archive->text, 1, archive->bytes, new_file_stream(file));
    return new_file_finish(file, msg);
}

enum embtier_err bundle_files_pack(struct bundle_files *files, const char *path,
                                   uint64_t *ret_bytes, struct err_msg *msg)
{
    _cleanup_(child_output_clear) struct child_output archive = { 0 };
    const char *const arguments[] = { "tar",       "--create",  "--gzip",      "--owner=0",
                                      "--group=0", "--file=-",  "--directory", files->parent,
                                      "--",        files->name, NULL };

    TRY(write_manifest(files, msg));
    TRY(child_output_take(arguments, TAR_LIMIT_MS, ARCHIVE_BYTES_MAX, &archive, msg));
    if (archive.exit_status != 0)
        return err_set(msg, EMBTIER_IO, "tar failed: %s", archive.said.text);
    if (archive.bytes == ARCHIVE_BYTES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "the archive is larger than 256 MiB");
    TRY(write_archive(path, &archive, msg));
    *ret_bytes = archive.bytes;
    return EMBTIER_OK;
}
