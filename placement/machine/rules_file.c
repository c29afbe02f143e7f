/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cyaml/cyaml.h>

#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/machine/rules.h"
#include "placement/machine/yaml_value.h"

#define ITEMS_MAX 65536
#define RATE_MAX  1e15

/* One item of `pin`, `forbid`, `reserve` or `cache_least`. */
struct raw_item {
    char *table, *memory, *gpu, *bytes;
};

struct raw_group {
    char **tables;
    uint32_t tables_count;
};

struct raw_limits {
#define X(name, word, text, unit) char *name;
    RULES_LIMIT_TABLE(X)
#undef X
};

struct raw_rules {
    char *target_samples_per_s, *moved_bytes_max, *least_gain;
    struct raw_limits *limits;
    struct raw_item *pin, *forbid, *reserve, *cache_least;
    struct raw_group *together;
    char **unsplit;
    uint32_t pin_count, forbid_count, reserve_count, cache_least_count, together_count;
    uint32_t unsplit_count;
};

#define FLAGS         (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER_NULL_STR)
#define TEXT(of, key) CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_##of, key, 0, CYAML_UNLIMITED)

static const cyaml_schema_field_t placed_fields[] = { TEXT(item, table), TEXT(item, memory),
                                                      TEXT(item, gpu), CYAML_FIELD_END };
static const cyaml_schema_field_t reserve_fields[] = { TEXT(item, memory), TEXT(item, gpu),
                                                       TEXT(item, bytes), CYAML_FIELD_END };
static const cyaml_schema_field_t cache_fields[] = { TEXT(item, memory), TEXT(item, bytes),
                                                     CYAML_FIELD_END };
static const cyaml_schema_value_t name_schema = { CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0,
                                                                     CYAML_UNLIMITED) };
static const cyaml_schema_field_t group_fields[] = {
    CYAML_FIELD_SEQUENCE("tables", FLAGS, struct raw_group, tables, &name_schema, 2, ITEMS_MAX),
    CYAML_FIELD_END
};
static const cyaml_schema_field_t limit_fields[] = {
#define X(name, word, text, unit)                                                                  \
    CYAML_FIELD_STRING_PTR(word, FLAGS, struct raw_limits, name, 0, CYAML_UNLIMITED),
    RULES_LIMIT_TABLE(X)
#undef X
        CYAML_FIELD_END
};
static const cyaml_schema_value_t placed_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_item, placed_fields) };
static const cyaml_schema_value_t reserve_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_item, reserve_fields) };
static const cyaml_schema_value_t cache_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_item, cache_fields) };
static const cyaml_schema_value_t group_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_group, group_fields) };

#define LIST(key, schema)                                                                          \
    CYAML_FIELD_SEQUENCE(#key, FLAGS, struct raw_rules, key, schema, 0, ITEMS_MAX)
static const cyaml_schema_field_t rules_fields[] = {
    TEXT(rules, target_samples_per_s),
    TEXT(rules, moved_bytes_max),
    TEXT(rules, least_gain),
    CYAML_FIELD_MAPPING_PTR("limits", FLAGS, struct raw_rules, limits, limit_fields),
    LIST(pin, &placed_schema),
    LIST(forbid, &placed_schema),
    LIST(together, &group_schema),
    LIST(reserve, &reserve_schema),
    LIST(cache_least, &cache_schema),
    LIST(unsplit, &name_schema),
    CYAML_FIELD_END
};
static const cyaml_schema_value_t rules_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_POINTER, struct raw_rules, rules_fields) };

static const struct yaml_key target_key = {
    "target_samples_per_s", YAML_NUMBER, 0, 1e-6, RATE_MAX, 0, 0
};
static const struct yaml_key moved_key = { "moved_bytes_max", YAML_BYTES, NAN, 0,
                                           MACHINE_BYTES_MAX, 0,          0 };
static const struct yaml_key gain_key = { "least_gain", YAML_NUMBER, RULES_LEAST_GAIN, 0, 1, 0, 0 };
static const struct yaml_key bytes_key = { "bytes", YAML_BYTES, NAN, 1, MACHINE_BYTES_MAX, 0, 0 };

/* The file, and the names that it may use. */
struct reading {
    const struct yaml_doc *doc;
    const struct machine *machine;
    const char *const *names;
    uint32_t table_count;
    struct rules *rules;
};

/* ---- Names ---- */

static enum embtier_err find_table(const struct reading *r, const char *key, const char *name,
                                   uint32_t *ret_table, struct err_msg *msg)
{
    if (!name)
        return yaml_doc_mistake(r->doc, key, msg, "is missing; allowed: a table of the profile");
    for (uint32_t i = 0; i < r->table_count; i++)
        if (strcmp(r->names[i], name) == 0) {
            *ret_table = i;
            return EMBTIER_OK;
        }
    return yaml_doc_mistake(r->doc, key, msg,
                            "there is no table `%s`; allowed: a table of the profile, such as `%s`",
                            TEXT_SHOWN(name), TEXT_SHOWN(r->names[0]));
}

struct memory_names {
    char text[(TIER_NAME_MAX + 3) * (TIERS_MAX + 2)];
};

static const char *memory_names(struct memory_names *buffer, const struct machine *machine,
                                uint32_t first, uint32_t count)
{
    size_t used = 0;

    for (uint32_t i = first; i < first + count; i++)
        used += (size_t)snprintf(buffer->text + used, sizeof(buffer->text) - used, "%s%s",
                                 i > first ? ", " : "", machine_memory_name(machine, i));
    return buffer->text;
}

/* Finds one of @count memories from @first on. */
static enum embtier_err find_memory(const struct reading *r, const char *key, const char *name,
                                    uint32_t first, uint32_t count, uint32_t *ret_memory,
                                    struct err_msg *msg)
{
    const uint32_t memory = name ? machine_find_memory(r->machine, name) : MACHINE_NO_MEMORY;
    struct memory_names names;

    if (memory >= first && memory < first + count) {
        *ret_memory = memory;
        return EMBTIER_OK;
    }
    return yaml_doc_mistake(r->doc, key, msg, "%s%s%s; allowed: %s", name ? "`" : "",
                            name ? TEXT_SHOWN(name) : "is missing", name ? "` cannot be here" : "",
                            memory_names(&names, r->machine, first, count));
}

static enum embtier_err find_gpu(const struct reading *r, const char *key, const char *text,
                                 uint32_t *ret_gpu, struct err_msg *msg)
{
    const struct yaml_key gpu_key = {
        "gpu", YAML_COUNT, NAN, 0, MAX(r->machine->gpu_count, 1u) - 1.0, 0, 0
    };

    if (!text) {
        *ret_gpu = MODEL_ANY;
        return EMBTIER_OK;
    }
    if (r->machine->gpu_count == 0)
        return yaml_doc_mistake(r->doc, key, msg, "the machine has no GPUs; allowed: no `gpu`");
    return yaml_value_parse(r->doc, &gpu_key, key, text, ret_gpu, msg);
}

/* ---- Lists ---- */

#define ITEM_KEY(list, i, name) yaml_item_key(&(struct yaml_key_text){ { 0 } }, list, i, name)

/* @i: the item of the list that the rule comes from. */
static void add(struct reading *r, const char *list, uint32_t i, struct model_rule rule)
{
    struct rule_name *const name = &r->rules->names[r->rules->rule_count];
    struct yaml_key_text key;

    yaml_item_key(&key, list, i, "");
    yaml_doc_place(r->doc, key.text, name->text, sizeof(name->text));
    rule.name = name->text;
    r->rules->rules[r->rules->rule_count++] = rule;
}

/* An item of `pin` or `forbid`. */
static enum embtier_err take_placed(struct reading *r, const char *list, uint32_t i,
                                    const struct raw_item *raw, enum model_rule_kind kind,
                                    struct err_msg *msg)
{
    struct model_rule rule = { .kind = kind, .memory = MODEL_ANY };

    TRY(find_table(r, ITEM_KEY(list, i, "table"), raw->table, &rule.table, msg));
    TRY(find_gpu(r, ITEM_KEY(list, i, "gpu"), raw->gpu, &rule.gpu, msg));
    if (raw->memory || !raw->gpu)
        TRY(find_memory(r, ITEM_KEY(list, i, "memory"), raw->memory, 0,
                        machine_memory_count(r->machine), &rule.memory, msg));
    add(r, list, i, rule);
    return EMBTIER_OK;
}

static enum embtier_err take_reserve(struct reading *r, uint32_t i, const struct raw_item *raw,
                                     struct err_msg *msg)
{
    struct model_rule rule = { .kind = MODEL_RESERVE };

    TRY(find_memory(r, ITEM_KEY("reserve", i, "memory"), raw->memory, 0, machine_cache(r->machine),
                    &rule.memory, msg));
    TRY(find_gpu(r, ITEM_KEY("reserve", i, "gpu"), raw->gpu, &rule.gpu, msg));
    if (raw->gpu && rule.memory >= machine_first_tier(r->machine))
        return yaml_doc_mistake(r->doc, ITEM_KEY("reserve", i, "gpu"), msg,
                                "all GPUs share `%s`; allowed: only with hbm", raw->memory);
    TRY(yaml_value_parse(r->doc, &bytes_key, ITEM_KEY("reserve", i, "bytes"), raw->bytes,
                         &rule.bytes, msg));
    add(r, "reserve", i, rule);
    return EMBTIER_OK;
}

static enum embtier_err take_cache_least(struct reading *r, uint32_t i, const struct raw_item *raw,
                                         struct err_msg *msg)
{
    const uint32_t first = machine_first_tier(r->machine);
    uint32_t memory = first;
    uint64_t bytes = 0;

    TRY(find_memory(r, ITEM_KEY("cache_least", i, "memory"), raw->memory, first,
                    r->machine->tier_count, &memory, msg));
    TRY(yaml_value_parse(r->doc, &bytes_key, ITEM_KEY("cache_least", i, "bytes"), raw->bytes,
                         &bytes, msg));
    if (r->rules->cache_least_bytes[memory - first] > 0)
        return yaml_doc_mistake(r->doc, ITEM_KEY("cache_least", i, "memory"), msg,
                                "`%s` is given twice; allowed: once", raw->memory);
    if (bytes > r->machine->tiers[memory - first].bytes)
        return yaml_doc_mistake(r->doc, ITEM_KEY("cache_least", i, "bytes"), msg,
                                "%s is more than there is; allowed: 1B to %s", BYTES_TEXT(bytes),
                                BYTES_TEXT(r->machine->tiers[memory - first].bytes));
    r->rules->cache_least_bytes[memory - first] = bytes;
    return EMBTIER_OK;
}

/* Each table is tied to the group's first. */
static enum embtier_err take_group(struct reading *r, uint32_t group, const struct raw_group *raw,
                                   struct err_msg *msg)
{
    struct model_rule rule = { .kind = MODEL_TOGETHER };
    struct yaml_key_text list, key;

    yaml_item_key(&list, "together", group, "tables");
    if (!raw->tables || raw->tables_count < 2)
        return yaml_doc_mistake(r->doc, list.text, msg,
                                "names fewer than two tables; allowed: two or more");
    for (uint32_t i = 0; i < raw->tables_count; i++) {
        yaml_item_key(&key, list.text, i, "");
        TRY(find_table(r, key.text, raw->tables[i], i == 0 ? &rule.table : &rule.other, msg));
        if (i > 0)
            add(r, "together", group, rule);
    }
    return EMBTIER_OK;
}

static enum embtier_err take_unsplit(struct reading *r, const struct raw_rules *raw,
                                     struct err_msg *msg)
{
    struct yaml_key_text key;
    uint32_t table = 0;

    if (raw->unsplit_count == 0)
        return EMBTIER_OK;
    r->rules->unsplit = calloc(r->table_count, sizeof(*r->rules->unsplit));
    if (!r->rules->unsplit)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < raw->unsplit_count; i++) {
        yaml_item_key(&key, "unsplit", i, "");
        TRY(find_table(r, key.text, raw->unsplit[i], &table, msg));
        r->rules->unsplit[table] = true;
    }
    return EMBTIER_OK;
}

static enum embtier_err take_lists(struct reading *r, const struct raw_rules *raw,
                                   struct err_msg *msg)
{
    for (uint32_t i = 0; i < raw->pin_count; i++)
        TRY(take_placed(r, "pin", i, &raw->pin[i], MODEL_PIN, msg));
    for (uint32_t i = 0; i < raw->forbid_count; i++)
        TRY(take_placed(r, "forbid", i, &raw->forbid[i], MODEL_FORBID, msg));
    for (uint32_t i = 0; i < raw->together_count; i++)
        TRY(take_group(r, i, &raw->together[i], msg));
    for (uint32_t i = 0; i < raw->reserve_count; i++)
        TRY(take_reserve(r, i, &raw->reserve[i], msg));
    for (uint32_t i = 0; i < raw->cache_least_count; i++)
        TRY(take_cache_least(r, i, &raw->cache_least[i], msg));
    return take_unsplit(r, raw, msg);
}

/* ---- All ---- */

static enum embtier_err take_limits(struct reading *r, const struct raw_limits *raw,
                                    struct err_msg *msg)
{
    const char *const texts[] = {
#define X(name, word, text, unit) [LIMIT_##name] = raw->name,
        RULES_LIMIT_TABLE(X)
#undef X
    };

    for (uint32_t i = 0; i < RULES_LIMITS; i++) {
        char key[64];

        if (!texts[i])
            continue;
        r->rules->warns[i] = strcmp(texts[i], "warning") == 0;
        snprintf(key, sizeof(key), "limits.%s", rules_limit_word(i));
        if (!r->rules->warns[i] && strcmp(texts[i], "error") != 0)
            return yaml_doc_mistake(r->doc, key, msg,
                                    "`%s` is not possible; allowed: error, warning",
                                    TEXT_SHOWN(texts[i]));
    }
    return EMBTIER_OK;
}

static uint64_t most_rules(const struct raw_rules *raw)
{
    uint64_t count =
        (uint64_t)raw->pin_count + raw->forbid_count + raw->reserve_count + raw->cache_least_count;

    for (uint32_t i = 0; i < raw->together_count; i++)
        count += raw->together[i].tables_count;
    return count;
}

static void note_place(const struct yaml_doc *doc, const struct yaml_key *key,
                       struct rule_name *place)
{
    yaml_doc_place(doc, key->name, place->text, sizeof(place->text));
}

static enum embtier_err take(struct reading *r, const struct raw_rules *raw, struct err_msg *msg)
{
    r->rules->rules = calloc(most_rules(raw) + 1, sizeof(*r->rules->rules));
    r->rules->names = calloc(most_rules(raw) + 1, sizeof(*r->rules->names));
    if (!r->rules->rules || !r->rules->names)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(yaml_value_parse(r->doc, &target_key, target_key.name, raw->target_samples_per_s,
                         &r->rules->target_samples_per_s, msg));
    if (raw->moved_bytes_max)
        TRY(yaml_value_parse(r->doc, &moved_key, moved_key.name, raw->moved_bytes_max,
                             &r->rules->moved_bytes_max, msg));
    TRY(yaml_value_parse(r->doc, &gain_key, gain_key.name, raw->least_gain, &r->rules->least_gain,
                         msg));
    note_place(r->doc, &target_key, &r->rules->target_place);
    note_place(r->doc, &moved_key, &r->rules->moved_place);
    if (raw->limits)
        TRY(take_limits(r, raw->limits, msg));
    return take_lists(r, raw, msg);
}

enum embtier_err rules_file_load(const char *path, const struct machine *machine,
                                 const char *const *names, uint32_t table_count,
                                 struct rules **ret_rules, struct err_msg *msg)
{
    static const struct raw_rules nothing = { 0 };
    _cleanup_(yaml_doc_freep) struct yaml_doc *doc = NULL;
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct reading reading = { .machine = machine, .names = names, .table_count = table_count };
    const struct raw_rules *raw;

    TRY(yaml_doc_load(path, &rules_schema, &doc, msg));
    if (rules_new(&rules) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    reading.doc = doc;
    reading.rules = rules;
    raw = yaml_doc_data(doc);
    TRY(take(&reading, raw ? raw : &nothing, msg));
    *ret_rules = TAKE(rules);
    return EMBTIER_OK;
}
