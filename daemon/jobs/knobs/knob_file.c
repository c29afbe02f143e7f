/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/knobs/knob_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/new_file.h"
#include "base/yaml/yaml_doc.h"
#include "base/yaml/yaml_edit.h"
#include "config/config_asking.h"
#include "config/config_load.h"

struct knob_file {
    char *path;
    struct stat before;     /* of the file that is to be replaced */
    struct new_file *fresh; /* NULL: the text has the value already */
};

/* Root may write a file that nobody may write; such a file is meant to stay. */
static enum embtier_err look_at(struct knob_file *file, struct err_msg *msg)
{
    if (stat(file->path, &file->before) != 0)
        return err_set_errno(msg, errno, "%s", file->path);
    if (!S_ISREG(file->before.st_mode))
        return err_set(msg, EMBTIER_INVALID, "%s is no regular file, so it cannot be changed",
                       file->path);
    if ((file->before.st_mode & 0222) == 0 || access(file->path, W_OK) != 0)
        return err_set(msg, EMBTIER_PERMISSION,
                       "%s is read-only for the server: change it yourself, or let the server's "
                       "user write it and its directory",
                       file->path);
    return EMBTIER_OK;
}

static enum embtier_err keep_owner(const struct knob_file *file, int fd, struct err_msg *msg)
{
    struct stat now;

    if (fstat(fd, &now) != 0)
        return err_set_errno(msg, errno, "%s", file->path);
    if (now.st_uid == file->before.st_uid && now.st_gid == file->before.st_gid)
        return EMBTIER_OK;
    if (fchown(fd, file->before.st_uid, file->before.st_gid) != 0)
        return err_set(msg, EMBTIER_PERMISSION,
                       "%s belongs to another user or group, which the server cannot give to a "
                       "new file: change it yourself, or give it to the server's user",
                       file->path);
    return EMBTIER_OK;
}

static enum embtier_err check(const struct knob_file *file, const struct knob_file_opts *opts,
                              int fd, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    const enum embtier_err err = config_ask(
        &(struct config_asking){
            .server = opts->checker, .path = file->path, .fd = fd, .most_ms = opts->check_ms },
        &why);

    if (err == EMBTIER_OK)
        return EMBTIER_OK;
    return err_set(msg, err, "%s is as it was: %s%s", file->path,
                   err == EMBTIER_CONFIG ? "with the new value " : "", why.text);
}

static enum embtier_err write_fresh(struct knob_file *file, const char *text, size_t bytes,
                                    const struct knob_file_opts *opts, struct err_msg *msg)
{
    FILE *stream;

    TRY(new_file_open_over(file->path, &file->fresh, msg));
    stream = new_file_stream(file->fresh);
    if (fwrite(text, 1, bytes, stream) != bytes || fflush(stream) != 0)
        return err_set_errno(msg, errno, "%s", file->path);
    TRY(keep_owner(file, fileno(stream), msg));
    TRY(new_file_sync(file->fresh, msg));
    return opts->checker ? check(file, opts, fileno(stream), msg) : EMBTIER_OK;
}

/* An edit that took effect is found by a second one, which changes nothing. A value that landed
 * where the file does not say it, such as in a comment, is found by none. */
static enum embtier_err check_edit(const struct knob_file *file, const char *text, size_t bytes,
                                   const char *name, const char *value, struct err_msg *msg)
{
    _cleanup_(freep) char *again = NULL;
    size_t again_bytes = 0;
    struct err_msg why;

    if (yaml_edit(text, bytes, name, value, &again, &again_bytes, &why) == EMBTIER_OK &&
        again_bytes == bytes && memcmp(again, text, bytes) == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "%s is as it was: %s cannot be written into it as it is laid out; write it "
                   "yourself",
                   file->path, name);
}

static enum embtier_err prepare(struct knob_file *file, const struct knob_file_opts *opts,
                                const char *name, const char *value, struct err_msg *msg)
{
    const struct config *const config = opts->config;
    _cleanup_(config_freep) struct config *changed = NULL;
    _cleanup_(freep) char *text = NULL;
    _cleanup_(freep) char *edited = NULL;
    size_t bytes = 0, edited_bytes = 0;
    struct err_msg why = { { 0 } };
    enum embtier_err err;

    TRY(look_at(file, msg));
    TRY(yaml_doc_read(file->path, YAML_DOC_BYTES_MAX, &text, &bytes, msg));
    err = yaml_edit(text, bytes, name, value, &edited, &edited_bytes, &why);
    if (err != EMBTIER_OK)
        return err_set(msg, err, "%s is as it was: %s", file->path, why.text);
    if (edited_bytes == bytes && memcmp(edited, text, bytes) == 0)
        return EMBTIER_OK;
    TRY(config_parse(file->path, edited, edited_bytes, &config->machine, config->unbudgeted,
                     &changed, msg));
    TRY(check_edit(file, edited, edited_bytes, name, value, msg));
    return write_fresh(file, edited, edited_bytes, opts, msg);
}

enum embtier_err knob_file_new(const struct knob_file_opts *opts, const char *name,
                               const char *value, struct knob_file **ret_file, struct err_msg *msg)
{
    _cleanup_(knob_file_freep) struct knob_file *file = calloc(1, sizeof(*file));

    if (!file || !(file->path = strdup(opts->path)))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(prepare(file, opts, name, value, msg));
    *ret_file = TAKE(file);
    return EMBTIER_OK;
}

static bool is_as_before(const struct knob_file *file)
{
    const struct stat *const before = &file->before;
    struct stat now;

    return stat(file->path, &now) == 0 && now.st_dev == before->st_dev &&
           now.st_ino == before->st_ino && now.st_size == before->st_size &&
           now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

enum embtier_err knob_file_finish(struct knob_file *file, struct err_msg *msg)
{
    if (!file->fresh)
        return EMBTIER_OK;
    if (!is_as_before(file))
        return err_set(msg, EMBTIER_BUSY,
                       "%s was changed by another program meanwhile, and is as that left it: try "
                       "again",
                       file->path);
    return new_file_finish(file->fresh, msg);
}

void knob_file_free(struct knob_file *file)
{
    if (!file)
        return;
    new_file_free(file->fresh);
    free(file->path);
    free(file);
}
