/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, takes over and removes the folders of exports. All names are relative to the parent's
 * descriptor, so a parent that is moved meanwhile takes the export along. Between any two calls
 * here there is nothing, or an empty PATH.partial, or one with the inner folder and files of
 * exports. The next export can take over each of these. */
#include "client/files/export_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/text_after.h"
#include "client/files/export_manifest.h"
#include "client/files/tensor_io.h"

#define PARTIAL_SUFFIX ".partial"

struct export_folder {
    char *path;         /* of the export, without slashes at its end */
    char *partial_path; /* for messages */
    char *parent_path;
    const char *name; /* in the parent; points into the paths */
    const char *partial_name;
    int parent;
    int partial; /* locked */
    int inner;
    bool is_ours; /* `partial` holds only files of exports */
    bool has_name;
    bool is_finished;
};

/* ---- Files of exports ---- */

/* True for NUMBER.safetensors and NUMBER.TENSOR.npy. */
static bool is_part(const char *file)
{
    const size_t digits = strspn(file, "0123456789");

    if (digits < EXPORT_PART_DIGITS || file[digits] != '.')
        return false;
    file += digits + 1;
    if (strcmp(file, "safetensors") == 0)
        return true;
    for (int c = 0; c < EXPORT_COLUMNS; c++) {
        const char *const rest = text_after(file, export_column_name((enum export_column)c));

        if (rest && strcmp(rest, ".npy") == 0)
            return true;
    }
    return false;
}

/* True for files of exports of any table. */
static bool is_file_of_export(const char *file)
{
    const char *const dash = strrchr(file, '-');

    return strcmp(file, EXPORT_MANIFEST_FILE) == 0 || (dash && dash > file && is_part(dash + 1));
}

static bool is_inner(const char *file)
{
    return strcmp(file, EXPORT_FOLDER_NAME) == 0;
}

/* ---- Walks ---- */

/* Opens a stream of the folder's names. NULL: errno says why. The caller keeps the descriptor. */
static DIR *open_stream(int folder)
{
    const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const stream = copy < 0 ? NULL : fdopendir(copy);

    if (!stream && copy >= 0)
        close(copy);
    return stream;
}

/* Returns the next name. NULL: the end, with errno 0, or an error. */
static const char *next_name(DIR *stream)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(stream);
    } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry ? entry->d_name : NULL;
}

static enum embtier_err refuse_others(const struct export_folder *f, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_EXISTS,
                   "%s already exists and is not left from an unfinished export of this user: move "
                   "it away, or export to another path",
                   f->partial_path);
}

/* Checks that a thing in @folder, or @folder itself if @name is "", has this @type and belongs to
 * this user. */
static enum embtier_err check_this_users(const struct export_folder *f, int folder,
                                         const char *name, mode_t type, struct err_msg *msg)
{
    struct stat info;

    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
        return err_set_errno(msg, errno, "%s in %s", name, f->partial_path);
    return (info.st_mode & S_IFMT) == type && info.st_uid == geteuid() ? EMBTIER_OK
                                                                       : refuse_others(f, msg);
}

/* Checks that the folder has only things of this @type, with our names, all of this user. */
static enum embtier_err check_names(const struct export_folder *f, int folder, mode_t type,
                                    bool (*is_ours)(const char *), struct err_msg *msg)
{
    DIR *const stream = open_stream(folder);
    enum embtier_err err = EMBTIER_OK;
    const char *name;

    if (!stream)
        return err_set_errno(msg, errno, "folder %s", f->partial_path);
    while (err == EMBTIER_OK && (name = next_name(stream)))
        err = is_ours(name) ? check_this_users(f, folder, name, type, msg) : refuse_others(f, msg);
    if (err == EMBTIER_OK && errno != 0)
        err = err_set_errno(msg, errno, "folder %s", f->partial_path);
    closedir(stream);
    return err;
}

/* Removes files of exports. It continues after a failure, and returns the first one's errno, or
 * 0. */
static int remove_files(int folder)
{
    DIR *const stream = open_stream(folder);
    const char *name;
    int why;

    if (!stream)
        return errno;
    for (why = 0; (name = next_name(stream)) != NULL;)
        if (is_file_of_export(name) && unlinkat(folder, name, 0) != 0 && why == 0)
            why = errno;
    closedir(stream);
    return why;
}

/* ---- Beginning ---- */

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* Returns "NAME" of "FOLDER/NAME". */
static const char *last_name(const char *path)
{
    const char *const slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static enum embtier_err make_paths(struct export_folder *f, const char *path, struct err_msg *msg)
{
    size_t length = strlen(path), parent_bytes;

    while (length > 1 && path[length - 1] == '/')
        length--;
    f->path = strndup(path, length);
    if (!f->path || asprintf(&f->partial_path, "%s" PARTIAL_SUFFIX, f->path) < 0) {
        f->partial_path = NULL;
        return no_memory(msg);
    }
    f->name = last_name(f->path);
    f->partial_name = last_name(f->partial_path);
    parent_bytes = (size_t)(f->name - f->path);
    f->parent_path = parent_bytes > 0 ? strndup(path, parent_bytes) : strdup(".");
    return f->parent_path ? EMBTIER_OK : no_memory(msg);
}

static enum embtier_err check_path(const struct export_folder *f, struct err_msg *msg)
{
    const size_t length = strlen(f->path);

    if (length == 0)
        return err_set(msg, EMBTIER_INVALID, "the path of the export folder is empty");
    if (length >= strlen(PARTIAL_SUFFIX) &&
        strcmp(f->path + length - strlen(PARTIAL_SUFFIX), PARTIAL_SUFFIX) == 0)
        return err_set(
            msg, EMBTIER_INVALID,
            "%s: a name that ends with " PARTIAL_SUFFIX
            " marks an unfinished export, whose files may be removed: choose another name",
            f->path);
    return EMBTIER_OK;
}

static enum embtier_err check_free(const struct export_folder *f, struct err_msg *msg)
{
    struct stat info;

    if (fstatat(f->parent, f->name, &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0)
        return err_set(msg, EMBTIER_EXISTS,
                       "%s already exists; an export makes a new folder: choose another path",
                       f->path);
    return errno == ENOENT ? EMBTIER_OK : err_set_errno(msg, errno, "%s", f->path);
}

static enum embtier_err refuse_busy(const struct export_folder *f, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_LOCKED, "%s: another export is in progress there", f->partial_path);
}

/* Another export may have removed its folder between our open and our lock. */
static enum embtier_err check_still_there(const struct export_folder *f, int fd,
                                          struct err_msg *msg)
{
    struct stat named, locked;

    if (fstat(fd, &locked) != 0 ||
        fstatat(f->parent, f->partial_name, &named, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? refuse_busy(f, msg)
                               : err_set_errno(msg, errno, "folder %s", f->partial_path);
    return named.st_dev == locked.st_dev && named.st_ino == locked.st_ino ? EMBTIER_OK
                                                                          : refuse_busy(f, msg);
}

static enum embtier_err lock_partial(struct export_folder *f, struct err_msg *msg)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    _cleanup_(closep) int fd = openat(f->parent, f->partial_name, flags);

    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(msg, EMBTIER_EXISTS, "%s already exists and is not a folder",
                       f->partial_path);
    if (fd < 0)
        return err_set_errno(msg, errno, "folder %s", f->partial_path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? refuse_busy(f, msg)
                                    : err_set_errno(msg, errno, "cannot lock %s", f->partial_path);
    TRY(check_still_there(f, fd, msg));
    f->partial = TAKE_FD(fd);
    return EMBTIER_OK;
}

/* Looks at everything before it removes anything. */
static enum embtier_err take_inner(struct export_folder *f, struct err_msg *msg)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    _cleanup_(closep) int fd = -1;
    int why;

    if (mkdirat(f->partial, EXPORT_FOLDER_NAME, 0777) != 0 && errno != EEXIST)
        return err_set_errno(msg, errno, "folder in %s", f->partial_path);
    fd = openat(f->partial, EXPORT_FOLDER_NAME, flags);
    if (fd < 0)
        return err_set_errno(msg, errno, "folder in %s", f->partial_path);
    TRY(check_names(f, fd, S_IFREG, is_file_of_export, msg));
    why = remove_files(fd);
    if (why != 0)
        return err_set_errno(msg, why, "cannot remove the files of an unfinished export in %s",
                             f->partial_path);
    f->inner = TAKE_FD(fd);
    return EMBTIER_OK;
}

static enum embtier_err make(struct export_folder *f, struct err_msg *msg)
{
    bool is_new;

    f->parent = open(f->parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->parent < 0 && errno == ENOENT)
        return err_set(
            msg, EMBTIER_NOT_FOUND,
            "folder %s: No such file or directory: make it first, or choose another path",
            f->parent_path);
    if (f->parent < 0)
        return err_set_errno(msg, errno, "folder %s", f->parent_path);
    TRY(check_free(f, msg));
    is_new = mkdirat(f->parent, f->partial_name, 0777) == 0;
    if (!is_new && errno != EEXIST)
        return err_set_errno(msg, errno, "folder %s", f->partial_path);
    TRY(lock_partial(f, msg));
    if (!is_new)
        TRY(check_this_users(f, f->partial, "", S_IFDIR, msg));
    TRY(check_names(f, f->partial, S_IFDIR, is_inner, msg));
    f->is_ours = true;
    return take_inner(f, msg);
}

enum embtier_err export_folder_new(const char *path, struct export_folder **ret_folder,
                                   struct err_msg *msg)
{
    _cleanup_(export_folder_freep) struct export_folder *f = calloc(1, sizeof(*f));

    if (!f)
        return no_memory(msg);
    f->parent = f->partial = f->inner = -1;
    TRY(make_paths(f, path, msg));
    TRY(check_path(f, msg));
    TRY(make(f, msg));
    *ret_folder = TAKE(f);
    return EMBTIER_OK;
}

int export_folder_fd(const struct export_folder *folder)
{
    return folder->inner;
}

/* ---- The end ---- */

enum embtier_err export_folder_finish(struct export_folder *f, struct err_msg *msg)
{
    int rc = renameat2(f->partial, EXPORT_FOLDER_NAME, f->parent, f->name, RENAME_NOREPLACE);

    if (rc != 0 && errno == EINVAL) { /* NFS cannot; this replaces an empty folder at most */
        TRY(check_free(f, msg));
        rc = renameat(f->partial, EXPORT_FOLDER_NAME, f->parent, f->name);
    }
    if (rc != 0)
        return err_set_errno(msg, errno, "cannot rename %s to %s", f->partial_path, f->path);
    f->has_name = true;
    unlinkat(f->parent, f->partial_name,
             AT_REMOVEDIR); /* fails if another program has put something there */
    TRY(tensor_io_sync(f->parent, f->parent_path, msg));
    f->is_finished = true;
    return EMBTIER_OK;
}

static void remove_unfinished(const struct export_folder *f)
{
    if (f->inner >= 0)
        remove_files(f->inner);
    if (f->has_name)
        unlinkat(f->parent, f->name, AT_REMOVEDIR);
    else if (f->inner >= 0)
        unlinkat(f->partial, EXPORT_FOLDER_NAME, AT_REMOVEDIR);
    if (f->is_ours && !f->has_name)
        unlinkat(f->parent, f->partial_name, AT_REMOVEDIR);
}

void export_folder_free(struct export_folder *f)
{
    if (!f)
        return;
    if (!f->is_finished)
        remove_unfinished(f);
    closep(&f->inner);
    closep(&f->partial); /* other exports may lock it from here on */
    closep(&f->parent);
    free(f->parent_path);
    free(f->partial_path);
    free(f->path);
    free(f);
}
