/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/logs/log_marks.h"

#include <endian.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "store/files/durable_file.h"
#include "store/files/summed_json.h"

#define MAGIC       "embtier\x01" /* the last byte is the version */
#define MAGIC_BYTES 8
#define NOTE_SUFFIX ".marks"
#define BOOT_ID     "/proc/sys/kernel/random/boot_id"
#define BOOT_BYTES  40

struct mark {
    char magic[MAGIC_BYTES];
    uint64_t first_le;
    uint64_t log_le;
    uint64_t bytes_le;
    uint64_t hash_le;
};
_Static_assert(sizeof(struct mark) == LOG_MARK_BYTES, "it is written so");

static uint64_t hash_of(const struct log_marks *marks, const struct log_position *position)
{
    const uint64_t numbers[] = { position->first, position->log, position->bytes };
    uint64_t hash = 0;

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        hash = row_hash(&marks->hasher, marks->shard ^ (uint32_t)(hash >> 32),
                        numbers[i] ^ hash << 32);
    return hash;
}

void log_mark_make(const struct log_marks *marks, const struct log_position *position,
                   unsigned char ret_mark[static LOG_MARK_BYTES])
{
    struct mark mark = { .first_le = htole64(position->first),
                         .log_le = htole64(position->log),
                         .bytes_le = htole64(position->bytes),
                         .hash_le = htole64(hash_of(marks, position)) };

    memcpy(mark.magic, MAGIC, MAGIC_BYTES);
    memcpy(ret_mark, &mark, sizeof(mark));
}

static bool is_further(const struct log_position *one, const struct log_position *other)
{
    if (one->log != other->log)
        return one->log > other->log;
    return one->bytes != other->bytes ? one->bytes > other->bytes : one->first > other->first;
}

void log_marks_find(const struct log_marks *marks, const unsigned char *bytes, size_t count,
                    struct log_position *position)
{
    const unsigned char *const end = bytes + count;
    const unsigned char *at = bytes;

    while ((size_t)(end - at) >= LOG_MARK_BYTES &&
           (at = memmem(at, (size_t)(end - at), MAGIC, MAGIC_BYTES)) &&
           (size_t)(end - at) >= LOG_MARK_BYTES) {
        struct log_position found;
        struct mark mark;

        memcpy(&mark, at, sizeof(mark));
        found = (struct log_position){ le64toh(mark.first_le), le64toh(mark.log_le),
                                       le64toh(mark.bytes_le) };
        if (le64toh(mark.hash_le) == hash_of(marks, &found) && is_further(&found, position))
            *position = found;
        at++;
    }
}

bool log_position_covers(const struct log_position *position, uint64_t log, uint64_t at)
{
    return log >= position->first &&
           (log < position->log || (log == position->log && at < position->bytes));
}

/* ---- The note ---- */

/* Returns an empty text if there is none. */
static void boot_id(char ret_id[static BOOT_BYTES])
{
    _cleanup_(closep) int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, ret_id, BOOT_BYTES - 1) : -1;

    ret_id[bytes > 0 ? bytes : 0] = '\0';
    ret_id[strcspn(ret_id, "\n")] = '\0';
}

struct note_place {
    char *folder;
    char *name;
    char *path;
};

static void note_place_clear(struct note_place *place)
{
    free(place->folder);
    free(place->name);
    free(place->path);
}

/* Returns the note's place beside the database. @path has a folder: store.c has joined it from
 * one. */
static enum embtier_err note_place(const char *path, struct note_place *ret_place,
                                   struct err_msg *msg)
{
    const char *const slash = strrchr(path, '/');

    ret_place->folder = strndup(path, (size_t)(slash - path));
    if (asprintf(&ret_place->name, "%s%s", slash + 1, NOTE_SUFFIX) < 0)
        ret_place->name = NULL;
    if (asprintf(&ret_place->path, "%s%s", path, NOTE_SUFFIX) < 0)
        ret_place->path = NULL;
    if (ret_place->folder && ret_place->name && ret_place->path)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
}

/* *@ret_root is NULL if the note is missing or damaged. */
static enum embtier_err note_load(const struct note_place *place, json_t **ret_root,
                                  struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    const enum embtier_err err = durable_file_read(place->folder, place->name, &text, msg);

    *ret_root = NULL;
    if (err == EMBTIER_NOT_FOUND || err == EMBTIER_CORRUPT)
        return EMBTIER_OK;
    TRY(err);
    if (summed_json_check(place->path, text, true, NULL) == EMBTIER_OK)
        *ret_root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    return EMBTIER_OK;
}

static void note_parse(const json_t *root, const char *boot, struct log_note *ret_note)
{
    const json_t *const first_log = json_object_get(root, "first_log");
    const char *const noted = json_string_value(json_object_get(root, "boot"));

    *ret_note = (struct log_note){ .first_log = UINT64_MAX, .same_boot = true };
    if (!json_is_integer(first_log) || !noted)
        return;
    ret_note->first_log = (uint64_t)json_integer_value(first_log);
    ret_note->same_boot = !*noted || !*boot || strcmp(noted, boot) == 0;
}

enum embtier_err log_note_read(const char *path, struct log_note *ret_note, struct err_msg *msg)
{
    _cleanup_(note_place_clear) struct note_place place = { 0 };
    _cleanup_(json_decrefp) json_t *root = NULL;
    char boot[BOOT_BYTES];

    TRY(note_place(path, &place, msg));
    TRY(note_load(&place, &root, msg));
    boot_id(boot);
    note_parse(root, boot, ret_note);
    return EMBTIER_OK;
}

enum embtier_err log_note_write(const char *path, uint64_t first_log, struct err_msg *msg)
{
    _cleanup_(note_place_clear) struct note_place place = { 0 };
    _cleanup_(json_decrefp) json_t *root = NULL;
    _cleanup_(json_decrefp) json_t *before = NULL;
    char boot[BOOT_BYTES];
    struct log_note note;

    TRY(note_place(path, &place, msg));
    TRY(note_load(&place, &before, msg));
    boot_id(boot);
    note_parse(before, boot, &note);
    if (note.first_log <= first_log && note.same_boot)
        return EMBTIER_OK;
    root = json_pack("{s:s, s:I, s:s}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "first_log",
                     (json_int_t)MIN(note.first_log, first_log), "boot", boot);
    return summed_json_write(place.folder, place.name, root, msg);
}
