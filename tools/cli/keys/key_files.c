/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/key_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/system/new_file.h"

/* Files on their way. */
struct writing {
    const struct key_file *files;
    size_t count;
    bool force;
    char *folder;
    bool made_folder;
    struct new_file *opened[KEY_FILES_MAX];
    bool replaces[KEY_FILES_MAX]; /* there was a file */
    bool named[KEY_FILES_MAX];    /* the new file has its name */
};

static enum embtier_err sync_folder(const char *path, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        return err_set_errno(msg, errno, "%s", path);
    return EMBTIER_OK;
}

static enum embtier_err make_folder(struct writing *writing, struct err_msg *msg)
{
    _cleanup_(freep) char *parent = path_join(writing->folder, "..");

    if (!parent)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", writing->folder);
    if (mkdir(writing->folder, KEY_FOLDER_MODE) != 0) {
        if (errno == EEXIST)
            return EMBTIER_OK; /* a file of this name makes the next call fail */
        return err_set_errno(msg, errno, "cannot make the folder %s", writing->folder);
    }
    writing->made_folder = true;
    if (chmod(writing->folder, KEY_FOLDER_MODE) != 0) /* the umask took rights */
        return err_set_errno(msg, errno, "%s", writing->folder);
    return sync_folder(parent, msg);
}

static enum embtier_err look(struct writing *writing, size_t i, struct err_msg *msg)
{
    const char *const path = writing->files[i].path;
    struct stat info;

    if (stat(path, &info) != 0)
        return EMBTIER_OK;
    writing->replaces[i] = true;
    if (S_ISDIR(info.st_mode))
        return err_set(msg, EMBTIER_EXISTS, "%s is a folder; give another name", path);
    return EMBTIER_OK;
}

static enum embtier_err open_one(struct writing *writing, size_t i, struct err_msg *msg)
{
    const struct key_file *const file = &writing->files[i];
    enum embtier_err err;
    FILE *stream;

    TRY(look(writing, i, msg));
    err = new_file_open_mode(file->path, file->mode, writing->force, &writing->opened[i], msg);
    if (err == EMBTIER_EXISTS)
        err_append(msg, "; give another name, or --force to replace it");
    if (err != EMBTIER_OK)
        return err;
    stream = new_file_stream(writing->opened[i]);
    /* stdio would keep a copy of a secret. */
    (void)setvbuf(stream, NULL, _IONBF, 0);
    errno = 0;
    if (fwrite(file->text, 1, file->bytes, stream) != file->bytes)
        return err_set_errno(msg, errno, "%s", file->path);
    return new_file_sync(writing->opened[i], msg);
}

/* A file may be replaced when only its folder could not be synced. */
static enum embtier_err name_one(struct writing *writing, size_t i, struct err_msg *msg)
{
    const enum embtier_err err = new_file_finish(writing->opened[i], msg);

    writing->named[i] = err == EMBTIER_OK;
    if (err != EMBTIER_OK && (writing->replaces[i] || (i > 0 && writing->replaces[i - 1])))
        err_append(msg, "; %s may be replaced already: repeat the command", writing->files[0].path);
    return err;
}

static enum embtier_err write_all(struct writing *writing, struct err_msg *msg)
{
    TRY(path_directory(writing->files[0].path, &writing->folder, msg));
    TRY(make_folder(writing, msg));
    for (size_t i = 0; i < writing->count; i++)
        TRY(open_one(writing, i, msg));
    for (size_t i = 0; i < writing->count; i++)
        TRY(name_one(writing, i, msg));
    return EMBTIER_OK;
}

static void clean_up(struct writing *writing, bool failed)
{
    for (size_t i = 0; i < writing->count; i++) {
        new_file_free(writing->opened[i]);
        if (failed && writing->named[i] && !writing->replaces[i])
            (void)unlink(writing->files[i].path);
    }
    if (failed && writing->made_folder)
        (void)rmdir(writing->folder);
    freep(&writing->folder);
}

/* Returns the signals that were blocked before. */
static sigset_t hold_signals(void)
{
    sigset_t held, before;

    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    sigprocmask(SIG_BLOCK, &held, &before);
    return before;
}

enum embtier_err key_files_write(const struct key_file *files, size_t count, bool force,
                                 struct err_msg *msg)
{
    struct writing writing = { .files = files, .count = count, .force = force };
    const sigset_t before = hold_signals();
    enum embtier_err err;

    assert(count >= 1 && count <= KEY_FILES_MAX);
    err = write_all(&writing, msg);
    clean_up(&writing, err != EMBTIER_OK);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return err;
}
