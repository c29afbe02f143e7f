/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"

struct new_file {
    char *path, *partial_path, *directory;
    FILE *stream;
    bool has_partial;
    bool replaces;
    mode_t mode;    /* of the file that is replaced, or the caller's; 0: neither */
    bool is_chosen; /* the mode is the caller's */
};

static enum embtier_err exists(const char *path, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_EXISTS, "%s already exists", path);
}

/* Returns 0 or an errno. FAT and CIFS give all their files one mode, and refuse another. */
static int set_mode(int fd, mode_t mode)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return errno;
    if ((info.st_mode & 0777) == mode || fchmod(fd, mode) == 0)
        return 0;
    return errno == EPERM || errno == EOPNOTSUPP ? 0 : errno;
}

#define RIGHTS_OF_OTHERS (S_IRWXG | S_IRWXO)

/* A file of the owner alone must be that. */
static enum embtier_err check_mode(const struct new_file *file, int fd, struct err_msg *msg)
{
    struct stat info;

    if (!file->is_chosen || (file->mode & RIGHTS_OF_OTHERS) != 0)
        return EMBTIER_OK;
    if (fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "%s", file->path);
    if ((info.st_mode & RIGHTS_OF_OTHERS) == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_UNSUPPORTED,
                   "%s: the file system gives it mode %04o instead of %04o, so others could read "
                   "it; choose a file system with modes",
                   file->path, (unsigned)info.st_mode & 07777, (unsigned)file->mode);
}

static enum embtier_err give_mode(const struct new_file *file, int fd, struct err_msg *msg)
{
    const int why = file->mode != 0 ? set_mode(fd, file->mode) : 0;

    if (why != 0)
        return err_set_errno(msg, why, "%s", file->path);
    return check_mode(file, fd, msg);
}

static enum embtier_err open_partial(struct new_file *file, struct err_msg *msg)
{
    struct stat info;
    enum embtier_err err;
    int fd;

    if (!file->replaces && lstat(file->path, &info) == 0)
        return exists(file->path, msg);
    fd = open(file->partial_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
              file->is_chosen ? file->mode : 0666);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", file->path);
    file->has_partial = true;
    err = give_mode(file, fd, msg);
    if (err != EMBTIER_OK) {
        close(fd);
        return err;
    }
    file->stream = fdopen(fd, "w+");
    if (file->stream)
        return EMBTIER_OK;
    close(fd);
    return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", file->path);
}

/* A long name is cut, not inside a character, so that the partial one is no longer than it may be.
 * NULL: out of memory. */
static char *partial_path_of(const char *path, uint32_t chance)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    size_t bytes = strlen(name);
    char suffix[40], *partial;
    const int suffix_bytes =
        snprintf(suffix, sizeof(suffix), ".%d-%08" PRIx32 ".partial", (int)getpid(), chance);

    if (bytes > NAME_MAX - (size_t)suffix_bytes) {
        bytes = NAME_MAX - (size_t)suffix_bytes;
        while (bytes > 1 && (name[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    if (asprintf(&partial, "%.*s%s", (int)(name - path + (ptrdiff_t)bytes), path, suffix) < 0)
        return NULL;
    return partial;
}

/* How a file is opened. */
struct manner {
    bool replaces;
    mode_t mode; /* as in struct new_file */
    bool is_chosen;
};

static enum embtier_err open_file(const char *path, const struct manner *manner,
                                  struct new_file **ret_file, struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *file = calloc(1, sizeof(*file));
    struct stat info;
    uint32_t chance;

    if (!file)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    if (lstat(path, &info) != 0 && errno == ENAMETOOLONG) /* the partial name is shorter */
        return err_set_errno(msg, errno, "%s", path);
    file->replaces = manner->replaces;
    file->mode = manner->mode;
    file->is_chosen = manner->is_chosen;
    file->path = strdup(path);
    /* Threads, and processes of other containers, may have the same number. */
    if (getrandom(&chance, sizeof(chance), 0) != (ssize_t)sizeof(chance))
        return err_set_errno(msg, errno, "%s", path);
    file->partial_path = partial_path_of(path, chance);
    if (!file->path || !file->partial_path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    TRY(path_directory(path, &file->directory, msg));
    TRY(open_partial(file, msg));
    *ret_file = TAKE(file);
    return EMBTIER_OK;
}

enum embtier_err new_file_open(const char *path, struct new_file **ret_file, struct err_msg *msg)
{
    return open_file(path, &(struct manner){ 0 }, ret_file, msg);
}

/* @mode: 0 for that of the file that is replaced. */
static enum embtier_err open_over(const char *path, mode_t mode, struct new_file **ret_file,
                                  struct err_msg *msg)
{
    _cleanup_(freep) char *there = realpath(path, NULL);
    struct manner manner = { .replaces = true, .mode = mode, .is_chosen = mode != 0 };
    struct stat info = { 0 };

    if (!there && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    if (!there && lstat(path, &info) == 0)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "%s: a symbolic link to a file that does not exist: make that file, or give "
                       "another name",
                       path);
    if (there && stat(there, &info) != 0)
        return err_set_errno(msg, errno, "%s", path);
    if (mode == 0)
        manner.mode = info.st_mode & 0777;
    return open_file(there ? there : path, &manner, ret_file, msg);
}

enum embtier_err new_file_open_over(const char *path, struct new_file **ret_file,
                                    struct err_msg *msg)
{
    return open_over(path, 0, ret_file, msg);
}

enum embtier_err new_file_open_mode(const char *path, mode_t mode, bool over,
                                    struct new_file **ret_file, struct err_msg *msg)
{
    const struct manner manner = { .mode = mode, .is_chosen = true };

    return over ? open_over(path, mode, ret_file, msg) : open_file(path, &manner, ret_file, msg);
}

FILE *new_file_stream(struct new_file *file)
{
    return file->stream;
}

static enum embtier_err sync_directory(const struct new_file *file, struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        return err_set_errno(msg, errno, "%s", file->directory);
    return EMBTIER_OK;
}

/* Returns 0 or an errno. */
static int give_name(struct new_file *file)
{
    if (file->replaces) {
        if (rename(file->partial_path, file->path) != 0)
            return errno;
        file->has_partial = false;
        return 0;
    }
    if (link(file->partial_path, file->path) == 0)
        return 0;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    /* A file system without hard links. */
    if (renameat2(AT_FDCWD, file->partial_path, AT_FDCWD, file->path, RENAME_NOREPLACE) != 0)
        return errno;
    file->has_partial = false;
    return 0;
}

enum embtier_err new_file_sync(struct new_file *file, struct err_msg *msg)
{
    errno = 0;
    if (fflush(file->stream) != 0 || ferror(file->stream) || fsync(fileno(file->stream)) != 0)
        return err_set_errno(msg, errno ? errno : EIO, "%s", file->path);
    return EMBTIER_OK;
}

enum embtier_err new_file_finish(struct new_file *file, struct err_msg *msg)
{
    enum embtier_err err;
    int why;

    TRY(new_file_sync(file, msg));
    why = give_name(file);
    if (why == EEXIST)
        return exists(file->path, msg);
    if (why != 0)
        return err_set_errno(msg, why, "%s", file->path);
    err = sync_directory(file, msg);
    if (err != EMBTIER_OK && !file->replaces)
        (void)unlink(file->path);
    return err;
}

void new_file_free(struct new_file *file)
{
    if (!file)
        return;
    if (file->stream)
        (void)fclose(file->stream);
    if (file->has_partial)
        (void)unlink(file->partial_path);
    free(file->path);
    free(file->partial_path);
    free(file->directory);
    free(file);
}
