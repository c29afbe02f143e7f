/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_items.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/edit_distance.h"
#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "base/yaml/yaml_edit.h"
#include "config/config_load.h"

/* The source of a changed configuration, cut off from messages about it. */
#define CHANGE_SOURCE "change"

/* ---- Values as text ---- */

/* Exact, in the largest unit. */
static void write_bytes(char *text, uint64_t bytes)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = { { "TiB", 1024 * GIB }, { "GiB", GIB }, { "MiB", MIB }, { "KiB", KIB } };

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (bytes == 0 || bytes % units[i].bytes != 0)
            continue;
        snprintf(text, CONFIG_ITEM_VALUE_MAX, "%" PRIu64 "%s", bytes / units[i].bytes,
                 units[i].name);
        return;
    }
    snprintf(text, CONFIG_ITEM_VALUE_MAX, "%" PRIu64, bytes);
}

static void write_number(const struct config_key *key, char *text, uint64_t number)
{
    if (number == 0 && key->least > 0) /* not set, and not computed either */
        text[0] = '\0';
    else if (key->type == CONFIG_BYTES)
        write_bytes(text, number);
    else
        snprintf(text, CONFIG_ITEM_VALUE_MAX, "%" PRIu64, number);
}

/* @base: struct config, or struct tier_spec. */
static void write_value(const struct config_key *key, const void *base, char *text)
{
    const void *const at = (const char *)base + key->offset;
    const char *const *words = NULL;
    const size_t count = config_words(key->type, &words);
    const char *plain = NULL;
    uint32_t word;

    text[0] = '\0';
    switch (key->type) {
    case CONFIG_U32:
        write_number(key, text, *(const uint32_t *)at);
        return;
    case CONFIG_BYTES:
        write_number(key, text, *(const uint64_t *)at);
        return;
    case CONFIG_DECIMAL:
        if (*(const double *)at > 0) /* a file has no exponents */
            snprintf(text, CONFIG_ITEM_VALUE_MAX, *(const double *)at < 0.001 ? "%.20f" : "%.15g",
                     *(const double *)at);
        return;
    case CONFIG_MODE:
        snprintf(text, CONFIG_ITEM_VALUE_MAX, "%04o", *(const uint32_t *)at);
        return;
    case CONFIG_NODE:
        if (*(const int *)at >= 0)
            snprintf(text, CONFIG_ITEM_VALUE_MAX, "%d", *(const int *)at);
        return;
    case CONFIG_ANSWER:
        plain = words[*(const bool *)at];
        break;
    case CONFIG_SWITCH:
    case CONFIG_LAYOUT:
    case CONFIG_LEVEL:
    case CONFIG_KIND:
        memcpy(&word, at, sizeof(word)); /* an enum */
        plain = word < count ? words[word] : NULL;
        break;
    case CONFIG_TEXT:
        plain = *(char *const *)at;
        break;
    case CONFIG_NAME:
    case CONFIG_PATH:
        plain = at;
        break;
    case CONFIG_PATHS:
    case CONFIG_TIERS:
        break;
    }
    snprintf(text, CONFIG_ITEM_VALUE_MAX, "%s", plain ? plain : "");
}
_Static_assert(sizeof(enum config_switch) == sizeof(uint32_t) &&
                   sizeof(enum config_layout) == sizeof(uint32_t) &&
                   sizeof(enum log_level) == sizeof(uint32_t) &&
                   sizeof(enum tier_kind) == sizeof(uint32_t),
               "write_value() reads them as numbers");

/* ---- Items ---- */

static bool is_in_section(const struct config_key *key, const void *section)
{
    return section && *(void *const *)((const char *)section + key->raw_offset) != NULL;
}

static void take_key(struct config_item *item, const struct config_key *key)
{
    item->key = key;
    item->least = key->least;
    item->most = key->most;
}

/* A tier has room for max_bytes. Lanes need some of it beside its arrays. */
static void limit_tier(const struct config *config, uint32_t t, struct config_item *item)
{
    const struct tier_spec *const tier = &config->cache.tiers[t];

    if (strcmp(item->key->name, "bytes") != 0 || tier->max_bytes == 0)
        return;
    item->most = MIN(item->most, tier->max_bytes);
    item->least = MAX(item->least, tier_cache_least_bytes(t, config->lanes.count) +
                                       MIN(tier->array_bytes, CONFIG_BYTES_MAX));
}

/* One session's arena is a part of all of them. */
static void limit_value(const struct config *config, struct config_item *item)
{
    if (strcmp(item->name, "socket.max_arena_bytes") == 0)
        item->most = MIN(item->most, config->socket.max_total_arena_bytes);
}

static bool is_listed(const struct raw_data *raw, const char *directory)
{
    const uint32_t count = raw && raw->directories ? raw->directories_count : 0;

    for (uint32_t i = 0; i < count; i++)
        if (strcmp(raw->directories[i], directory) == 0)
            return true;
    return false;
}

/* A store may have others than its file lists. */
static enum embtier_err give_directories(const struct config *config, const struct raw_data *raw,
                                         struct config_item *item, config_item_fn *each,
                                         void *context)
{
    for (uint32_t i = 0; i < config->data.directory_count; i++) {
        item->in_file = is_listed(raw, config->data.directories[i]);
        snprintf(item->name, sizeof(item->name), "data.directories[%u]", i);
        snprintf(item->value, sizeof(item->value), "%s", config->data.directories[i]);
        TRY(each(context, item));
    }
    return EMBTIER_OK;
}

/* An address is shown as its file has it. */
static enum embtier_err give_addresses(const struct raw_rpc *raw, struct config_item *item,
                                       config_item_fn *each, void *context)
{
    const uint32_t count = raw && raw->listen ? raw->listen_count : 0;

    item->in_file = count > 0;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(item->name, sizeof(item->name), "rpc.listen[%u]", i);
        snprintf(item->value, sizeof(item->value), "%s", raw->listen[i]);
        TRY(each(context, item));
    }
    if (count > 0)
        return EMBTIER_OK;
    item->value[0] = '\0';
    return each(context, item);
}

static enum embtier_err give_tiers(const struct config *config, const struct raw_cache *raw,
                                   struct config_item *item, config_item_fn *each, void *context)
{
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        const bool in_file = raw && raw->tiers && t < raw->tiers_count;

        for (uint32_t i = 0; i < config_tier_key_count; i++) {
            take_key(item, &config_tier_keys[i]);
            limit_tier(config, t, item);
            item->in_file = in_file && is_in_section(item->key, &raw->tiers[t]);
            snprintf(item->name, sizeof(item->name), "cache.tiers[%u].%s", t, item->key->name);
            write_value(item->key, &config->cache.tiers[t], item->value);
            TRY(each(context, item));
        }
    }
    return EMBTIER_OK;
}

static enum embtier_err give_key(const struct config *config, const struct raw_config *raw,
                                 struct config_item *item, config_item_fn *each, void *context)
{
    const struct config_key *const key = item->key;
    const void *const section = *(void *const *)((const char *)raw + key->section_offset);

    snprintf(item->name, sizeof(item->name), "%s.%s", key->section, key->name);
    if (key->type == CONFIG_TIERS)
        return give_tiers(config, section, item, each, context);
    if (key->type == CONFIG_PATHS)
        return strcmp(key->section, "rpc") == 0
                   ? give_addresses(section, item, each, context)
                   : give_directories(config, section, item, each, context);
    limit_value(config, item);
    item->in_file = is_in_section(key, section);
    write_value(key, config, item->value);
    return each(context, item);
}

enum embtier_err config_each_item(const struct config *config, config_item_fn *each, void *context)
{
    static const struct raw_config nothing = { 0 };
    const struct raw_config *const data = config->doc ? yaml_doc_data(config->doc) : NULL;
    const struct raw_config *const raw = data ? data : &nothing;
    struct config_item item;

    for (uint32_t i = 0; i < config_key_count; i++) {
        take_key(&item, &config_keys[i]);
        TRY(give_key(config, raw, &item, each, context));
    }
    return EMBTIER_OK;
}

const char *config_item_allowed(struct config_allowed *buffer, const struct config_item *item)
{
    struct config_key key = *item->key;

    key.least = item->least;
    key.most = item->most;
    return config_allowed(buffer, &key);
}

/* ---- One item ---- */

struct search {
    const char *name;
    struct config_item *found;
    bool is_found;
    unsigned least;
    char nearest[CONFIG_ITEM_NAME_MAX + 1]; /* "": none is near */
};

/* A name further away is another word, not a slip. */
static unsigned distance_most(const char *wanted)
{
    return (unsigned)MAX(strlen(wanted) / 3, 1);
}

/* A name without its section is as near as its own letters say. */
static unsigned distance_of(const char *wanted, const char *name)
{
    const char *const last = strrchr(name, '.');
    const unsigned whole = edit_distance(wanted, name);

    return strchr(wanted, '.') || !last ? whole : MIN(whole, edit_distance(wanted, last + 1));
}

static enum embtier_err look_at(void *context, const struct config_item *item)
{
    struct search *const search = context;
    const unsigned distance = distance_of(search->name, item->name);

    if (strcmp(item->name, search->name) == 0) {
        *search->found = *item;
        search->is_found = true;
    }
    if (distance < search->least) {
        search->least = distance;
        memcpy(search->nearest, item->name, sizeof(search->nearest));
    }
    return EMBTIER_OK;
}

enum embtier_err config_find_item(const struct config *config, const char *name,
                                  struct config_item *ret_item, struct err_msg *msg)
{
    struct search search = { .name = name, .found = ret_item, .least = distance_most(name) + 1 };

    TRY(config_each_item(config, look_at, &search));
    if (search.is_found)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_NOT_FOUND,
                   "there is no knob `%s`%s%s%s; `embtier knob list` has all", TEXT_SHOWN(name),
                   search.nearest[0] ? "; the nearest name is `" : "", search.nearest,
                   search.nearest[0] ? "`" : "");
}

/* ---- Changing ---- */

/* Writes a whole configuration as YAML, in the order of the items. */
struct writer {
    FILE *out;
    const char *name; /* of the changed value */
    const char *value;
    char section[CONFIG_ITEM_NAME_MAX + 1]; /* that was begun last, with a dot */
    char list[CONFIG_ITEM_NAME_MAX + 1];    /* "cache.tiers[0]", the item of a list begun last */
};

/* Begins what the item lies in, and writes its name. */
static void write_name(struct writer *writer, const struct config_item *item)
{
    const char *const bracket = strchr(item->name, '[');
    const size_t place = bracket ? strcspn(bracket, "]") + (size_t)(bracket - item->name) + 1 : 0;
    const size_t section = strcspn(item->name, ".");
    const bool is_first = bracket && strncmp(bracket, "[0]", 3) == 0;

    if (strncmp(writer->section, item->name, section + 1) != 0) {
        snprintf(writer->section, sizeof(writer->section), "%.*s", (int)section + 1, item->name);
        fprintf(writer->out, "%.*s:\n", (int)section, item->name);
    }
    if (!bracket) {
        fprintf(writer->out, "  %s: ", item->name + section + 1);
        return;
    }
    if (strncmp(writer->list, item->name, place) == 0 && writer->list[0] != '\0') {
        fprintf(writer->out, "      %s: ", item->name + place + 1);
        return;
    }
    if (is_first)
        fprintf(writer->out, "  %.*s:\n", (int)(bracket - item->name - (ptrdiff_t)section - 1),
                item->name + section + 1);
    snprintf(writer->list, sizeof(writer->list), "%.*s", (int)place, item->name);
    if (item->name[place] == '.')
        fprintf(writer->out, "    - %s: ", item->name + place + 1);
    else
        fputs("    - ", writer->out);
}

static enum embtier_err write_item(void *context, const struct config_item *item)
{
    struct writer *const writer = context;
    const char *const value = strcmp(item->name, writer->name) == 0 ? writer->value : item->value;

    if (value[0] == '\0')
        return EMBTIER_OK;
    write_name(writer, item);
    yaml_write_value(writer->out, value);
    putc('\n', writer->out);
    return EMBTIER_OK;
}

enum embtier_err config_check_value(const struct config_item *item, const char *value,
                                    struct err_msg *msg)
{
    union {
        uint64_t number;
        char *text;
        char chars[CONFIG_ITEM_VALUE_MAX];
    } parsed = { .number = 0 };
    struct config_allowed allowed;
    enum embtier_err err;

    if (item->key->type == CONFIG_PATHS || item->key->type == CONFIG_TIERS)
        return EMBTIER_OK;
    if (strcmp(value, CONFIG_DEFAULT_WORD) == 0) /* as in a file */
        return EMBTIER_OK;
    err = config_value_parse(item->key, value, &parsed);
    if (err == EMBTIER_OK && item->key->type == CONFIG_TEXT)
        free(parsed.text);
    if (err == EMBTIER_INVALID)
        return err_set(msg, err, "%s: `%s` is not possible; allowed: %s", item->name,
                       TEXT_SHOWN(value), config_allowed(&allowed, item->key));
    return err == EMBTIER_OK ? err : err_set(msg, err, "%s: %s", item->name, err_text(err));
}

void config_cut_place(struct err_msg *msg)
{
    const size_t source = strlen(CHANGE_SOURCE);
    const char *const rest =
        strncmp(msg->text, CHANGE_SOURCE ":", source + 1) == 0 ? strstr(msg->text, ": ") : NULL;

    if (rest)
        memmove(msg->text, rest + 2, strlen(rest + 2) + 1);
}

enum embtier_err config_change(const struct config *config, const char *name, const char *value,
                               struct config **ret_config, struct err_msg *msg)
{
    struct writer writer = { .name = name, .value = value };
    _cleanup_(freep) char *text = NULL;
    size_t bytes = 0;
    struct config_item item;
    enum embtier_err err;

    TRY(config_find_item(config, name, &item, msg));
    TRY(config_check_value(&item, value, msg));
    writer.out = open_memstream(&text, &bytes);
    if (!writer.out)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    err = config_each_item(config, write_item, &writer);
    if (fclose(writer.out) != 0 || err != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    err = config_parse(CHANGE_SOURCE, text, bytes, &config->machine, config->unbudgeted, ret_config,
                       msg);
    if (err != EMBTIER_CONFIG)
        return err;
    config_cut_place(msg);
    return EMBTIER_INVALID;
}
