/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: the machine that a program looks at: /proc and /sys below a root folder, and the few
 * system calls that no file can stand for. A test has a recorded tree and calls of its own.
 *
 * The readers take a path as printf() does, such as "/proc/swaps". They accept only what they
 * understand wholly: a file that is missing, empty or damaged is false. Thread: any. */
#ifndef EMBTIER_BASE_HOST_HOST_H
#define EMBTIER_BASE_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/macros.h"

struct statx;
struct statvfs;

struct host {
    const char *root; /* "": this machine's own */
    /* All return 0 or an errno. A program that needs look() only may leave the others NULL. */
    int (*look)(const char *path, struct statx *ret_info); /* follows links */
    int (*room)(const char *path, struct statvfs *ret_room);
    int (*may_write)(const char *directory);
    /* Writes a block to a file without a name. EINVAL: the file system has no direct I/O; any
     * other: it cannot be told. */
    int (*try_direct_io)(const char *directory);
    /* Sets a small ring up, and closes it. EOPNOTSUPP: it lacks what Linux 5.15 has. */
    int (*try_ring)(void);
    int (*clock_is_synchronised)(bool *ret_is);
};

/* This machine, with look() only. */
extern const struct host host_files;
/* Its look(). */
int host_look(const char *path, struct statx *ret_info);

#define HOST_LINE_BYTES 512
struct host_line {
    char text[HOST_LINE_BYTES];
};

/* NULL: it cannot be read. */
MUST_CHECK FILE *host_open(const struct host *host, const char *format, ...) PRINTF_LIKE(2, 3);
MUST_CHECK bool host_exists(const struct host *host, const char *format, ...) PRINTF_LIKE(2, 3);
/* The first line, without its end. False also if it is empty or too long. */
MUST_CHECK bool host_line(const struct host *host, struct host_line *ret_line, const char *format,
                          ...) PRINTF_LIKE(3, 4);
/* A file with one decimal number. */
MUST_CHECK bool host_number(const struct host *host, uint64_t *ret_number, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* The last part of the path that a symbolic link names. */
MUST_CHECK bool host_link_name(const struct host *host, struct host_line *ret_name,
                               const char *format, ...) PRINTF_LIKE(3, 4);
/* The number behind "@key " or "@key:" at the beginning of a line of a file such as
 * /proc/meminfo. */
MUST_CHECK bool host_field(const struct host *host, const char *key, uint64_t *ret_number,
                           const char *format, ...) PRINTF_LIKE(4, 5);
/* The choice in brackets of a line such as "always [madvise] never". */
MUST_CHECK bool host_choice(const struct host *host, struct host_line *ret_choice,
                            const char *format, ...) PRINTF_LIKE(3, 4);

/* Names in a folder that begin with a prefix, in the order of their numbers. */
struct host_names {
    char **names;
    size_t count;
};
/* An empty list if there is no such folder. */
void host_names_read(const struct host *host, const char *prefix, struct host_names *ret_names,
                     const char *format, ...) PRINTF_LIKE(4, 5);
void host_names_clear(struct host_names *names);

/* Parses all of @text as a decimal number of 64 bits. */
MUST_CHECK bool host_parse_number(const char *text, uint64_t *ret_number);

#endif
