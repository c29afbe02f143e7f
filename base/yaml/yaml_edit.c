/* SPDX-License-Identifier: Apache-2.0 */
/* libyaml tells where each node begins and ends. A change is one splice: some bytes of the text are
 * replaced by others. Marks count characters, and a splice needs bytes. The end of a block mapping
 * is where the next token begins, behind comments that belong to what follows. So its end is that
 * of its last leaf. */
#include "base/yaml/yaml_edit.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/macros.h"
#include "base/text/text_escape.h"

#define STEPS_MAX   8
#define INDENTATION 2

/* One step of a key's path: a name, or the index of a list. */
struct step {
    char name[64]; /* "": an index */
    uint32_t index;
};

struct edit {
    yaml_document_t document;
    const char *text;
    size_t bytes;
    size_t first; /* bytes of the byte order mark */
    const char *line_end;
    const char *key;
    const char *value;
    struct step steps[STEPS_MAX];
    uint32_t step_count;
    FILE *out;
};

/* ---- Places ---- */

static size_t byte_at(const struct edit *e, size_t index)
{
    size_t at = e->first;

    for (; at < e->bytes && index > 0; index--)
        do
            at++;
        while (at < e->bytes && ((unsigned char)e->text[at] & 0xc0) == 0x80);
    return at;
}

static yaml_node_t *node_of(struct edit *e, int index)
{
    return yaml_document_get_node(&e->document, index);
}

static bool is_block_text(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE &&
           (node->data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
            node->data.scalar.style == YAML_FOLDED_SCALAR_STYLE);
}

static bool is_flow(const yaml_node_t *node)
{
    return (node->type == YAML_MAPPING_NODE &&
            node->data.mapping.style == YAML_FLOW_MAPPING_STYLE) ||
           (node->type == YAML_SEQUENCE_NODE &&
            node->data.sequence.style == YAML_FLOW_SEQUENCE_STYLE);
}

/* Returns the last child of a list or mapping in block style; NULL: @node is none, or is empty. */
static yaml_node_t *last_child(struct edit *e, const yaml_node_t *node)
{
    if (is_flow(node))
        return NULL;
    if (node->type == YAML_MAPPING_NODE &&
        node->data.mapping.pairs.top > node->data.mapping.pairs.start)
        return node_of(e, node->data.mapping.pairs.top[-1].value);
    if (node->type == YAML_SEQUENCE_NODE &&
        node->data.sequence.items.top > node->data.sequence.items.start)
        return node_of(e, node->data.sequence.items.top[-1]);
    return NULL;
}

static size_t end_of(struct edit *e, const yaml_node_t *node)
{
    const yaml_node_t *child;
    size_t end;

    while ((child = last_child(e, node)))
        node = child;
    end = byte_at(e, node->end_mark.index);
    if (is_block_text(node)) /* it ends where the next token begins */
        while (end > 0 && isspace((unsigned char)e->text[end - 1]))
            end--;
    return end;
}

/* Returns the place of the line's end, before its break. */
static size_t end_of_line(const struct edit *e, size_t at)
{
    while (at < e->bytes && e->text[at] != '\n')
        at++;
    return at > 0 && at < e->bytes && e->text[at - 1] == '\r' ? at - 1 : at;
}

/* ---- Writing ---- */

static bool is_null_word(const char *text)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static bool is_plain(const char *value)
{
    if (is_null_word(value) || !(isalnum((unsigned char)value[0]) || value[0] == '/'))
        return false;
    for (const char *at = value; *at; at++)
        if (!isascii((unsigned char)*at) ||
            !(isalnum((unsigned char)*at) || strchr("/._+-", *at) != NULL))
            return false;
    return true;
}

void yaml_write_value(FILE *out, const char *value)
{
    if (is_plain(value) || strcmp(value, "null") == 0) {
        fputs(value, out);
        return;
    }
    putc('"', out);
    for (const char *at = value; *at; at++) {
        const unsigned char c = (unsigned char)*at;

        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

/* Writes lines of block style for the steps from @from on, without the last line's break. */
static void write_lines(const struct edit *e, uint32_t from, size_t column)
{
    for (uint32_t i = from; i < e->step_count; i++) {
        const size_t spaces = column + (size_t)(i - from) * INDENTATION;

        fprintf(e->out, "%*s%s:", (int)spaces, "", e->steps[i].name);
        if (i + 1 < e->step_count)
            fputs(e->line_end, e->out);
    }
    putc(' ', e->out);
    yaml_write_value(e->out, e->value);
}

/* Writes "a: {b: value}". */
static void write_flow(const struct edit *e, uint32_t from)
{
    for (uint32_t i = from; i < e->step_count; i++)
        fprintf(e->out, "%s%s: ", i > from ? "{" : "", e->steps[i].name);
    yaml_write_value(e->out, e->value);
    for (uint32_t i = from + 1; i < e->step_count; i++)
        putc('}', e->out);
}

static void write_until(const struct edit *e, size_t from, size_t to)
{
    (void)fwrite(e->text + from, 1, to - from, e->out);
}

/* Writes lines of their own behind the line that @at is in. */
static void add_lines(const struct edit *e, size_t at, uint32_t from, size_t column)
{
    const size_t line = end_of_line(e, at);

    write_until(e, 0, line);
    if (line > e->first)
        fputs(e->line_end, e->out);
    write_lines(e, from, column);
    if (line == e->first && line < e->bytes)
        fputs(e->line_end, e->out);
    write_until(e, line, e->bytes);
}

/* Writes lines at the end of the text, which ends with a break or not. */
static void append(const struct edit *e, uint32_t from)
{
    const bool has_break = e->bytes > e->first && e->text[e->bytes - 1] == '\n';

    write_until(e, 0, e->bytes);
    if (e->bytes > e->first && !has_break)
        fputs(e->line_end, e->out);
    write_lines(e, from, 0);
    if (has_break || e->bytes == e->first)
        fputs(e->line_end, e->out);
}

/* ---- Cases ---- */

static enum embtier_err cannot(const struct edit *e, struct err_msg *msg)
{
    return err_set(msg, EMBTIER_INVALID,
                   "%s cannot be set in this text: what stands in its place is no mapping of keys",
                   TEXT_SHOWN(e->key));
}

static void replace_value(struct edit *e, const yaml_node_t *node)
{
    const size_t start = byte_at(e, node->start_mark.index);
    const size_t end = end_of(e, node);

    write_until(e, 0, start);
    if (start == end && start > 0 && e->text[start - 1] == ':')
        putc(' ', e->out);
    yaml_write_value(e->out, e->value);
    write_until(e, end, e->bytes);
}

/* The mapping is there by name only: "rocksdb:", or with a word for null. @in_flow: the mapping
 * around it is in flow style. @column: of its own name. */
static void fill_null(struct edit *e, const yaml_node_t *node, uint32_t from, size_t column,
                      bool in_flow)
{
    const size_t start = byte_at(e, node->start_mark.index);
    const size_t end = byte_at(e, node->end_mark.index);
    const size_t line = end_of_line(e, end);

    write_until(e, 0, start);
    if (in_flow) {
        fputs(start > 0 && e->text[start - 1] == ':' ? " {" : "{", e->out);
        write_flow(e, from);
        putc('}', e->out);
        write_until(e, end, e->bytes);
        return;
    }
    write_until(e, end, line); /* a comment */
    fputs(e->line_end, e->out);
    write_lines(e, from, column + INDENTATION);
    write_until(e, line, e->bytes);
}

/* The key comes right behind the last value: a comma or a comment may stand between that and the
 * brace. */
static void add_to_flow(struct edit *e, const yaml_node_t *node, uint32_t from)
{
    const yaml_node_pair_t *const pairs = node->data.mapping.pairs.start;
    const yaml_node_pair_t *const top = node->data.mapping.pairs.top;
    const size_t at = top == pairs ? byte_at(e, node->end_mark.index) - 1 /* the brace */
                                   : byte_at(e, node_of(e, top[-1].value)->end_mark.index);

    write_until(e, 0, at);
    if (top > pairs)
        fputs(", ", e->out);
    write_flow(e, from);
    write_until(e, at, e->bytes);
}

/* The mapping has no such key. */
static enum embtier_err add_key(struct edit *e, const yaml_node_t *node, uint32_t from,
                                struct err_msg *msg)
{
    const yaml_node_pair_t *const pairs = node->data.mapping.pairs.start;

    for (uint32_t i = from; i < e->step_count; i++)
        if (e->steps[i].name[0] == '\0')
            return err_set(msg, EMBTIER_NOT_FOUND, "%s: the file does not have this item",
                           TEXT_SHOWN(e->key));
    if (is_flow(node))
        add_to_flow(e, node, from);
    else if (from == 0 && e->document.end_implicit)
        append(e, from);
    else
        add_lines(e, end_of(e, node), from, node_of(e, pairs->key)->start_mark.column);
    return EMBTIER_OK;
}

/* Finds what the step names in @node. Returns NULL if it is not there. */
static yaml_node_t *find_child(struct edit *e, const yaml_node_t *node, const struct step *step,
                               yaml_node_t **ret_name)
{
    if (step->name[0] == '\0') {
        const yaml_node_item_t *const items = node->data.sequence.items.start;

        return items + step->index < node->data.sequence.items.top ? node_of(e, items[step->index])
                                                                   : NULL;
    }
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *const name = node_of(e, pair->key);

        if (name->type != YAML_SCALAR_NODE ||
            strcmp((const char *)name->data.scalar.value, step->name) != 0)
            continue;
        *ret_name = name;
        return node_of(e, pair->value);
    }
    return NULL;
}

static bool is_null_node(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           is_null_word((const char *)node->data.scalar.value);
}

static enum embtier_err descend(struct edit *e, yaml_node_t *root, struct err_msg *msg)
{
    yaml_node_t *node = root;
    size_t column = 0;
    bool in_flow = false;

    for (uint32_t i = 0; i < e->step_count; i++) {
        const struct step *const step = &e->steps[i];
        const bool is_index = step->name[0] == '\0';
        yaml_node_t *name = NULL;
        yaml_node_t *child;

        if (!is_index && i > 0 && is_null_node(node)) {
            fill_null(e, node, i, column, in_flow);
            return EMBTIER_OK;
        }
        if (node->type != (is_index ? YAML_SEQUENCE_NODE : YAML_MAPPING_NODE))
            return is_index ? err_set(msg, EMBTIER_NOT_FOUND, "%s: the file has no such list",
                                      TEXT_SHOWN(e->key))
                            : cannot(e, msg);
        child = find_child(e, node, step, &name);
        if (!child && is_index)
            return err_set(msg, EMBTIER_NOT_FOUND, "%s: the file does not have this item",
                           TEXT_SHOWN(e->key));
        if (!child)
            return add_key(e, node, i, msg);
        in_flow = in_flow || is_flow(node);
        column = name ? name->start_mark.column : column;
        node = child;
    }
    if (node->type != YAML_SCALAR_NODE)
        return cannot(e, msg);
    replace_value(e, node);
    return EMBTIER_OK;
}

static enum embtier_err change(struct edit *e, struct err_msg *msg)
{
    yaml_node_t *const root = yaml_document_get_root_node(&e->document);

    if (root && !is_null_node(root))
        return descend(e, root, msg);
    if (root && !e->document.end_implicit)
        return cannot(e, msg);
    append(e, 0);
    return EMBTIER_OK;
}

/* ---- The path ---- */

static enum embtier_err parse_path(struct edit *e, struct err_msg *msg)
{
    const char *at = e->key;

    while (*at != '\0') {
        struct step *const step = &e->steps[e->step_count];
        const size_t length = strcspn(at, ".[");

        if (e->step_count == STEPS_MAX || length >= sizeof(step->name))
            return err_set(msg, EMBTIER_INVALID, "%s: no such key", TEXT_SHOWN(e->key));
        *step = (struct step){ .index = 0 };
        if (*at == '[') {
            char *end;

            step->index = (uint32_t)strtoul(at + 1, &end, 10);
            if (*end != ']' || !isdigit((unsigned char)at[1]))
                return err_set(msg, EMBTIER_INVALID, "%s: no such key", TEXT_SHOWN(e->key));
            at = end + 1;
        } else {
            memcpy(step->name, at, length);
            at += length;
        }
        e->step_count++;
        at += *at == '.';
    }
    return e->step_count > 0 ? EMBTIER_OK : err_set(msg, EMBTIER_INVALID, "no key");
}

static enum embtier_err load(struct edit *e, struct err_msg *msg)
{
    yaml_parser_t parser;
    enum embtier_err err = EMBTIER_OK;

    if (!yaml_parser_initialize(&parser))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)e->text + e->first,
                                 e->bytes - e->first);
    if (!yaml_parser_load(&parser, &e->document))
        err = err_set(msg, EMBTIER_INVALID, "line %zu is not valid YAML: %s",
                      parser.problem_mark.line + 1,
                      parser.problem ? parser.problem : "unknown problem");
    yaml_parser_delete(&parser);
    return err;
}

static const char *line_end_of(const char *text, size_t bytes)
{
    const char *const first = memchr(text, '\n', bytes);

    return first && first > text && first[-1] == '\r' ? "\r\n" : "\n";
}

enum embtier_err yaml_edit(const char *text, size_t text_bytes, const char *key, const char *value,
                           char **ret_text, size_t *ret_text_bytes, struct err_msg *msg)
{
    struct edit e = { .text = text,
                      .bytes = text_bytes,
                      .first = text_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0,
                      .line_end = line_end_of(text, text_bytes),
                      .key = key,
                      .value = value };
    char *out = NULL;
    size_t out_bytes = 0;
    enum embtier_err err;

    TRY(parse_path(&e, msg));
    TRY(load(&e, msg));
    e.out = open_memstream(&out, &out_bytes);
    err = e.out ? change(&e, msg) : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    yaml_document_delete(&e.document);
    if (e.out && fclose(e.out) != 0 && err == EMBTIER_OK)
        err = err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (err != EMBTIER_OK) {
        free(out);
        return err;
    }
    *ret_text = out;
    *ret_text_bytes = out_bytes;
    return EMBTIER_OK;
}
