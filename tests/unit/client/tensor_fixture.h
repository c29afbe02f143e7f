/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_fixture.h: a temporary folder of tensor files. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_CLIENT_TENSOR_FIXTURE_H
#define EMBTIER_TESTS_UNIT_CLIENT_TENSOR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/files/tensor_file.h"

struct tensor_fixture {
    char folder[128];
    int fd; /* the folder's */
    char path[512];
    struct err_msg msg;
};

static inline void must(enum embtier_err err, const struct err_msg *msg)
{
    if (err != EMBTIER_OK)
        fail_msg("%s: %s", err_name(err), msg->text);
}

static inline void assert_holds(const struct err_msg *msg, const char *reason)
{
    if (!strstr(msg->text, reason))
        fail_msg("`%s` does not hold `%s`", msg->text, reason);
}

/* Opens the path again, after something else was put there. */
static inline void fixture_reopen(struct tensor_fixture *f)
{
    closep(&f->fd);
    f->fd = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->fd >= 0);
}

static inline struct tensor_fixture *fixture_new(void)
{
    const char *const temporary = getenv("TMPDIR");
    struct tensor_fixture *const f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->fd = -1;
    snprintf(f->folder, sizeof(f->folder), "%s/embtier-tensors-XXXXXX",
             temporary ? temporary : "/tmp");
    assert_non_null(mkdtemp(f->folder));
    fixture_reopen(f);
    return f;
}

static inline const char *path_of(struct tensor_fixture *f, const char *name)
{
    snprintf(f->path, sizeof(f->path), "%s/%s", f->folder, name);
    return f->path;
}

/* Counts the files, and removes them if @remove. */
static inline uint32_t walk_files(struct tensor_fixture *f, bool remove)
{
    DIR *const folder = opendir(f->folder);
    const struct dirent *entry;
    uint32_t count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (remove)
            assert_int_equal(unlinkat(f->fd, entry->d_name, 0), 0);
    }
    closedir(folder);
    return count;
}

static inline uint32_t files_in(struct tensor_fixture *f)
{
    return walk_files(f, false);
}

/* Also removes a file system that a test mounted there. */
static inline void fixture_free(struct tensor_fixture *f)
{
    walk_files(f, true);
    closep(&f->fd);
    (void)umount2(f->folder, MNT_DETACH);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
}

static inline uint64_t bytes_of(struct tensor_fixture *f, const char *name)
{
    struct stat info;

    assert_int_equal(stat(path_of(f, name), &info), 0);
    return (uint64_t)info.st_size;
}

/* Makes a new file each time: some file systems wait for the disk when a file is cut and written
 * again. */
static inline void put_file(struct tensor_fixture *f, const char *name, const void *bytes,
                            size_t count)
{
    _cleanup_(closep) int fd = -1;

    (void)unlink(path_of(f, name));
    fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
}

static inline struct tensor_reader *open_of(struct tensor_fixture *f, const char *name)
{
    struct tensor_reader *r = NULL;

    must(tensor_reader_open(path_of(f, name), &r, &f->msg), &f->msg);
    return r;
}

#endif
