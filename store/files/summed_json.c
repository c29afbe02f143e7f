/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/summed_json.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_after.h"
#include "store/files/durable_file.h"
#include "store/rocksdb/rocksdb_ext.h"

#define BEFORE_SUM "\"" SUMMED_JSON_KEY "\": \""
#define SUM_CHARS  (sizeof(SUMMED_JSON_NONE) - 1)

/* Returns the place of the checksum's digits in @text; NULL if its first member is none. Records
 * within have sums of their own. */
static char *find_sum(const char *text)
{
    const char *const sum = text_after(text + strspn(text, "{ \n"), BEFORE_SUM);

    return sum && strlen(sum) >= SUM_CHARS ? (char *)(uintptr_t)sum : NULL;
}

/* Computes the checksum of @text with zeros in place of @digits, which are in it. */
static void make_sum(const char *text, const char *digits, char ret_digits[SUM_CHARS + 1])
{
    struct rocksdb_ext_sum *const sum = rocksdb_ext_sum_new();

    rocksdb_ext_sum_add(sum, text, (size_t)(digits - text));
    rocksdb_ext_sum_add(sum, SUMMED_JSON_NONE, SUM_CHARS);
    rocksdb_ext_sum_add(sum, digits + SUM_CHARS, strlen(digits + SUM_CHARS));
    snprintf(ret_digits, SUM_CHARS + 1, "%08" PRIx32, rocksdb_ext_sum_end(sum));
}

static char *to_text(const json_t *root, size_t flags)
{
    return root ? json_dumps(root, flags | JSON_REAL_PRECISION(17)) : NULL;
}

/* Returns @root as text with its checksum, malloced. */
static enum embtier_err make_text(const json_t *root, size_t flags, const char *directory,
                                  const char *name, char **ret_text, struct err_msg *msg)
{
    _cleanup_(freep) char *text = to_text(root, flags);
    char *const digits = text ? find_sum(text) : NULL;
    char sum[SUM_CHARS + 1];

    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s/%s: out of memory", directory, name);
    if (!digits)
        return err_set(msg, EMBTIER_INTERNAL, "%s/%s: no place for its checksum", directory, name);
    make_sum(text, digits, sum);
    memcpy(digits, sum, SUM_CHARS);
    *ret_text = TAKE(text);
    return EMBTIER_OK;
}

enum embtier_err summed_json_write(const char *directory, const char *name, const json_t *root,
                                   struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;

    TRY(make_text(root, JSON_INDENT(2), directory, name, &text, msg));
    return durable_file_write(directory, name, text, msg);
}

enum embtier_err summed_json_line(const char *directory, const char *name, const json_t *root,
                                  char **ret_line, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    char *line = NULL;

    TRY(make_text(root, 0, directory, name, &text, msg));
    if (asprintf(&line, "%s\n", text) < 0)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s/%s: out of memory", directory, name);
    *ret_line = line;
    return EMBTIER_OK;
}

bool summed_json_is_whole(const char *text)
{
    const char *const digits = find_sum(text);
    char sum[SUM_CHARS + 1];

    if (!digits)
        return false;
    make_sum(text, digits, sum);
    return memcmp(digits, sum, SUM_CHARS) == 0;
}

enum embtier_err summed_json_check(const char *path, const char *text, bool is_needed,
                                   struct err_msg *msg)
{
    const char *const digits = find_sum(text);
    char sum[SUM_CHARS + 1];

    if (!digits)
        return is_needed ? err_set(msg, EMBTIER_CORRUPT, "%s: damaged: it has no checksum", path)
                         : EMBTIER_OK;
    make_sum(text, digits, sum);
    if (memcmp(digits, sum, SUM_CHARS) != 0)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: damaged: its checksum is %s instead of %.*s (a file that was changed "
                       "by hand is not accepted)",
                       path, sum, (int)SUM_CHARS, digits);
    return EMBTIER_OK;
}

bool summed_json_seal(json_t *record)
{
    _cleanup_(freep) char *text = to_text(record, 0);
    const char *const digits = text ? find_sum(text) : NULL;
    char sum[SUM_CHARS + 1];

    if (!digits)
        return false;
    make_sum(text, digits, sum);
    return json_object_set_new(record, SUMMED_JSON_KEY, json_string(sum)) == 0;
}

bool summed_json_is_sealed(const json_t *record)
{
    _cleanup_(freep) char *text = to_text(record, 0);

    return text && summed_json_is_whole(text);
}
