/* SPDX-License-Identifier: Apache-2.0 */
#include "store/rocksdb/rocksdb_err.h"

#include <errno.h>
#include <rocksdb/c.h>
#include <string.h>

/* The first match counts, so causes come before the kinds that contain them. */
static const struct {
    const char *start;
    enum embtier_err err;
} error_starts[] = {
    { "IO error: No space left on device", EMBTIER_NO_SPACE },
    { "IO error: Space limit reached", EMBTIER_NO_SPACE },
    { "IO error: lock ", EMBTIER_LOCKED },
    { "IO error: While lock file", EMBTIER_LOCKED },
    { "IO error: No such file or directory", EMBTIER_CORRUPT },
    { "IO error", EMBTIER_IO },
    { "Corruption", EMBTIER_CORRUPT },
    { "NotFound", EMBTIER_NOT_FOUND },
    { "Not implemented", EMBTIER_UNSUPPORTED },
    { "Invalid argument", EMBTIER_INVALID },
    { "Result incomplete", EMBTIER_BUSY }, /* a write that would have had to wait */
    { "Resource busy", EMBTIER_BUSY },
    { "Operation failed. Try again.", EMBTIER_BUSY },
    { "Operation timed out", EMBTIER_TIMEOUT },
    { "Operation aborted: Memory limit reached", EMBTIER_NO_MEMORY },
    { "Operation aborted", EMBTIER_BUSY },
    { "Operation expired", EMBTIER_TIMEOUT },
    { "Shutdown in progress", EMBTIER_SHUTDOWN },
    { "Compaction too large", EMBTIER_NO_SPACE },
};

/* RocksDB has its own kind for few system errors. It reports others as "IO error: While ...:
 * FILE: TEXT", with the system's text. */
static const int error_ends[] = { ENOSPC, EDQUOT, EFBIG };

/* Begins each error about a table file that cannot be examined, for any reason. */
#define NO_ACCESS "Corruption: Can't access "

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcmp(text + length - end_length, end) == 0 &&
           text[length - end_length - 1] == ' ';
}

static enum embtier_err err_of_end(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(error_ends); i++)
        if (ends_with(text, strerror(error_ends[i])))
            return err_from_errno(error_ends[i]);
    return EMBTIER_IO;
}

enum embtier_err rocksdb_err(const char *text)
{
    const char *const cause =
        strncmp(text, NO_ACCESS, strlen(NO_ACCESS)) == 0 ? strstr(text, "IO error") : NULL;

    if (cause)
        text = cause;
    for (size_t i = 0; i < ARRAY_LEN(error_starts); i++)
        if (strncmp(text, error_starts[i].start, strlen(error_starts[i].start)) == 0)
            return error_starts[i].err == EMBTIER_IO ? err_of_end(text) : error_starts[i].err;
    return EMBTIER_INTERNAL;
}

enum embtier_err rocksdb_err_take(char *text, const char *where, struct err_msg *msg)
{
    enum embtier_err err;

    if (!text)
        return EMBTIER_OK;
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    err = err_set(msg, rocksdb_err(text), "%s: %s", where, text);
    rocksdb_free(text);
    return err;
}
