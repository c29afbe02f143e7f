/* SPDX-License-Identifier: Apache-2.0 */
/* access_fixture.h: an access file in a folder of its own. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_DAEMON_ACCESS_ACCESS_FIXTURE_H
#define EMBTIER_TESTS_UNIT_DAEMON_ACCESS_ACCESS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/access/access_rules.h"

/* Tokens of tests, and the hashes that `printf %s TOKEN | sha256sum` prints. */
#define TOKEN_A "embt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define HASH_A  "sha256:" HEX_A
#define TOKEN_B "embt_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
#define HASH_B  "sha256:" HEX_B
#define HEX_A   "f85b94fde8daf5415b0d5b77c004acf2c09418359676c537b1fe99e601c95e26"
#define HEX_B   "6bcb999141d5a47a23faf11762c6306a3c4ef6929371bf447a8bb6a7ef75659f"
#define TOKEN_C "embt_-_0123456789-_0123456789-_0123456789-_01234"
#define HASH_C  "sha256:" HEX_C
#define HEX_C   "560c7564b9f5c876b8a806a105f9d9e026f2c2b813045b02539e242ec1084ab7"

struct access_fixture {
    char folder[64];
    char path[96];
};

static inline void access_fixture_open(struct access_fixture *f)
{
    snprintf(f->folder, sizeof(f->folder), "/tmp/embtier-access-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/access.yaml", f->folder);
}

static inline void access_fixture_close(const struct access_fixture *f)
{
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
}

/* Replaces the file as an editor does, and gives it a mode that only its owner may write. */
static inline void access_fixture_write(const struct access_fixture *f, const char *text)
{
    FILE *file;

    (void)unlink(f->path);
    file = fopen(f->path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(f->path, 0640), 0);
}

/* ---- The fixture of each test ---- */

static struct access_fixture fixture;

static inline int open_fixture(void **state)
{
    (void)state;
    access_fixture_open(&fixture);
    return 0;
}

static inline int close_fixture(void **state)
{
    (void)state;
    access_fixture_close(&fixture);
    return 0;
}

#endif
