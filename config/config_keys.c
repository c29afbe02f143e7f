/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_keys.h"
#include "base/spec/table_spec.h"
#include "base/text/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cyaml/cyaml.h>

static const char *const switch_words[] = {
    [SWITCH_AUTO] = "auto", [SWITCH_ON] = "on", [SWITCH_OFF] = "off"
};

static const char *const layout_words[] = {
    [LAYOUT_LEVELED] = "leveled", [LAYOUT_UNIVERSAL] = "universal", [LAYOUT_BLOB] = "blob"
};
_Static_assert(ARRAY_LEN(layout_words) == LAYOUT_COUNT, "each has a word");

static const char *const answer_words[] = { [false] = "no", [true] = "yes" };

static const char *const level_words[] = { [LOG_LEVEL_ERROR] = "error",
                                           [LOG_LEVEL_WARN] = "warn",
                                           [LOG_LEVEL_INFO] = "info",
                                           [LOG_LEVEL_DEBUG] = "debug" };

static const char *const kind_words[] = {
#define X(name, word, text) word,
    TIER_KIND_TABLE(X)
#undef X
};

/* The schema. Values are read as text, because sizes have units, modes are octal, and our own
 * messages state the allowed values. An empty value or `null` means the default. */
#define FLAGS (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER_NULL_STR)

static const cyaml_schema_value_t path_schema = { CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0,
                                                                     CYAML_UNLIMITED) };

#define FIELD_VALUE(section, key)                                                                  \
    CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_##section, key, 0, CYAML_UNLIMITED),
#define FIELD_PATHS(section, key)                                                                  \
    CYAML_FIELD_SEQUENCE(#key, FLAGS, struct raw_##section, key, &path_schema, 1,                  \
                         CONFIG_DIRECTORIES_MAX),
#define FIELD_TIERS(section, key)                                                                  \
    CYAML_FIELD_SEQUENCE(#key, FLAGS, struct raw_##section, key, &tier_schema, 1, TIERS_MAX),
#define FIELD_U32     FIELD_VALUE
#define FIELD_DECIMAL FIELD_VALUE
#define FIELD_BYTES   FIELD_VALUE
#define FIELD_MODE    FIELD_VALUE
#define FIELD_NODE    FIELD_VALUE
#define FIELD_SWITCH  FIELD_VALUE
#define FIELD_LAYOUT  FIELD_VALUE
#define FIELD_ANSWER  FIELD_VALUE
#define FIELD_LEVEL   FIELD_VALUE
#define FIELD_KIND    FIELD_VALUE
#define FIELD_TEXT    FIELD_VALUE
#define FIELD_NAME    FIELD_VALUE
#define FIELD_PATH    FIELD_VALUE

#define FIELD_OF(section, key, type, ...) FIELD_##type(section, key)
#define SECTION_FIELDS(section, KEYS)                                                              \
    static const cyaml_schema_field_t section##_fields[] = { KEYS(FIELD_OF) CYAML_FIELD_END };

SECTION_FIELDS(tier, CONFIG_TIER_KEYS)

static const cyaml_schema_value_t tier_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_tier, tier_fields) };

CONFIG_SECTIONS(SECTION_FIELDS)

static const cyaml_schema_field_t config_fields[] = {
#define X(section, KEYS)                                                                           \
    CYAML_FIELD_MAPPING_PTR(#section, FLAGS, struct raw_config, section, section##_fields),
    CONFIG_SECTIONS(X)
#undef X
        CYAML_FIELD_END
};

const cyaml_schema_value_t config_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_POINTER, struct raw_config, config_fields) };

const struct config_key config_keys[] = {
#define KEY(section, key, type, when, default_text, least, most, text)                             \
    { #section,                                                                                    \
      #key,                                                                                        \
      CONFIG_##type,                                                                               \
      CONFIG_##when,                                                                               \
      default_text,                                                                                \
      least,                                                                                       \
      most,                                                                                        \
      text,                                                                                        \
      offsetof(struct raw_config, section),                                                        \
      offsetof(struct raw_##section, key),                                                         \
      offsetof(struct config, section.key) },
#define X(section, KEYS) KEYS(KEY)
    CONFIG_SECTIONS(X)
#undef X
#undef KEY
};
const uint32_t config_key_count = ARRAY_LEN(config_keys);

const struct config_key config_tier_keys[] = {
#define KEY(section, key, type, when, default_text, least, most, text)                             \
    { #section,                                                                                    \
      #key,                                                                                        \
      CONFIG_##type,                                                                               \
      CONFIG_##when,                                                                               \
      default_text,                                                                                \
      least,                                                                                       \
      most,                                                                                        \
      text,                                                                                        \
      0,                                                                                           \
      offsetof(struct raw_tier, key),                                                              \
      offsetof(struct tier_spec, key) },
    CONFIG_TIER_KEYS(KEY)
#undef KEY
};
const uint32_t config_tier_key_count = ARRAY_LEN(config_tier_keys);

static enum embtier_err parse_number(const char *text, int base, uint64_t *ret_number)
{
    const char *const digits = base == 8 ? "01234567" : "0123456789";
    unsigned long long number;

    /* strtoull() alone would accept signs, spaces and 0x. */
    if (text[0] == '\0' || text[strspn(text, digits)] != '\0')
        return EMBTIER_INVALID;
    errno = 0;
    number = strtoull(text, NULL, base);
    if (errno != 0)
        return EMBTIER_INVALID;
    *ret_number = number;
    return EMBTIER_OK;
}

/* strtod() alone would accept signs, spaces, exponents, 0x and words. */
static enum embtier_err parse_decimal(const struct config_key *key, const char *text,
                                      double *ret_number)
{
    double number;
    char *end;

    if (text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0')
        return EMBTIER_INVALID;
    number = strtod(text, &end);
    if (*end != '\0' || !(number >= (double)key->least && number <= (double)key->most))
        return EMBTIER_INVALID;
    *ret_number = number;
    return EMBTIER_OK;
}

size_t config_words(enum config_type type, const char *const **ret_words)
{
    static const struct {
        const char *const *words;
        size_t count;
    } words[] = {
        [CONFIG_SWITCH] = { switch_words, ARRAY_LEN(switch_words) },
        [CONFIG_LAYOUT] = { layout_words, ARRAY_LEN(layout_words) },
        [CONFIG_ANSWER] = { answer_words, ARRAY_LEN(answer_words) },
        [CONFIG_LEVEL] = { level_words, ARRAY_LEN(level_words) },
        [CONFIG_KIND] = { kind_words, ARRAY_LEN(kind_words) },
    };

    if ((size_t)type >= ARRAY_LEN(words) || words[type].count == 0)
        return 0;
    *ret_words = words[type].words;
    return words[type].count;
}

static enum embtier_err parse_word(enum config_type type, const char *text, uint32_t *ret_number)
{
    const char *const *words = NULL;
    const size_t count = config_words(type, &words);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0) {
            *ret_number = (uint32_t)i;
            return EMBTIER_OK;
        }
    }
    return EMBTIER_INVALID;
}

static enum embtier_err parse_text(const struct config_key *key, const char *text, void *ret_value)
{
    const size_t length = strlen(text);
    char *copy;

    if (length < key->least || length > key->most)
        return EMBTIER_INVALID;
    if (key->type == CONFIG_NAME && !tier_name_is_valid(text))
        return EMBTIER_INVALID;
    if (key->type != CONFIG_TEXT) {
        memcpy(ret_value, text, length + 1);
        return EMBTIER_OK;
    }
    copy = strdup(text);
    if (!copy)
        return EMBTIER_NO_MEMORY;
    *(char **)ret_value = copy;
    return EMBTIER_OK;
}

static enum embtier_err parse_ranged(const struct config_key *key, const char *text,
                                     uint64_t *ret_number)
{
    uint64_t number;

    if (key->type == CONFIG_BYTES) {
        TRY(parse_bytes(text, &number));
    } else if (key->type == CONFIG_MODE) {
        TRY(parse_number(strncmp(text, "0o", 2) == 0 ? text + 2 : text, 8, &number));
    } else {
        TRY(parse_number(text, 10, &number));
    }
    if (number < key->least || number > key->most)
        return EMBTIER_INVALID;
    *ret_number = number;
    return EMBTIER_OK;
}

enum embtier_err config_value_parse(const struct config_key *key, const char *text, void *ret_value)
{
    uint64_t number;
    uint32_t word;

    switch (key->type) {
    case CONFIG_BYTES:
        return parse_ranged(key, text, ret_value);
    case CONFIG_DECIMAL:
        return parse_decimal(key, text, ret_value);
    case CONFIG_U32:
    case CONFIG_MODE:
        TRY(parse_ranged(key, text, &number));
        *(uint32_t *)ret_value = (uint32_t)number;
        return EMBTIER_OK;
    case CONFIG_NODE:
        TRY(parse_ranged(key, text, &number));
        *(int *)ret_value = (int)number;
        return EMBTIER_OK;
    case CONFIG_SWITCH:
        TRY(parse_word(key->type, text, &word));
        *(enum config_switch *)ret_value = (enum config_switch)word;
        return EMBTIER_OK;
    case CONFIG_LAYOUT:
        TRY(parse_word(key->type, text, &word));
        *(enum config_layout *)ret_value = (enum config_layout)word;
        return EMBTIER_OK;
    case CONFIG_ANSWER:
        TRY(parse_word(key->type, text, &word));
        *(bool *)ret_value = word != 0;
        return EMBTIER_OK;
    case CONFIG_LEVEL:
        TRY(parse_word(key->type, text, &word));
        *(enum log_level *)ret_value = (enum log_level)word;
        return EMBTIER_OK;
    case CONFIG_KIND:
        TRY(parse_word(key->type, text, &word));
        *(enum tier_kind *)ret_value = (enum tier_kind)word;
        return EMBTIER_OK;
    case CONFIG_TEXT:
    case CONFIG_NAME:
    case CONFIG_PATH:
        return parse_text(key, text, ret_value);
    case CONFIG_PATHS:
    case CONFIG_TIERS:
        break;
    }
    return EMBTIER_INTERNAL;
}

static const char *join(struct config_allowed *buffer, enum config_type type)
{
    const char *const *words = NULL;
    const size_t count = config_words(type, &words);
    size_t used = 0;

    for (size_t i = 0; i < count && used < sizeof(buffer->text); i++)
        used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, "%s%s",
                                 i > 0 ? ", " : "", words[i]);
    return buffer->text;
}

const char *config_allowed(struct config_allowed *buffer, const struct config_key *key)
{
    const size_t room = sizeof(buffer->text);

    switch (key->type) {
    case CONFIG_U32:
    case CONFIG_NODE:
        snprintf(buffer->text, room, "%" PRIu64 " to %" PRIu64, key->least, key->most);
        break;
    case CONFIG_DECIMAL:
        snprintf(buffer->text, room, "%" PRIu64 " to %" PRIu64 ", written like 0.5", key->least,
                 key->most);
        break;
    case CONFIG_BYTES:
        snprintf(buffer->text, room, "%s to %s, written like 4096 or 1.5GiB",
                 BYTES_TEXT(key->least), BYTES_TEXT(key->most));
        break;
    case CONFIG_MODE:
        snprintf(buffer->text, room, "%04o to %04o, octal", (unsigned)key->least,
                 (unsigned)key->most);
        break;
    case CONFIG_SWITCH:
    case CONFIG_LAYOUT:
    case CONFIG_ANSWER:
    case CONFIG_LEVEL:
    case CONFIG_KIND:
        return join(buffer, key->type);
    case CONFIG_NAME:
        snprintf(buffer->text, room, "%" PRIu64 " to %" PRIu64 " of A-Z a-z 0-9 _ -", key->least,
                 key->most);
        break;
    case CONFIG_TEXT:
    case CONFIG_PATH:
        snprintf(buffer->text, room, "%" PRIu64 " to %" PRIu64 " bytes of text", key->least,
                 key->most);
        break;
    case CONFIG_PATHS:
    case CONFIG_TIERS:
        snprintf(buffer->text, room, "a list of %" PRIu64 " to %" PRIu64, key->least, key->most);
        break;
    }
    return buffer->text;
}

const char *config_when_word(enum config_when when)
{
    static const char *const words[] = {
        [CONFIG_START] = "start", [CONFIG_LIVE] = "live", [CONFIG_HAND] = "hand"
    };

    return words[when];
}

void config_each_key(config_key_fn *each, void *context)
{
    char name[64];

    for (uint32_t i = 0; i < config_key_count; i++) {
        snprintf(name, sizeof(name), "%s.%s", config_keys[i].section, config_keys[i].name);
        each(context, name, &config_keys[i]);
        for (uint32_t t = 0; config_keys[i].type == CONFIG_TIERS && t < config_tier_key_count;
             t++) {
            snprintf(name, sizeof(name), "cache.tiers[].%s", config_tier_keys[t].name);
            each(context, name, &config_tier_keys[t]);
        }
    }
}

static void print_key(void *out, const char *name, const struct config_key *key)
{
    struct config_allowed allowed;

    fprintf(out, "%s\t%s\t%s\t%s\t%s\n", name, config_allowed(&allowed, key), key->default_text,
            key->text, config_when_word(key->when));
}

void config_print_keys(FILE *out)
{
    config_each_key(print_key, out);
}
