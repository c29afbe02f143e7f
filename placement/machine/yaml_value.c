/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/machine/yaml_value.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"

const char *yaml_item_key(struct yaml_key_text *buffer, const char *list, uint32_t item,
                          const char *name)
{
    snprintf(buffer->text, sizeof(buffer->text), "%s[%u]%s%s", list, item, *name ? "." : "", name);
    return buffer->text;
}

/* strtod() alone would accept signs, blanks, hexadecimal numbers, nan and inf. */
static bool parse_number(const char *text, double *ret_number)
{
    char *end;

    if (text[0] < '0' || text[0] > '9' || text[strspn(text, "0123456789.eE+-")] != '\0')
        return false;
    errno = 0;
    *ret_number = strtod(text, &end);
    return *end == '\0' && errno == 0 && isfinite(*ret_number);
}

static bool parse_size(const char *text, double *ret_number)
{
    uint64_t bytes;

    if (parse_bytes(text, &bytes) != EMBTIER_OK)
        return false;
    *ret_number = (double)bytes;
    return true;
}

static bool is_size(const struct yaml_key *key)
{
    return key->kind == YAML_BYTES || key->kind == YAML_RATE;
}

static bool parse(const struct yaml_key *key, const char *text, double *ret_number)
{
    if (!(is_size(key) ? parse_size(text, ret_number) : parse_number(text, ret_number)))
        return false;
    if (key->kind == YAML_COUNT && *ret_number != floor(*ret_number))
        return false;
    return *ret_number >= key->least && *ret_number <= key->most;
}

struct allowed_text {
    char text[128];
};

static const char *allowed(struct allowed_text *buffer, const struct yaml_key *key)
{
    if (is_size(key))
        snprintf(buffer->text, sizeof(buffer->text), "%s to %s, written like 4096 or 1.5GiB",
                 BYTES_TEXT((uint64_t)key->least), BYTES_TEXT((uint64_t)key->most));
    else
        snprintf(buffer->text, sizeof(buffer->text), "%s%.12g to %.12g",
                 key->kind == YAML_COUNT ? "a whole number, " : "", key->least, key->most);
    return buffer->text;
}

static void store(const struct yaml_key *key, double number, void *ret_value)
{
    if (key->kind == YAML_COUNT)
        *(uint32_t *)ret_value = (uint32_t)number;
    else if (key->kind == YAML_BYTES)
        *(uint64_t *)ret_value = (uint64_t)number;
    else
        *(double *)ret_value = number;
}

enum embtier_err yaml_value_parse(const struct yaml_doc *doc, const struct yaml_key *key,
                                  const char *name, const char *text, void *ret_value,
                                  struct err_msg *msg)
{
    struct allowed_text buffer;
    double number = key->standard;

    if (!text && isnan(number))
        return yaml_doc_mistake(doc, name, msg, "is missing; allowed: %s", allowed(&buffer, key));
    if (text && !parse(key, text, &number))
        return yaml_doc_mistake(doc, name, msg, "`%s` is not possible; allowed: %s",
                                TEXT_SHOWN(text), allowed(&buffer, key));
    store(key, number, ret_value);
    return EMBTIER_OK;
}

enum embtier_err yaml_values_parse(const struct yaml_doc *doc, const char *prefix,
                                   const struct yaml_key *keys, size_t key_count, const void *raw,
                                   void *into, struct err_msg *msg)
{
    for (size_t i = 0; i < key_count; i++) {
        const char *const text = *(char *const *)((const char *)raw + keys[i].raw_offset);
        struct yaml_key_text name;

        snprintf(name.text, sizeof(name.text), "%s.%s", prefix, keys[i].name);
        TRY(yaml_value_parse(doc, &keys[i], name.text, text, (char *)into + keys[i].offset, msg));
    }
    return EMBTIER_OK;
}
