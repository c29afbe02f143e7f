/* SPDX-License-Identifier: Apache-2.0 */
#include "base/yaml/yaml_doc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yaml.h>

#include "base/text/edit_distance.h"
#include "base/text/text_escape.h"

/* Room for a key with its path, which the schema keeps short, and for an unknown key. */
#define KEY_BYTES    (256 + sizeof(struct text_shown))
#define SOURCE_SHOWN 120 /* bytes of a file's name in a message */

struct line_of_key {
    char *key;
    uint32_t line;
};

struct yaml_doc {
    char *source;
    const struct cyaml_schema_value *schema;
    void *data;
    struct line_of_key *lines;
    uint32_t line_count;
    uint32_t line_capacity;
};

/* The walk along the schema. @key is the current position. */
struct walk {
    yaml_parser_t parser;
    const char *text;
    struct yaml_doc *doc;
    struct err_msg *msg;
    char key[KEY_BYTES];
};

static void *allocate(void *context, void *old, size_t bytes)
{
    (void)context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, bytes);
}

static void ignore_log(cyaml_log_t level, void *context, const char *format, va_list args)
{
    (void)level;
    (void)context;
    (void)format;
    (void)args;
}

static const cyaml_config_t cyaml_settings = {
    .log_fn = ignore_log,
    .log_level = CYAML_LOG_ERROR,
    .mem_fn = allocate,
    .flags = CYAML_CFG_NO_ALIAS,
};

static void write_place(const struct yaml_doc *doc, uint32_t line, const char *key, char *text,
                        size_t bytes)
{
    const size_t source_bytes = strlen(doc->source);
    const size_t cut = source_bytes > SOURCE_SHOWN ? source_bytes - SOURCE_SHOWN : 0;

    snprintf(text, bytes, "%s%s:%u: %s", cut > 0 ? "..." : "", doc->source + cut, line, key);
}

void yaml_doc_place(const struct yaml_doc *doc, const char *key, char *ret_text, size_t bytes)
{
    write_place(doc, yaml_doc_line(doc, key), key, ret_text, bytes);
}

PRINTF_LIKE(5, 0)
static enum embtier_err mistake_at(const struct yaml_doc *doc, uint32_t line, const char *key,
                                   struct err_msg *msg, const char *format, va_list args)
{
    const char *colon = key[0] != '\0' ? ": " : "";
    char what[sizeof(msg->text)], place[sizeof(msg->text)];

    vsnprintf(what, sizeof(what), format, args);
    if (!doc)
        return err_set(msg, EMBTIER_CONFIG, "defaults: %s%s%s", key, colon, what);
    write_place(doc, line, key, place, sizeof(place));
    return err_set(msg, EMBTIER_CONFIG, "%s%s%s", place, colon, what);
}

enum embtier_err yaml_doc_mistake(const struct yaml_doc *doc, const char *key, struct err_msg *msg,
                                  const char *format, ...)
{
    enum embtier_err err;
    va_list args;

    va_start(args, format);
    err = mistake_at(doc, doc ? yaml_doc_line(doc, key) : 0, key, msg, format, args);
    va_end(args);
    return err;
}

PRINTF_LIKE(3, 4)
static enum embtier_err walk_mistake(struct walk *w, size_t line, const char *format, ...)
{
    enum embtier_err err;
    va_list args;

    va_start(args, format);
    err = mistake_at(w->doc, (uint32_t)line, w->key, w->msg, format, args);
    va_end(args);
    return err;
}

static size_t line_of_offset(const char *text, size_t offset)
{
    size_t line = 1;

    for (size_t i = 0; i < offset; i++)
        line += text[i] == '\n';
    return line;
}

static enum embtier_err next_event(struct walk *w, yaml_event_t *ret_event)
{
    const yaml_parser_t *parser = &w->parser;
    size_t line;

    if (yaml_parser_parse(&w->parser, ret_event))
        return EMBTIER_OK;
    if (parser->error == YAML_MEMORY_ERROR)
        return err_set(w->msg, EMBTIER_NO_MEMORY, "out of memory");
    line = parser->error == YAML_READER_ERROR ? line_of_offset(w->text, parser->problem_offset)
                                              : parser->problem_mark.line + 1;
    /* The cause of "cannot start any token" is usually a tab. */
    return walk_mistake(w, line,
                        "not valid YAML: %s%s%s; allowed: keys and values, indented by "
                        "spaces",
                        parser->problem ? parser->problem : "unknown problem",
                        parser->context ? " " : "", parser->context ? parser->context : "");
}

static enum embtier_err note_line(struct walk *w, size_t line)
{
    struct yaml_doc *doc = w->doc;
    char *key = strdup(w->key);

    if (key && doc->line_count == doc->line_capacity) {
        const uint32_t capacity = doc->line_capacity * 2 + 32;
        struct line_of_key *lines = reallocarray(doc->lines, capacity, sizeof(*lines));

        if (lines) {
            doc->lines = lines;
            doc->line_capacity = capacity;
        }
    }
    if (!key || doc->line_count == doc->line_capacity) {
        free(key);
        return err_set(w->msg, EMBTIER_NO_MEMORY, "out of memory");
    }
    doc->lines[doc->line_count++] = (struct line_of_key){ key, (uint32_t)line };
    return EMBTIER_OK;
}

/* Names of a mapping's keys, for "allowed: ". */
struct names {
    char text[256];
};

static const char *list_names(struct names *buffer, const struct cyaml_schema_field *fields)
{
    size_t used = 0;

    for (const struct cyaml_schema_field *f = fields; f->key && used < sizeof(buffer->text); f++)
        used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, "%s%s",
                                 f == fields ? "" : ", ", f->key);
    return buffer->text;
}

static enum embtier_err unknown_key(struct walk *w, size_t line, const char *name,
                                    const struct cyaml_schema_field *fields)
{
    const char *nearest = NULL;
    unsigned least = 4; /* a name further away is another word, not a slip */
    struct names names;
    const size_t used = strlen(w->key);

    for (const struct cyaml_schema_field *f = fields; f->key; f++) {
        const unsigned distance = edit_distance(name, f->key);

        if (distance < least && distance * 2 < strlen(f->key) + 1) {
            least = distance;
            nearest = f->key;
        }
    }
    snprintf(w->key + used, sizeof(w->key) - used, "%s%s", used > 0 ? "." : "", TEXT_SHOWN(name));
    return walk_mistake(w, line, "unknown key%s%s%s; allowed: %s",
                        nearest ? ", did you mean `" : "", nearest ? nearest : "",
                        nearest ? "`?" : "", list_names(&names, fields));
}

/* True for the values that libcyaml takes as null (CYAML_FLAG_POINTER_NULL_STR). */
static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };

    if (event->type != YAML_SCALAR_EVENT)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp((const char *)event->data.scalar.value, words[i]) == 0)
            return true;
    return false;
}

static bool may_be_null(const struct cyaml_schema_value *schema)
{
    return (schema->flags & CYAML_FLAG_POINTER_NULL_STR) == CYAML_FLAG_POINTER_NULL_STR;
}

static enum embtier_err walk_value(struct walk *w, const yaml_event_t *event,
                                   const struct cyaml_schema_value *schema);

static enum embtier_err walk_scalar(struct walk *w, const yaml_event_t *event,
                                    const struct cyaml_schema_value *schema)
{
    const size_t line = event->start_mark.line + 1;
    const char *text;

    if (event->type != YAML_SCALAR_EVENT)
        return walk_mistake(w, line, "is a %s; allowed: one value",
                            event->type == YAML_SEQUENCE_START_EVENT ? "list" : "mapping of keys");
    text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length)
        return walk_mistake(w, line, "holds a NUL character; allowed: text without");
    if (text[0] == '\0' &&
        (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || !may_be_null(schema)))
        return walk_mistake(w, line, "is empty; allowed: a value%s",
                            may_be_null(schema) ? ", or null for the default" : "");
    return EMBTIER_OK;
}

static enum embtier_err walk_list(struct walk *w, const yaml_event_t *event,
                                  const struct cyaml_schema_value *schema)
{
    const size_t used = strlen(w->key);

    if (event->type != YAML_SEQUENCE_START_EVENT)
        return walk_mistake(w, event->start_mark.line + 1,
                            "is not a list; allowed: a list, [A, B] "
                            "or lines that start with `- `");
    for (uint32_t i = 0;; i++) {
        _cleanup_(yaml_event_delete) yaml_event_t item = { 0 };

        TRY(next_event(w, &item));
        if (item.type == YAML_SEQUENCE_END_EVENT) {
            if (i < schema->sequence.min)
                return walk_mistake(w, item.start_mark.line + 1,
                                    "has too few items; allowed: at least %u",
                                    schema->sequence.min);
            return EMBTIER_OK;
        }
        if (i >= schema->sequence.max)
            return walk_mistake(w, item.start_mark.line + 1,
                                "has too many items; allowed: at most %u", schema->sequence.max);
        snprintf(w->key + used, sizeof(w->key) - used, "[%u]", i);
        TRY(note_line(w, item.start_mark.line + 1));
        TRY(walk_value(w, &item, schema->sequence.entry));
        w->key[used] = '\0';
    }
}

static enum embtier_err walk_mapping(struct walk *w, const yaml_event_t *event,
                                     const struct cyaml_schema_value *schema)
{
    const struct cyaml_schema_field *fields = schema->mapping.fields;
    const size_t used = strlen(w->key);
    uint64_t seen = 0;
    struct names names;

    if (event->type != YAML_MAPPING_START_EVENT)
        return walk_mistake(
            w, event->start_mark.line + 1, "%s, where a mapping of keys is needed; allowed: %s",
            event->type == YAML_SEQUENCE_START_EVENT ? "is a list" : "is a single value",
            list_names(&names, fields));
    for (;;) {
        _cleanup_(yaml_event_delete) yaml_event_t name = { 0 };
        _cleanup_(yaml_event_delete) yaml_event_t value = { 0 };
        const struct cyaml_schema_field *field = fields;
        uint64_t bit;

        TRY(next_event(w, &name));
        if (name.type == YAML_MAPPING_END_EVENT)
            return EMBTIER_OK;
        if (name.type != YAML_SCALAR_EVENT)
            return walk_mistake(w, name.start_mark.line + 1,
                                "a key that is not a word; allowed: %s",
                                list_names(&names, fields));
        while (field->key && strcmp(field->key, (const char *)name.data.scalar.value) != 0)
            field++;
        if (!field->key || strlen(field->key) != name.data.scalar.length)
            return unknown_key(w, name.start_mark.line + 1, (const char *)name.data.scalar.value,
                               fields);
        snprintf(w->key + used, sizeof(w->key) - used, "%s%s", used > 0 ? "." : "", field->key);
        bit = UINT64_C(1) << (field - fields);
        if (seen & bit)
            return walk_mistake(w, name.start_mark.line + 1,
                                "is given twice, first in line %u; allowed: once",
                                yaml_doc_line(w->doc, w->key));
        seen |= bit;
        TRY(note_line(w, name.start_mark.line + 1));
        TRY(next_event(w, &value));
        TRY(walk_value(w, &value, &field->value));
        w->key[used] = '\0';
    }
}

static enum embtier_err walk_value(struct walk *w, const yaml_event_t *event,
                                   const struct cyaml_schema_value *schema)
{
    if (event->type == YAML_ALIAS_EVENT)
        return walk_mistake(w, event->start_mark.line + 1,
                            "is an alias (*name); allowed: the value itself");
    switch (schema->type) {
    case CYAML_MAPPING:
        if (may_be_null(schema) && is_null(event))
            return EMBTIER_OK;
        return walk_mapping(w, event, schema);
    case CYAML_SEQUENCE:
    case CYAML_SEQUENCE_FIXED:
        if (may_be_null(schema) && is_null(event))
            return EMBTIER_OK;
        return walk_list(w, event, schema);
    default:
        return walk_scalar(w, event, schema);
    }
}

/* Walks the whole text; @ret_has_content tells if there is anything in it. */
static enum embtier_err walk_stream(struct walk *w, bool *ret_has_content)
{
    bool has_content = false;

    for (uint32_t documents = 0;;) {
        _cleanup_(yaml_event_delete) yaml_event_t event = { 0 };

        TRY(next_event(w, &event));
        switch (event.type) {
        case YAML_STREAM_END_EVENT:
            *ret_has_content = has_content;
            return EMBTIER_OK;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (documents++ > 0)
                return walk_mistake(w, event.start_mark.line + 1,
                                    "a second document starts; allowed: one");
            break;
        default:
            if (event.type == YAML_SCALAR_EVENT && event.data.scalar.length == 0)
                break; /* "---" and nothing more */
            has_content = true;
            TRY(walk_value(w, &event, w->doc->schema));
        }
    }
}

static enum embtier_err walk_text(struct yaml_doc *doc, const char *text, size_t text_bytes,
                                  size_t bytes_max, bool *ret_has_content, struct err_msg *msg)
{
    struct walk w = { .text = text, .doc = doc, .msg = msg };
    const char *nul = memchr(text, '\0', text_bytes);
    enum embtier_err err;

    if (text_bytes > bytes_max)
        return walk_mistake(&w, 1, "the file is too large; allowed: at most %zu bytes", bytes_max);
    if (nul)
        return walk_mistake(&w, line_of_offset(text, (size_t)(nul - text)),
                            "not valid YAML: a NUL character; allowed: text");
    if (!yaml_parser_initialize(&w.parser))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)text, text_bytes);
    err = walk_stream(&w, ret_has_content);
    yaml_parser_delete(&w.parser);
    return err;
}

enum embtier_err yaml_doc_parse_within(const char *source, const char *text, size_t text_bytes,
                                       size_t bytes_max, const struct cyaml_schema_value *schema,
                                       struct yaml_doc **ret_doc, struct err_msg *msg)
{
    _cleanup_(yaml_doc_freep) struct yaml_doc *doc = calloc(1, sizeof(*doc));
    bool has_content = false;
    cyaml_err_t failure;

    if (doc)
        doc->source = strdup(source);
    if (!doc || !doc->source)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    doc->schema = schema;
    TRY(walk_text(doc, text, text_bytes, bytes_max, &has_content, msg));
    if (has_content) {
        failure = cyaml_load_data((const uint8_t *)text, text_bytes, &cyaml_settings, schema,
                                  &doc->data, NULL);
        if (failure == CYAML_ERR_OOM)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
        /* libcyaml should read all that the walk accepts; this covers a schema where it does
         * not. */
        if (failure != CYAML_OK)
            return yaml_doc_mistake(doc, "", msg, "%s", cyaml_strerror(failure));
    }
    *ret_doc = TAKE(doc);
    return EMBTIER_OK;
}

enum embtier_err yaml_doc_parse(const char *source, const char *text, size_t text_bytes,
                                const struct cyaml_schema_value *schema, struct yaml_doc **ret_doc,
                                struct err_msg *msg)
{
    return yaml_doc_parse_within(source, text, text_bytes, YAML_DOC_BYTES_MAX, schema, ret_doc,
                                 msg);
}

enum embtier_err yaml_doc_read(const char *path, size_t bytes_max, char **ret_text,
                               size_t *ret_text_bytes, struct err_msg *msg)
{
    const size_t room = bytes_max + 1;
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    _cleanup_(freep) char *text = NULL;
    size_t used = 0;

    if (fd < 0)
        return err_set_errno(msg, errno, "%s: cannot be opened", path);
    text = malloc(room);
    if (!text)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    while (used < room) { /* reading one byte over the limit is enough */
        const ssize_t got = read(fd, text + used, room - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(msg, errno, "%s: cannot be read", path);
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *ret_text = TAKE(text);
    *ret_text_bytes = used;
    return EMBTIER_OK;
}

enum embtier_err yaml_doc_load(const char *path, const struct cyaml_schema_value *schema,
                               struct yaml_doc **ret_doc, struct err_msg *msg)
{
    _cleanup_(freep) char *text = NULL;
    size_t text_bytes = 0;

    TRY(yaml_doc_read(path, YAML_DOC_BYTES_MAX, &text, &text_bytes, msg));
    return yaml_doc_parse(path, text, text_bytes, schema, ret_doc, msg);
}

void yaml_doc_free(struct yaml_doc *doc)
{
    if (!doc)
        return;
    if (doc->data)
        (void)cyaml_free(&cyaml_settings, doc->schema, doc->data, 0);
    for (uint32_t i = 0; i < doc->line_count; i++)
        free(doc->lines[i].key);
    free(doc->lines);
    free(doc->source);
    free(doc);
}

const void *yaml_doc_data(const struct yaml_doc *doc)
{
    return doc->data;
}

uint32_t yaml_doc_line(const struct yaml_doc *doc, const char *key)
{
    size_t length = strlen(key);

    while (length > 0) {
        for (uint32_t i = 0; i < doc->line_count; i++)
            if (strncmp(doc->lines[i].key, key, length) == 0 && doc->lines[i].key[length] == '\0')
                return doc->lines[i].line;
        do
            length--;
        while (length > 0 && key[length] != '.' && key[length] != '[');
    }
    return 1;
}
