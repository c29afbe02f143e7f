/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/plan/plan_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/new_file.h"
#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "placement/plan/plan_keys.h"

/* The longest figure with its key, comma and blanks, and all of a table that is no figure. */
#define FIGURE_BYTES_MAX 48
#define TABLE_TEXT_BYTES 1536
_Static_assert(PLAN_TABLES_MAX *(TABLE_TEXT_BYTES + PLAN_PARTS_MAX * 18 * FIGURE_BYTES_MAX) <
                   PLAN_FILE_BYTES_MAX,
               "a plan of the most tables can be read back");

/* ---- Writing ---- */

/* Writes keys as lines of a block; @first stands before the first one, @rest before the others. */
static void write_block(const struct plan_key *keys, const void *from, const char *first,
                        const char *rest, FILE *file)
{
    const char *before = first;

    for (const struct plan_key *key = keys; key->name; key++) {
        if (!plan_key_is_set(key, from, PLAN_HBM))
            continue;
        fputs(before, file);
        plan_key_write(key, from, 0, file);
        fputc('\n', file);
        before = rest;
    }
}

/* Writes keys as a line. */
static void write_line(const struct plan_key *keys, const void *from, enum plan_home home,
                       uint32_t tier_count, const char *indent, FILE *file)
{
    const char *before = "{";

    fprintf(file, "%s- ", indent);
    for (const struct plan_key *key = keys; key->name; key++) {
        if (!plan_key_is_set(key, from, home))
            continue;
        fputs(before, file);
        plan_key_write(key, from, tier_count, file);
        before = ", ";
    }
    fputs("}\n", file);
}

static void write_table(const struct plan_table *table, uint32_t tier_count, FILE *file)
{
    write_block(plan_table_keys, table, "  - ", "    ", file);
    fputs("    parts:\n", file);
    for (uint32_t i = 0; i < table->part_count; i++)
        write_line(plan_part_keys, &table->parts[i], table->parts[i].home, tier_count, "      ",
                   file);
}

void plan_file_write(const struct plan *plan, FILE *file)
{
    fprintf(file, "format: %s\nversion: %d\n", PLAN_FILE_FORMAT, PLAN_FILE_VERSION);
    write_block(plan_keys, plan, "", "", file);
    fputs(plan->input_count > 0 ? "inputs:\n" : "", file);
    for (uint32_t i = 0; i < plan->input_count; i++)
        write_line(plan_input_keys, &plan->inputs[i], PLAN_HBM, 0, "  ", file);
    fputs("memories:\n", file);
    for (uint32_t i = 0; i < plan->memory_count; i++)
        write_line(plan_memory_keys, &plan->memories[i], PLAN_HBM, 0, "  ", file);
    fputs("tables:\n", file);
    for (uint32_t i = 0; i < plan->table_count; i++)
        write_table(&plan->tables[i], plan->tier_count, file);
}

enum embtier_err plan_file_save(const struct plan *plan, const char *path, struct err_msg *msg)
{
    _cleanup_(new_file_freep) struct new_file *file = NULL;

    TRY(plan_check(plan, msg));
    TRY(new_file_open(path, &file, msg));
    plan_file_write(plan, new_file_stream(file));
    return new_file_finish(file, msg);
}

/* ---- Reading ---- */

struct reading {
    const struct yaml_doc *doc;
    struct err_msg *msg;
    uint32_t tier_count;
    char at[40]; /* "tables[3].parts[0]." */
};

#define mistake(reading, name, ...)                                                                \
    yaml_doc_mistake((reading)->doc, key_at(reading, name, &(struct key_text){ { 0 } }),           \
                     (reading)->msg, __VA_ARGS__)

struct key_text {
    char text[128];
};

static const char *key_at(const struct reading *reading, const char *name, struct key_text *buffer)
{
    snprintf(buffer->text, sizeof(buffer->text), "%s%s", reading->at, name);
    return buffer->text;
}

static enum embtier_err take_text(const struct reading *reading, const struct plan_key *key,
                                  const char *name, const char *text, uint32_t item, void *into)
{
    if (plan_key_parse(key, text, item, into) == EMBTIER_OK)
        return EMBTIER_OK;
    return mistake(reading, name, "`%s` is not possible; allowed: %s", TEXT_SHOWN(text),
                   plan_key_allowed(key));
}

static enum embtier_err take_list(const struct reading *reading, const struct plan_key *key,
                                  const struct raw_list *raw, void *into)
{
    if (raw->items_count != reading->tier_count)
        return mistake(reading, key->name,
                       "%" PRIu32 " numbers; allowed: %" PRIu32 ", one for each tier",
                       raw->items_count, reading->tier_count);
    for (uint32_t i = 0; i < raw->items_count; i++) {
        struct key_text name;

        snprintf(name.text, sizeof(name.text), "%s[%" PRIu32 "]", key->name, i);
        TRY(take_text(reading, key, name.text, raw->items[i], i, into));
    }
    return EMBTIER_OK;
}

/* Takes a key that belongs where it is. */
static enum embtier_err take_key(const struct reading *reading, const struct plan_key *key,
                                 const void *raw, void *into)
{
    const void *const member = (const char *)raw + key->raw_offset;
    const char *text;

    if (key->type == PLAN_KEY_REALS)
        return take_list(reading, key, member, into);
    text = *(char *const *)member;
    if (text)
        return take_text(reading, key, key->name, text, 0, into);
    if (key->where != KEY_IF_SET)
        return mistake(reading, key->name, "is missing; allowed: %s", plan_key_allowed(key));
    if (key->type == PLAN_KEY_GPU)
        *(uint32_t *)((char *)into + key->offset) = PLAN_NO_GPU;
    return EMBTIER_OK;
}

/* True if the text or list was given. */
static bool is_given(const struct plan_key *key, const void *raw)
{
    return *(void *const *)((const char *)raw + key->raw_offset) != NULL;
}

/* Takes all keys of a section. @into is zeroed. A part's first key is its home, which tells which
 * others it has. */
static enum embtier_err take_section(const struct reading *reading, const struct plan_key *keys,
                                     const void *raw, void *into)
{
    enum plan_home home = PLAN_HBM;

    for (const struct plan_key *key = keys; key->name; key++) {
        if (key->where == KEY_IF_SET || (key->where & KEY_IN(home)))
            TRY(take_key(reading, key, raw, into));
        else if (is_given(key, raw))
            return mistake(reading, key->name, "is no key of a part with this home");
        if (key->type == PLAN_KEY_HOME)
            home = *(const enum plan_home *)((const char *)into + key->offset);
    }
    return EMBTIER_OK;
}

typedef enum embtier_err find_mistake_fn(const struct plan *plan, struct plan_mistake *ret_mistake);

static enum embtier_err check(const struct reading *reading, const struct plan *plan,
                              find_mistake_fn *find)
{
    struct plan_mistake found;
    const enum embtier_err err = find(plan, &found);

    if (err == EMBTIER_INVALID)
        return mistake(reading, found.key, "%s", found.text);
    return err == EMBTIER_OK ? EMBTIER_OK : err_set(reading->msg, err, "out of memory");
}

static enum embtier_err take_memories(struct reading *reading, const struct raw_plan *raw,
                                      struct plan *plan)
{
    for (uint32_t i = 0; i < plan->memory_count; i++) {
        struct plan_memory *const memory = &plan->memories[i];

        snprintf(reading->at, sizeof(reading->at), "memories[%" PRIu32 "].", i);
        TRY(take_section(reading, plan_memory_keys, &raw->memories[i], memory));
        if (plan_memory_kind(memory) != PLAN_MEMORY_TIER)
            continue;
        if (plan->tier_count == PLAN_TIERS_MAX)
            return mistake(reading, "name", "one more tier; allowed: %d", PLAN_TIERS_MAX);
        plan->cache_bytes[plan->tier_count++] = memory->cache_bytes;
    }
    reading->tier_count = plan->tier_count;
    reading->at[0] = '\0';
    return check(reading, plan, plan_find_frame_mistake);
}

static enum embtier_err take_inputs(struct reading *reading, const struct raw_plan *raw,
                                    struct plan *plan)
{
    plan->input_count = raw->inputs_count;
    for (uint32_t i = 0; i < plan->input_count; i++) {
        snprintf(reading->at, sizeof(reading->at), "inputs[%" PRIu32 "].", i);
        TRY(take_section(reading, plan_input_keys, &raw->inputs[i], &plan->inputs[i]));
    }
    return EMBTIER_OK;
}

static enum embtier_err take_table(struct reading *reading, uint32_t number,
                                   const struct raw_plan_table *raw, struct plan_table *table)
{
    snprintf(reading->at, sizeof(reading->at), "tables[%" PRIu32 "].", number);
    TRY(take_section(reading, plan_table_keys, raw, table));
    table->part_count = raw->parts_count;
    for (uint32_t i = 0; i < table->part_count; i++) {
        struct plan_part *const part = &table->parts[i];

        snprintf(reading->at, sizeof(reading->at), "tables[%" PRIu32 "].parts[%" PRIu32 "].",
                 number, i);
        TRY(take_section(reading, plan_part_keys, &raw->parts[i], part));
        part->gpu = part->home == PLAN_HBM ? table->gpu : PLAN_NO_GPU;
    }
    return EMBTIER_OK;
}

static enum embtier_err take_plan(struct reading *reading, const struct raw_plan *raw,
                                  struct plan *plan)
{
    const uint32_t table_count = plan->table_count;

    TRY(take_section(reading, plan_keys, raw, plan));
    if (plan->table_count != table_count) {
        const uint32_t expected = plan->table_count;

        plan->table_count = table_count;
        return mistake(reading, "table_count",
                       "%" PRIu32 ", but the file has %" PRIu32
                       " tables; allowed: their number, unless the file was cut short",
                       expected, table_count);
    }
    TRY(take_inputs(reading, raw, plan));
    TRY(take_memories(reading, raw, plan));
    for (uint32_t i = 0; i < table_count; i++)
        TRY(take_table(reading, i, raw->tables[i], &plan->tables[i]));
    reading->at[0] = '\0';
    return check(reading, plan, plan_find_mistake);
}

/* The same for a plan in JSON, which is YAML too: the first "version" with a colon behind it. */
static uint32_t find_json_version(const char *text, size_t bytes, const char **ret_version)
{
    static const char key[] = "\"version\"";
    const char *const end = text + bytes;
    const char *at = text;
    uint32_t number = 1;

    while ((at = memmem(at, (size_t)(end - at), key, strlen(key)))) {
        const char *colon = at + strlen(key);

        while (colon < end && strchr(" \t\r\n", *colon))
            colon++;
        if (colon < end && *colon == ':') {
            for (const char *before = text; before < at; before++)
                number += *before == '\n';
            *ret_version = colon + 1;
            return number;
        }
        at = colon;
    }
    return 0;
}

/* Returns the line of the key `version` of the whole file, and its text; 0 if there is none. */
static uint32_t find_version(const char *text, size_t bytes, const char **ret_version)
{
    static const char key[] = "version:";
    const char *const end = text + bytes;
    uint32_t number = 1;

    if (bytes > 0 && text[0] == '{')
        return find_json_version(text, bytes, ret_version);
    for (const char *line = text; line < end; number++) {
        const char *const newline = memchr(line, '\n', (size_t)(end - line));

        if ((size_t)(end - line) > strlen(key) && memcmp(line, key, strlen(key)) == 0) {
            *ret_version = line + strlen(key);
            return number;
        }
        line = newline ? newline + 1 : end;
    }
    return 0;
}

/* A newer file may have other keys, so its version is looked at before its keys are. */
static enum embtier_err check_version(const char *source, const char *text, size_t bytes,
                                      struct err_msg *msg)
{
    const char *at = NULL;
    const uint32_t line = find_version(text, bytes, &at);
    uint64_t version = 0;

    if (line == 0)
        return EMBTIER_OK;
    while (at < text + bytes && *at == ' ')
        at++;
    for (; at < text + bytes && *at >= '0' && *at <= '9'; at++)
        version = MIN(version * 10 + (uint64_t)(*at - '0'), (uint64_t)UINT32_MAX);
    if (version <= PLAN_FILE_VERSION)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_VERSION,
                   "%s:%" PRIu32 ": version: %" PRIu64
                   " is newer than %d, which this embtier reads: update it",
                   source, line, version, PLAN_FILE_VERSION);
}

static enum embtier_err check_format(const struct reading *reading, const struct raw_plan *raw)
{
    if (!raw || !raw->format || strcmp(raw->format, PLAN_FILE_FORMAT) != 0)
        return mistake(reading, "format", "not " PLAN_FILE_FORMAT ", so this is no plan");
    if (!raw->version || strcmp(raw->version, "1") != 0)
        return mistake(reading, "version", "`%s` is not possible; allowed: %d",
                       TEXT_SHOWN(raw->version ? raw->version : ""), PLAN_FILE_VERSION);
    if (raw->memories_count == 0)
        return mistake(reading, "memories", "is missing; allowed: the memories of the plan");
    if (raw->tables_count == 0)
        return mistake(reading, "tables", "is missing; allowed: the tables of the plan");
    return EMBTIER_OK;
}

enum embtier_err plan_file_parse(const char *source, const char *text, size_t text_bytes,
                                 struct plan **ret_plan, struct err_msg *msg)
{
    _cleanup_(yaml_doc_freep) struct yaml_doc *doc = NULL;
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct reading reading = { .msg = msg };
    const struct raw_plan *raw;

    TRY(check_version(source, text, text_bytes, msg));
    TRY(yaml_doc_parse_within(source, text, text_bytes, PLAN_FILE_BYTES_MAX, &plan_schema, &doc,
                              msg));
    reading.doc = doc;
    raw = yaml_doc_data(doc);
    TRY(check_format(&reading, raw));
    if (plan_new(raw->tables_count, raw->memories_count, &plan) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", source);
    TRY(take_plan(&reading, raw, plan));
    plan->file = TAKE(doc);
    *ret_plan = TAKE(plan);
    return EMBTIER_OK;
}

enum embtier_err plan_file_load(const char *path, struct plan **ret_plan, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    size_t text_bytes = 0;

    TRY(yaml_doc_read(path, PLAN_FILE_BYTES_MAX, &text, &text_bytes, msg));
    return plan_file_parse(path, text, text_bytes, ret_plan, msg);
}
