/* SPDX-License-Identifier: Apache-2.0 */
#include "store/catalog_journal.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/spec/table_spec_json.h"
#include "store/catalog_file.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/files/summed_json.h"

#define NAME_START   "catalog-"
#define NAME_END     ".jsonl"
#define SECTOR_BYTES 512 /* a disk writes this much whole */

struct name {
    char text[40];
};

static struct name name_of(uint32_t number)
{
    struct name name;

    snprintf(name.text, sizeof(name.text), NAME_START "%06" PRIu32 NAME_END, number);
    return name;
}

/* Takes @value, the value of @key. */
static enum embtier_err make_line(const char *directory, const char *name, uint32_t number,
                                  const char *key, json_t *value, char **ret_line,
                                  struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root =
        json_pack("{s:s, s:I, s:o}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "line", (json_int_t)number,
                  key, value);

    return summed_json_line(directory, name, root, ret_line, msg);
}

enum embtier_err catalog_journal_make(const char *directory, uint32_t number,
                                      struct catalog_journal *ret_journal, struct err_msg *msg)
{
    const struct name name = name_of(number);
    _cleanup_(freep) char *line = NULL;

    TRY(make_line(directory, name.text, 0, "journal", json_integer((json_int_t)number), &line,
                  msg));
    TRY(durable_file_write(directory, name.text, line, msg));
    *ret_journal =
        (struct catalog_journal){ .number = number, .line_count = 1, .bytes = strlen(line) };
    return EMBTIER_OK;
}

enum embtier_err catalog_journal_add(const char *directory, struct catalog_journal *journal,
                                     json_t *change, struct err_msg *msg)
{
    const struct name name = name_of(journal->number);
    _cleanup_(freep) char *line = NULL;
    enum embtier_err err;
    bool cut;

    assert(journal->line_count > 0 && !journal->is_unsure);
    TRY(make_line(directory, name.text, journal->line_count, "change", change, &line, msg));
    err = durable_file_append(directory, name.text, journal->bytes, line, &cut, msg);
    if (err != EMBTIER_OK) {
        journal->is_unsure = !cut;
        return err;
    }
    journal->bytes += strlen(line);
    journal->line_count++;
    return EMBTIER_OK;
}

/* ---- Reading ---- */

struct reading {
    struct name name;
    const char *directory;
    enum embtier_err (*apply)(void *context, const json_t *change, struct err_msg *msg);
    void *context;
    struct catalog_journal journal;
};

/* True if a sector of the file's bytes [@from, @end) never reached the disk: all its bytes in that
 * range are zeros. A single zero byte is no hole: a flipped bit turns a space into one. */
static bool has_hole(const char *text, size_t from, size_t end)
{
    for (size_t at = from; at < end;) {
        const size_t next = MIN(align_up(at + 1, SECTOR_BYTES), end);
        size_t zeros = at;

        while (zeros < next && text[zeros] == '\0')
            zeros++;
        if (zeros == next)
            return true;
        at = next;
    }
    return false;
}

/* True if the bytes from @from to the end were being written when power failed. They are the last
 * line. If only its newline byte is wrong, the line was written completely, so that is damage. */
static bool is_torn(char *text, size_t from, size_t end)
{
    char last;
    bool whole;

    if (has_hole(text, from, end))
        return true;
    if (text[end - 1] == '\n')
        return false;
    last = text[end - 1];
    text[end - 1] = '\0';
    whole = summed_json_is_whole(text + from);
    text[end - 1] = last;
    return !whole;
}

static enum embtier_err damaged(const struct reading *reading, const char *why, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_CORRUPT, "%s/%s:%" PRIu32 ": damaged: %s" CATALOG_WAY_OUT,
                   reading->directory, reading->name.text, reading->journal.line_count + 1, why);
}

/* The caller has checked the checksum of @line. */
static enum embtier_err read_line(struct reading *reading, const char *line, struct err_msg *msg)
{
    _cleanup_(json_decrefp) json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    uint32_t number = 0;

    if (!root || !json_to_u32(json_object_get(root, "line"), &number))
        return damaged(reading, "not a line of a journal", msg);
    if (number != reading->journal.line_count)
        return damaged(reading, "a line is missing", msg);
    if (number > 0)
        return reading->apply(reading->context, json_object_get(root, "change"), msg);
    if (!json_to_u32(json_object_get(root, "journal"), &number) ||
        number != reading->journal.number)
        return damaged(reading, "it is another journal", msg);
    return EMBTIER_OK;
}

static enum embtier_err read_lines(struct reading *reading, char *text, size_t bytes,
                                   struct err_msg *msg)
{
    size_t at = 0;

    while (at < bytes) {
        char *const newline = memchr(text + at, '\n', bytes - at);
        const size_t end = newline ? (size_t)(newline - text) : bytes;
        bool whole;

        if (newline)
            *newline = '\0';
        whole = newline && strlen(text + at) == end - at && summed_json_is_whole(text + at);
        if (whole)
            TRY(read_line(reading, text + at, msg));
        if (newline)
            *newline = '\n';
        if (!whole) {
            /* The first line is written before catalog.json names the journal. A later line proves
             * that this one was acknowledged. */
            if (at == 0 || (newline && end + 1 < bytes) || !is_torn(text, at, bytes))
                return damaged(reading, "the checksum of the line is wrong", msg);
            reading->journal.is_unsure = true;
            break;
        }
        at = end + 1;
        reading->journal.line_count++;
        reading->journal.bytes = at;
    }
    return reading->journal.line_count > 0 ? EMBTIER_OK : damaged(reading, "it is empty", msg);
}

enum embtier_err catalog_journal_read(const char *directory, uint32_t number,
                                      enum embtier_err (*apply)(void *context, const json_t *change,
                                                                struct err_msg *msg),
                                      void *context, struct catalog_journal *ret_journal,
                                      struct err_msg *msg)
{
    struct reading reading = { .name = name_of(number),
                               .directory = directory,
                               .apply = apply,
                               .context = context,
                               .journal.number = number };
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;
    const enum embtier_err err =
        durable_file_read_bytes(directory, reading.name.text, &text, &bytes, msg);

    if (err == EMBTIER_NOT_FOUND)
        return err_set(msg, EMBTIER_CORRUPT, "%s/%s: missing" CATALOG_WAY_OUT, directory,
                       reading.name.text);
    TRY(err);
    TRY(read_lines(&reading, text, bytes, msg));
    *ret_journal = reading.journal;
    return EMBTIER_OK;
}

/* ---- Removing ---- */

static bool is_journal(const char *name)
{
    const size_t length = strlen(name);

    return strncmp(name, NAME_START, strlen(NAME_START)) == 0 &&
           length > strlen(NAME_START NAME_END) && strstr(name, NAME_END);
}

void catalog_journal_sweep(const char *directory, uint32_t number)
{
    const struct name kept = name_of(number);
    DIR *const folder = opendir(directory);
    enum embtier_err err = EMBTIER_OK;
    const struct dirent *file;

    if (!folder)
        return;
    while ((file = folder_next(folder, directory, &err, NULL)) && err == EMBTIER_OK)
        if (is_journal(file->d_name) && strcmp(file->d_name, kept.text) != 0)
            (void)unlinkat(dirfd(folder), file->d_name, 0);
    closedir(folder);
}
