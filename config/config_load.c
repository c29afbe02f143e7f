/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a configuration in four steps. The text becomes strings along the schema (yaml_doc.c). Each
 * string, or its default, is parsed by one table (config_keys.c). Defaults that depend on the
 * machine are computed. Values that belong together are checked. config_machine.c checks the things
 * outside the text. */
#include "config/config_load.h"
#include "base/text/bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "base/spec/day_hours.h"
#include "base/text/text_escape.h"
#include "base/yaml/yaml_doc.h"
#include "config/config_descriptors.h"
#include "config/config_keys.h"
#include "config/config_memory.h"

struct key_text {
    char text[96];
};

static const char *tier_key(struct key_text *buffer, uint32_t tier, const char *name)
{
    snprintf(buffer->text, sizeof(buffer->text), "cache.tiers[%u]%s%s", tier,
             name[0] != '\0' ? "." : "", name);
    return buffer->text;
}
#define TIER_KEY(tier, name) tier_key(&(struct key_text){ { 0 } }, (tier), (name))

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

/* Stores one value. @raw is the section as it was written, or NULL. */
static enum embtier_err take_value(const struct yaml_doc *doc, const struct config_key *key,
                                   const char *name, const void *raw, void *into,
                                   struct err_msg *msg)
{
    const char *text = raw ? *(char *const *)((const char *)raw + key->raw_offset) : NULL;
    struct config_allowed allowed;
    enum embtier_err err;

    if (!text && config_default_is_computed(key))
        return EMBTIER_OK;
    err = config_value_parse(key, text ? text : key->default_text, (char *)into + key->offset);
    if (err == EMBTIER_NO_MEMORY)
        return no_memory(msg);
    if (err != EMBTIER_OK)
        return yaml_doc_mistake(doc, name, msg, "`%s` is not possible; allowed: %s",
                                TEXT_SHOWN(text ? text : key->default_text),
                                config_allowed(&allowed, key));
    return EMBTIER_OK;
}

static enum embtier_err take_directories(struct config *config, const struct raw_data *raw,
                                         struct err_msg *msg)
{
    const uint32_t count = raw && raw->directories ? raw->directories_count : 0;

    config->data.directories = calloc(MAX(count, 1u), sizeof(char *));
    if (!config->data.directories)
        return no_memory(msg);
    config->data.directory_count = MAX(count, 1u);
    config->data.is_default = count == 0;
    config->data.must_exist = count > 0;
    if (count == 0)
        TRY(default_data_directory(&config->data.directories[0], msg));
    for (uint32_t i = 0; i < count; i++)
        config->data.directories[i] = strdup(raw->directories[i]);
    for (uint32_t i = 0; i < config->data.directory_count; i++)
        if (!config->data.directories[i])
            return no_memory(msg);
    return EMBTIER_OK;
}

static enum embtier_err take_addresses(struct config *config, const struct raw_rpc *raw,
                                       struct err_msg *msg)
{
    const uint32_t count = raw && raw->listen ? raw->listen_count : 0;

    if (count > CONFIG_LISTEN_MAX)
        return yaml_doc_mistake(config->doc, "rpc.listen", msg, "%u addresses; allowed: 1 to %d",
                                count, CONFIG_LISTEN_MAX);
    config->rpc.listen_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct address *const address = &config->rpc.listen[i];
        struct err_msg why = { { 0 } };
        enum embtier_err err = address_parse(raw->listen[i], address, &why);
        struct key_text key;

        if (err == EMBTIER_OK && address->kind == ADDRESS_UNIX)
            err = err_set(&why, EMBTIER_INVALID,
                          "`%s` is an address for shared memory; allowed: tls://HOST:PORT, "
                          "tcp://HOST:PORT, unix+rpc:PATH",
                          TEXT_SHOWN(raw->listen[i]));
        if (err == EMBTIER_OK && address_has_options(address))
            err =
                err_set(&why, EMBTIER_INVALID,
                        "`%s` has options of a client's address; files of the server are named in "
                        "the section tls",
                        TEXT_SHOWN(raw->listen[i]));
        snprintf(key.text, sizeof(key.text), "rpc.listen[%u]", i);
        if (err != EMBTIER_OK)
            return yaml_doc_mistake(config->doc, key.text, msg, "%s", why.text);
    }
    return EMBTIER_OK;
}

static enum embtier_err take_http(struct config *config, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };

    if (config->http.listen &&
        address_parse_http(config->http.listen, &config->http.address, &why) != EMBTIER_OK)
        return yaml_doc_mistake(config->doc, "http.listen", msg, "%s", why.text);
    return EMBTIER_OK;
}

static enum embtier_err take_tiers(struct config *config, const struct raw_cache *raw,
                                   struct err_msg *msg)
{
    const uint32_t count = raw && raw->tiers ? raw->tiers_count : 0;

    config->cache.tier_count = count;
    for (uint32_t t = 0; t < count; t++) {
        struct tier_spec *tier = &config->cache.tiers[t];

        tier->numa_node = -1;
        for (uint32_t i = 0; i < config_tier_key_count; i++)
            TRY(take_value(config->doc, &config_tier_keys[i], TIER_KEY(t, config_tier_keys[i].name),
                           &raw->tiers[t], tier, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err take_values(struct config *config, const struct raw_config *raw,
                                    struct err_msg *msg)
{
    static const struct raw_config nothing = { 0 };

    if (!raw)
        raw = &nothing;
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        const void *section = *(void *const *)((const char *)raw + key->section_offset);
        struct key_text name;

        if (key->type == CONFIG_PATHS || key->type == CONFIG_TIERS)
            continue;
        snprintf(name.text, sizeof(name.text), "%s.%s", key->section, key->name);
        TRY(take_value(config->doc, key, name.text, section, config, msg));
    }
    TRY(take_directories(config, raw->data, msg));
    TRY(take_addresses(config, raw->rpc, msg));
    TRY(take_http(config, msg));
    return take_tiers(config, raw->cache, msg);
}

static const char *kind_word(enum tier_kind kind)
{
    switch (kind) {
#define X(name, word, text)                                                                        \
    case TIER_KIND_##name:                                                                         \
        return word;
        TIER_KIND_TABLE(X)
#undef X
    case TIER_KIND_COUNT:
        break;
    }
    return "?";
}

/* Returns the row cache's part of a tier. */
static uint64_t cache_bytes(const struct tier_spec *tier)
{
    return tier->bytes - MIN(tier->bytes, tier->array_bytes);
}

/* Gives no more lanes than the cache has room for: a small cache on a large machine is not a
 * mistake. */
static uint32_t default_lanes(const struct config *config)
{
    uint64_t lanes = MIN(config->machine.core_count, 8u);

    lanes = MIN(lanes, config_shard_count(config));
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        if (config->cache.tiers[t].bytes > 0)
            lanes = MIN(lanes, cache_bytes(&config->cache.tiers[t]) / tier_cache_least_bytes(t, 1));
    return (uint32_t)MAX(lanes, 1u);
}

/* Returns a quarter of the machine's memory, or half of the memory that everything else
 * leaves. The first tier and the shared arenas get this much each. */
static uint64_t default_memory(const struct config *config)
{
    const uint32_t lanes = config->lanes.count > 0 ? config->lanes.count : default_lanes(config);
    const uint64_t all = config->machine.memory_bytes;
    const uint64_t left = all - MIN(all, config_memory_fixed(config, lanes));

    return MAX(MIN(all / 4, left / 2), MIB);
}

/* A limit of one user that is not set stays 0; accounts share such limits out
 * (daemon/engine/memory/accounts.h). A single client gets an arena of the default size. */
static void compute_arena_defaults(struct config *config)
{
    const uint64_t total = config->socket.max_total_arena_bytes;
    const bool is_shared = config->socket.max_user_arena_bytes == 0;
    const uint64_t alone =
        is_shared ? total / 4 * 3 : MIN(config->socket.max_user_arena_bytes, total);

    if (config->socket.max_arena_bytes == 0)
        config->socket.max_arena_bytes = MIN(GIB, alone);
    else if (is_shared && config->socket.max_arena_bytes > alone)
        config->socket.max_user_arena_bytes = config->socket.max_arena_bytes;
}

/* A tier may grow by this without max_bytes. */
#define ROOM_TIMES_MOST 16
/* The cache's list of slabs takes 1/64 of the first tier if all tiers have this many times the
 * first one's bytes. */
#define ROOM_OF_FIRST UINT64_C(1024)

/* Returns the size to which a tier may grow, if it may grow @times. Huge pages are set aside at the
 * start. */
static uint64_t tier_room(const struct config *config, uint32_t t, uint64_t times)
{
    const struct tier_spec *const tier = &config->cache.tiers[t];
    const uint64_t most = config_tier_kind_is_memory(tier)
                              ? MAX(tier->bytes, config->machine.memory_bytes)
                              : CONFIG_BYTES_MAX;

    if (tier->max_bytes > 0)
        return tier->max_bytes;
    if (tier->kind == TIER_KIND_DRAM_HUGE)
        return tier->bytes;
    return MIN(MIN(tier->bytes, CONFIG_BYTES_MAX / times) * times, most);
}

static uint64_t tiers_room(const struct config *config, uint64_t times)
{
    uint64_t sum = 0;

    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        sum += MIN(tier_room(config, t, times), CONFIG_BYTES_MAX);
    return sum;
}

/* Room costs some memory of the first tier, and much of it makes rows lie on longer boundaries. So
 * the default is less for a cache that it would harm. */
static void compute_tier_room(struct config *config)
{
    const uint64_t bytes = tiers_room(config, 1);
    uint64_t fine = config->lanes.count * TIER_FINE_LANE_BYTES, times = ROOM_TIMES_MOST;

    while (fine < bytes)
        fine *= 2;
    while (times > 1 && (tiers_room(config, times) > fine ||
                         tiers_room(config, times) / ROOM_OF_FIRST > config->cache.tiers[0].bytes))
        times /= 2;
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        config->cache.tiers[t].max_bytes = tier_room(config, t, times);
}

static enum embtier_err compute_defaults(struct config *config, struct err_msg *msg)
{
    uint64_t share, dram_bytes;

    config_descriptors_plan(config,
                            config->lanes.count > 0 ? config->lanes.count : default_lanes(config));
    if (config->checkpoints.transfer_bytes == 0)
        config->checkpoints.transfer_bytes = config_transfer_default(config);
    share = default_memory(config);
    dram_bytes = MIN(GIB, share) / TIER_SLAB_BYTES * TIER_SLAB_BYTES;
    if (config->cache.tier_count == 0) {
        config->cache.tiers[0] = (struct tier_spec){
            .kind = TIER_KIND_DRAM,
            .bytes = MAX(dram_bytes, tier_cache_least_bytes(0, 1)),
            .numa_node = -1,
        };
        config->cache.tier_count = 1;
    }
    for (uint32_t t = 0; t < config->cache.tier_count; t++) {
        struct tier_spec *tier = &config->cache.tiers[t];

        if (tier->name[0] == '\0')
            snprintf(tier->name, sizeof(tier->name), "%s", kind_word(tier->kind));
    }
    if (config->lanes.count == 0)
        config->lanes.count = default_lanes(config);
    compute_tier_room(config);
    if (config->socket.max_total_arena_bytes == 0)
        config->socket.max_total_arena_bytes = MIN(4 * GIB, share);
    compute_arena_defaults(config);
    config->socket.is_default = !config->socket.path;
    if (config->socket.is_default) {
        config->socket.is_users = default_socket_is_users();
        config->socket.path = default_socket_path();
        if (!config->socket.path)
            return no_memory(msg);
    }
    return EMBTIER_OK;
}

/* Sources of rows other than tiers, in the metric lookup_rows. */
static const char *const sources[] = { "array", "write_queue", "ssd", "initial" };

static enum embtier_err check_tier_room(const struct config *config, uint32_t t,
                                        struct err_msg *msg)
{
    const struct tier_spec *const tier = &config->cache.tiers[t];

    if (tier->bytes > tier->max_bytes)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "bytes"), msg,
                                "%s is more than max_bytes; allowed: at most the %s of that",
                                BYTES_TEXT(tier->bytes), BYTES_TEXT(tier->max_bytes));
    return EMBTIER_OK;
}

static enum embtier_err check_tier(const struct config *config, uint32_t t, struct err_msg *msg)
{
    const struct tier_spec *tier = &config->cache.tiers[t];
    const uint64_t least = tier_cache_least_bytes(t, config->lanes.count);
    const char *word = kind_word(tier->kind);

    if (t == 0 && tier->kind != TIER_KIND_DRAM && tier->kind != TIER_KIND_DRAM_HUGE)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "kind"), msg,
                                "the first tier is `%s`; allowed: dram, dram_huge", word);
    if (tier->bytes == 0)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "bytes"), msg,
                                "is missing; allowed: at least %s", BYTES_TEXT(least));
    if (tier->bytes < least)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "bytes"), msg,
                                "%s is too little for %u lane%s; allowed: at least %s",
                                BYTES_TEXT(tier->bytes), config->lanes.count,
                                PLURAL(config->lanes.count), BYTES_TEXT(least));
    if (cache_bytes(tier) < least)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "array_bytes"), msg,
                                "%s of %s leave too little to the row cache of %u lane%s; allowed: "
                                "at most %s",
                                BYTES_TEXT(tier->array_bytes), BYTES_TEXT(tier->bytes),
                                config->lanes.count, PLURAL(config->lanes.count),
                                BYTES_TEXT(tier->bytes - least));
    if (tier->kind == TIER_KIND_FILE && tier->path[0] == '\0')
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "path"), msg,
                                "is missing; allowed: a directory, for kind file");
    if (tier->kind != TIER_KIND_FILE && tier->path[0] != '\0')
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "path"), msg,
                                "kind %s has no path; allowed: only with kind file", word);
    if (tier->kind == TIER_KIND_NUMA && tier->numa_node < 0)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "numa_node"), msg,
                                "is missing; allowed: the number of a NUMA node, for kind numa");
    if (tier->kind != TIER_KIND_NUMA && tier->numa_node >= 0)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "numa_node"), msg,
                                "kind %s has no NUMA node; allowed: only with kind numa", word);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        if (strcmp(sources[i], tier->name) == 0)
            return yaml_doc_mistake(config->doc, TIER_KEY(t, "name"), msg,
                                    "`%s` means something else in statistics; allowed: another "
                                    "name",
                                    tier->name);
    if (tier->array_bytes > 0 && tier->array_bytes < TIER_SLAB_BYTES)
        return yaml_doc_mistake(config->doc, TIER_KEY(t, "array_bytes"), msg,
                                "%s is too little for an array; allowed: 0, and at least %s",
                                BYTES_TEXT(tier->array_bytes), BYTES_TEXT(TIER_SLAB_BYTES));
    for (uint32_t other = 0; other < t; other++)
        if (strcmp(config->cache.tiers[other].name, tier->name) == 0)
            return yaml_doc_mistake(config->doc, TIER_KEY(t, "name"), msg,
                                    "tier %u has the name `%s` too; allowed: a name of its own",
                                    other, tier->name);
    return check_tier_room(config, t, msg);
}

/* Trailing slashes do not make another directory. */
static size_t path_length(const char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

static enum embtier_err check_directories(const struct config *config, struct err_msg *msg)
{
    char **directories = config->data.directories;

    for (uint32_t i = 0; i < config->data.directory_count; i++) {
        const size_t length = path_length(directories[i]);

        for (uint32_t j = 0; j < i; j++) {
            struct key_text key;

            if (length != path_length(directories[j]) ||
                strncmp(directories[i], directories[j], length) != 0)
                continue;
            snprintf(key.text, sizeof(key.text), "data.directories[%u]", i);
            return yaml_doc_mistake(config->doc, key.text, msg,
                                    "`%s` is listed twice; allowed: each directory once",
                                    TEXT_SHOWN(directories[i]));
        }
    }
    if (config_shard_count(config) > CONFIG_SHARDS_MAX)
        return yaml_doc_mistake(
            config->doc, "data.shards_per_directory", msg,
            "%u shard%s in each of %u directories make %u shards; allowed: %u in all",
            config->data.shards_per_directory, PLURAL(config->data.shards_per_directory),
            config->data.directory_count, config_shard_count(config), CONFIG_SHARDS_MAX);
    return EMBTIER_OK;
}

static enum embtier_err check_tls(const struct config *config, struct err_msg *msg)
{
    const bool has_certificate = config->tls.certificate != NULL;
    const bool has_key = config->tls.key != NULL;

    if (has_certificate != has_key)
        return yaml_doc_mistake(config->doc, has_key ? "tls.key" : "tls.certificate", msg,
                                "a certificate and its key belong together; tls.%s is missing",
                                has_key ? "certificate" : "key");
    if (config_has_tls(config) && !has_certificate)
        return yaml_doc_mistake(config->doc, "rpc.listen", msg,
                                "an address with tls:// needs tls.certificate and tls.key "
                                "(`embtier keys` makes them)");
    if (config->tls.require_certificate && !config->tls.client_ca)
        return yaml_doc_mistake(config->doc, "tls.require_certificate", msg,
                                "clients must show a certificate, but tls.client_ca, which says "
                                "whose, is missing");
    return EMBTIER_OK;
}

static enum embtier_err check_compaction_hours(const struct config *config, struct err_msg *msg)
{
    struct day_hours hours;
    struct err_msg why = { { 0 } };

    if (!config->rocksdb.compaction_hours ||
        day_hours_parse(config->rocksdb.compaction_hours, &hours, &why) == EMBTIER_OK)
        return EMBTIER_OK;
    return yaml_doc_mistake(config->doc, "rocksdb.compaction_hours", msg, "%s", why.text);
}

static enum embtier_err check_compaction_bytes(const struct config *config, struct err_msg *msg)
{
    const uint64_t bytes = config->rocksdb.compaction_bytes_per_second;

    if (bytes == 0 || bytes >= CONFIG_MIB)
        return EMBTIER_OK;
    return yaml_doc_mistake(
        config->doc, "rocksdb.compaction_bytes_per_second", msg,
        "%s is too little to keep up with any updates; allowed: at least 1 MiB, "
        "or 0 for no limit",
        BYTES_TEXT(bytes));
}

static enum embtier_err check_together(const struct config *config, struct err_msg *msg)
{
    TRY(check_directories(config, msg));
    TRY(config_transfer_check(config, msg));
    TRY(check_tls(config, msg));
    if (config->lanes.count > config_shard_count(config))
        return yaml_doc_mistake(config->doc, "lanes.count", msg,
                                "%u lanes, but %u shard%s; allowed: at most one lane per shard",
                                config->lanes.count, config_shard_count(config),
                                PLURAL(config_shard_count(config)));
    for (uint32_t t = 0; t < config->cache.tier_count; t++)
        TRY(check_tier(config, t, msg));
    TRY(check_compaction_hours(config, msg));
    TRY(check_compaction_bytes(config, msg));
    if (config->socket.max_arena_bytes > config->socket.max_total_arena_bytes)
        return yaml_doc_mistake(config->doc, "socket.max_arena_bytes", msg,
                                "%s is more than socket.max_total_arena_bytes; allowed: at most %s",
                                BYTES_TEXT(config->socket.max_arena_bytes),
                                BYTES_TEXT(config->socket.max_total_arena_bytes));
    /* A path from the environment has not passed the table's check. */
    if (strlen(config->socket.path) > 107)
        return yaml_doc_mistake(config->doc, "socket.path", msg,
                                "`%s` is too long; allowed: at most 107 bytes",
                                TEXT_SHOWN(config->socket.path));
    if (config->machine.descriptor_limit > 0)
        TRY(config_descriptors_check(config, config->machine.descriptor_limit, msg));
    return config_memory_check(config, config_tier_kind_is_memory, msg);
}

/* Takes ownership of @doc. */
static enum embtier_err config_from(struct yaml_doc *doc, const char *source,
                                    const struct machine *machine, config_unbudgeted_fn *unbudgeted,
                                    struct config **ret_config, struct err_msg *msg)
{
    _cleanup_(config_freep) struct config *config = calloc(1, sizeof(*config));

    if (!config) {
        yaml_doc_free(doc);
        return no_memory(msg);
    }
    config->doc = doc;
    config->machine = *machine;
    config->unbudgeted = unbudgeted;
    if (source) {
        config->source = strdup(source);
        if (!config->source)
            return no_memory(msg);
    }
    TRY(take_values(config, doc ? yaml_doc_data(doc) : NULL, msg));
    TRY(compute_defaults(config, msg));
    TRY(check_together(config, msg));
    *ret_config = TAKE(config);
    return EMBTIER_OK;
}

enum embtier_err config_parse(const char *source, const char *text, size_t text_bytes,
                              const struct machine *machine, config_unbudgeted_fn *unbudgeted,
                              struct config **ret_config, struct err_msg *msg)
{
    struct yaml_doc *doc = NULL;

    TRY(yaml_doc_parse(source, text, text_bytes, &config_schema, &doc, msg));
    return config_from(doc, source, machine, unbudgeted, ret_config, msg);
}

enum embtier_err config_load_on(const char *path, const struct machine *machine,
                                config_unbudgeted_fn *unbudgeted, struct config **ret_config,
                                struct err_msg *msg)
{
    struct yaml_doc *doc = NULL;

    if (path)
        TRY(yaml_doc_load(path, &config_schema, &doc, msg));
    return config_from(doc, path, machine, unbudgeted, ret_config, msg);
}

enum embtier_err config_load(const char *path, config_unbudgeted_fn *unbudgeted,
                             struct config **ret_config, struct err_msg *msg)
{
    struct machine machine;

    machine_read(&machine);
    return config_load_on(path, &machine, unbudgeted, ret_config, msg);
}
