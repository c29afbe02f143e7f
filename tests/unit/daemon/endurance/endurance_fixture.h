/* SPDX-License-Identifier: Apache-2.0 */
/* endurance_fixture.h: a folder that holds a machine's files, and a store's directory. */
#ifndef EMBTIER_TESTS_ENDURANCE_FIXTURE_H
#define EMBTIER_TESTS_ENDURANCE_FIXTURE_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static inline void root_path(const char *path, char ret_path[PATH_MAX])
{
    assert_true(snprintf(ret_path, PATH_MAX, "%s%s", root, path) < PATH_MAX);
    for (char *at = ret_path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(ret_path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
}

static inline void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *file;

    root_path(path, full);
    file = fopen(full, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static inline void put_link(const char *path, const char *target)
{
    char full[PATH_MAX];

    root_path(path, full);
    assert_int_equal(symlink(target, full), 0);
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void make_root(void)
{
    snprintf(root, sizeof(root), "%.40s/endurance-XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) <= 40 ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(root));
}

static inline int remove_root(void)
{
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
