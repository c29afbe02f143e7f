/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/support/bundle_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/text/text_escape.h"
#include "tools/cli/support/bundle_files.h"

#define DEPTH_MAX 3 /* DIRECTORY/shard-0003/replay/LOG */

/* The first line of a file whose beginning is left out may begin inside of a secret. */
static void add_whole_lines(struct bundle_files *files, const char *name, char *text, size_t bytes,
                            bool is_cut)
{
    const char *const line = is_cut ? memchr(text, '\n', bytes) : NULL;
    const size_t left_out = line ? (size_t)(line - text) + 1 : is_cut ? bytes : 0;

    bundle_files_add(files, name, text + left_out, bytes - left_out);
}

/* Adds the last @bytes_max of a file. A link at @path is not followed if it is in a folder that the
 * server's user can write: root may run this command. */
static void add_end(struct bundle_files *files, const char *path, int flags, size_t bytes_max,
                    const char *name)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    _cleanup_(freep) char *text = NULL;
    struct err_msg msg;
    struct stat facts;
    size_t bytes;
    ssize_t count;

    if (fd < 0 || fstat(fd, &facts) != 0) {
        err_write_errno(&msg, errno, "%s", TEXT_SHOWN(path));
        bundle_files_lack(files, name, msg.text);
        return;
    }
    if (!S_ISREG(facts.st_mode)) {
        bundle_files_lack(files, name, "not a regular file");
        return;
    }
    bytes = MIN((size_t)facts.st_size, bytes_max);
    text = malloc(bytes + 1);
    count = text ? pread(fd, text, bytes, facts.st_size - (off_t)bytes) : -1;
    if (count < 0)
        bundle_files_lack(files, name, "it cannot be read");
    else
        add_whole_lines(files, name, text, (size_t)count, (off_t)bytes < facts.st_size);
}

void bundle_logs_add(struct bundle_files *files, const char *path, const char *name)
{
    add_end(files, path, 0, BUNDLE_LOG_BYTES, name);
}

static void add_rocksdb_log(struct bundle_files *files, const FTSENT *entry, const char *directory,
                            unsigned index)
{
    char name[NAME_MAX + 1];
    const char *below = entry->fts_path + strlen(directory);

    below += strspn(below, "/");
    snprintf(name, sizeof(name), "rocksdb-%u/%s", index, below);
    add_end(files, entry->fts_path, O_NOFOLLOW, BUNDLE_ROCKSDB_BYTES, name);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void lack_logs(struct bundle_files *files, unsigned index, const char *why)
{
    char name[32];

    snprintf(name, sizeof(name), "rocksdb-%u", index);
    bundle_files_lack(files, name, why);
}

static void add_rocksdb_logs(struct bundle_files *files, const char *directory, unsigned index,
                             unsigned *count)
{
    char *const paths[] = { (char *)(uintptr_t)directory, NULL };
    FTS *const walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    FTSENT *entry;

    while (walk && (entry = fts_read(walk))) {
        if (entry->fts_level > DEPTH_MAX)
            (void)fts_set(walk, entry, FTS_SKIP);
        if (entry->fts_info != FTS_F || strcmp(entry->fts_name, "LOG") != 0)
            continue;
        if (*count == BUNDLE_ROCKSDB_COUNT) {
            lack_logs(files, index,
                      "the other LOGs are left out: a bundle has a limited number of them");
            break;
        }
        (*count)++;
        add_rocksdb_log(files, entry, directory, index);
    }
    if (walk)
        fts_close(walk);
}

void bundle_logs_add_rocksdb(struct bundle_files *files, const char *directory, unsigned index,
                             unsigned *count)
{
    struct err_msg msg;

    if (access(directory, R_OK | X_OK) == 0) {
        add_rocksdb_logs(files, directory, index, count);
        return;
    }
    err_write_errno(&msg, errno, "%s", TEXT_SHOWN(directory));
    lack_logs(files, index, msg.text);
}
