/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/machine/machine_file.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cyaml/cyaml.h>

#include "base/spec/table_spec.h"
#include "base/text/bytes.h"
#include "base/text/text_escape.h"
#include "placement/machine/yaml_value.h"

/* No drive is written more often, and none that is sold less often. */
#define DWPD_LEAST 0.001
#define DWPD_MOST  10000
#define PRICE_MAX  1e9

/* No server has fewer. One whose configuration says nothing takes fewer lanes if arrays leave its
 * cache little. */
#define LANES_LEAST 1

/* K(section, key, kind, default or NAN, least, most, member). Sizes and bandwidths have no
 * default: there is no machine that is like most. */
#define GPU_KEYS(K)                                                                                \
    K(gpus, count, COUNT, NAN, 1, MACHINE_GPUS_MAX, gpu_count)                                     \
    K(gpus, hbm_bytes, BYTES, NAN, 1, MACHINE_BYTES_MAX, hbm_bytes)                                \
    K(gpus, hbm_bandwidth_bytes_per_s, RATE, NAN, 1, MACHINE_BANDWIDTH_MAX,                        \
      hbm_bandwidth_bytes_per_s)                                                                   \
    K(gpus, hbm_cost_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, hbm_price.cost_per_gb)         \
    K(gpus, hbm_power_w_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, hbm_price.power_w_per_gb)
#define TIER_KEYS(K)                                                                               \
    K(tier, bytes, BYTES, NAN, 1, MACHINE_BYTES_MAX, bytes)                                        \
    K(tier, bandwidth_bytes_per_s, RATE, NAN, 1, MACHINE_BANDWIDTH_MAX, bandwidth_bytes_per_s)     \
    K(tier, cost_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, price.cost_per_gb)                 \
    K(tier, power_w_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, price.power_w_per_gb)
/* 0 is the absence of a limit. Blocks of 4 KiB are those of the store's table files. */
#define SSD_KEYS(K)                                                                                \
    K(ssd, bytes, BYTES, NAN, 1, MACHINE_BYTES_MAX, bytes)                                         \
    K(ssd, read_bandwidth_bytes_per_s, RATE, NAN, 1, MACHINE_BANDWIDTH_MAX,                        \
      read_bandwidth_bytes_per_s)                                                                  \
    K(ssd, write_bandwidth_bytes_per_s, RATE, 0, 1, MACHINE_BANDWIDTH_MAX,                         \
      write_bandwidth_bytes_per_s)                                                                 \
    K(ssd, read_iops, NUMBER, 0, 1, 1e12, read_iops)                                               \
    K(ssd, block_bytes, COUNT, 4096, 512, 1048576, block_bytes)                                    \
    K(ssd, drive_writes_per_day, NUMBER, 0, DWPD_LEAST, DWPD_MOST, drive_writes_per_day)           \
    K(ssd, drive_bytes, BYTES, 0, 1, MACHINE_BYTES_MAX, drive_bytes)                               \
    K(ssd, write_amplification, NUMBER, 0, 1, 1000, write_amplification)                           \
    K(ssd, cost_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, price.cost_per_gb)                  \
    K(ssd, power_w_per_gb, NUMBER, MACHINE_UNKNOWN, 0, PRICE_MAX, price.power_w_per_gb)

#define RAW_MEMBER(section, key, ...) char *key;
struct raw_gpus {
    GPU_KEYS(RAW_MEMBER)
};
struct raw_tier {
    char *name;
    TIER_KEYS(RAW_MEMBER)
};
struct raw_ssd {
    SSD_KEYS(RAW_MEMBER)
};
struct raw_machine {
    char *lanes;
    struct raw_gpus *gpus;
    struct raw_tier *tiers;
    uint32_t tiers_count;
    struct raw_ssd *ssd;
};

#define FLAGS (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER_NULL_STR)
#define FIELD(section, key, ...)                                                                   \
    CYAML_FIELD_STRING_PTR(#key, FLAGS, struct raw_##section, key, 0, CYAML_UNLIMITED),

static const cyaml_schema_field_t gpu_fields[] = { GPU_KEYS(FIELD) CYAML_FIELD_END };
static const cyaml_schema_field_t tier_fields[] = { FIELD(tier, name) TIER_KEYS(FIELD)
                                                        CYAML_FIELD_END };
static const cyaml_schema_field_t ssd_fields[] = { SSD_KEYS(FIELD) CYAML_FIELD_END };
static const cyaml_schema_value_t tier_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_DEFAULT, struct raw_tier, tier_fields) };
static const cyaml_schema_field_t machine_fields[] = {
    CYAML_FIELD_STRING_PTR("lanes", FLAGS, struct raw_machine, lanes, 0, CYAML_UNLIMITED),
    CYAML_FIELD_MAPPING_PTR("gpus", FLAGS, struct raw_machine, gpus, gpu_fields),
    CYAML_FIELD_SEQUENCE("tiers", FLAGS, struct raw_machine, tiers, &tier_schema, 1, TIERS_MAX),
    CYAML_FIELD_MAPPING_PTR("ssd", FLAGS, struct raw_machine, ssd, ssd_fields), CYAML_FIELD_END
};
static const cyaml_schema_value_t machine_schema = { CYAML_VALUE_MAPPING(
    CYAML_FLAG_POINTER, struct raw_machine, machine_fields) };

#define KEY(section, key, kind, standard, least, most, member)                                     \
    { #key,                                                                                        \
      YAML_##kind,                                                                                 \
      standard,                                                                                    \
      least,                                                                                       \
      most,                                                                                        \
      offsetof(struct raw_##section, key),                                                         \
      offsetof(struct INTO, member) },
static const struct yaml_key lanes_key = {
    .name = "lanes",
    .kind = YAML_COUNT,
    .standard = LANES_LEAST,
    .least = LANES_LEAST,
    .most = MACHINE_LANES_MAX,
};
#define INTO machine
static const struct yaml_key gpu_keys[] = { GPU_KEYS(KEY) };
#undef INTO
#define INTO machine_tier
static const struct yaml_key tier_keys[] = { TIER_KEYS(KEY) };
#undef INTO
#define INTO machine_ssd
static const struct yaml_key ssd_keys[] = { SSD_KEYS(KEY) };
#undef INTO

/* ---- Places ---- */

static void note_place(const struct yaml_doc *doc, const char *key, struct machine_place *place)
{
    yaml_doc_place(doc, key, place->text, sizeof(place->text));
}

static void note_places(const struct yaml_doc *doc, struct machine *machine)
{
    struct machine_places *const places = &machine->places;
    struct yaml_key_text key;

    note_place(doc, "gpus.hbm_bytes", &places->hbm_bytes);
    for (uint32_t i = 0; i < machine->tier_count; i++)
        note_place(doc, yaml_item_key(&key, "tiers", i, "bytes"), &places->tier_bytes[i]);
    note_place(doc, "ssd.bytes", &places->ssd_bytes);
    note_place(doc, "ssd.read_iops", &places->read_iops);
    note_place(doc, "ssd.write_bandwidth_bytes_per_s", &places->write_bandwidth);
    note_place(doc, "ssd.drive_writes_per_day", &places->drive_writes);
}

/* ---- Values that belong together ---- */

/* Names of memories that are no tiers. */
static const char *const other_names[] = { "hbm", "cache", "ssd" };

static enum embtier_err check_name(const struct yaml_doc *doc, const struct raw_machine *raw,
                                   uint32_t tier, struct err_msg *msg)
{
    const char *const name = raw->tiers[tier].name;
    struct yaml_key_text key;

    yaml_item_key(&key, "tiers", tier, "name");
    if (!name || !tier_name_is_valid(name))
        return yaml_doc_mistake(
            doc, key.text, msg,
            "%s%s%s; allowed: a name of 1 to %d of A-Z a-z 0-9 _ and -, as `dram`", name ? "`" : "",
            name ? TEXT_SHOWN(name) : "is missing", name ? "` is not possible" : "", TIER_NAME_MAX);
    for (size_t i = 0; i < ARRAY_LEN(other_names); i++)
        if (strcmp(name, other_names[i]) == 0)
            return yaml_doc_mistake(doc, key.text, msg,
                                    "`%s` is the name of another memory; allowed: any other", name);
    for (uint32_t i = 0; i < tier; i++)
        if (strcmp(name, raw->tiers[i].name) == 0)
            return yaml_doc_mistake(doc, key.text, msg,
                                    "tier %u has the name `%s` too; allowed: a name of its own", i,
                                    name);
    return EMBTIER_OK;
}

static enum embtier_err take_tier(const struct yaml_doc *doc, const struct raw_machine *raw,
                                  uint32_t i, struct machine *machine, struct err_msg *msg)
{
    struct machine_tier *const tier = &machine->tiers[i];
    struct yaml_key_text key;

    TRY(check_name(doc, raw, i, msg));
    snprintf(tier->name, sizeof(tier->name), "%s", raw->tiers[i].name);
    TRY(yaml_values_parse(doc, yaml_item_key(&key, "tiers", i, ""), tier_keys, ARRAY_LEN(tier_keys),
                          &raw->tiers[i], tier, msg));
    if (raw->lanes && tier->bytes < tier_cache_least_bytes(i, machine->lanes))
        return yaml_doc_mistake(doc, yaml_item_key(&key, "tiers", i, "bytes"), msg,
                                "%s is too little for the cache of %" PRIu32
                                " lane%s (`lanes`); allowed: at least %s",
                                BYTES_TEXT(tier->bytes), machine->lanes, PLURAL(machine->lanes),
                                BYTES_TEXT(tier_cache_least_bytes(i, machine->lanes)));
    if (i > 0 && tier->bandwidth_bytes_per_s > tier[-1].bandwidth_bytes_per_s)
        return yaml_doc_mistake(doc, yaml_item_key(&key, "tiers", i, "bandwidth_bytes_per_s"), msg,
                                "`%s` is faster than the tier before it; allowed: the fastest "
                                "tier first",
                                tier->name);
    return EMBTIER_OK;
}

static enum embtier_err take_tiers(const struct yaml_doc *doc, const struct raw_machine *raw,
                                   struct machine *machine, struct err_msg *msg)
{
    if (!raw->tiers || raw->tiers_count == 0)
        return yaml_doc_mistake(doc, "tiers", msg, "is missing; allowed: 1 to %d tiers", TIERS_MAX);
    machine->tier_count = raw->tiers_count;
    for (uint32_t i = 0; i < raw->tiers_count; i++)
        TRY(take_tier(doc, raw, i, machine, msg));
    return EMBTIER_OK;
}

static enum embtier_err take_ssd(const struct yaml_doc *doc, const struct raw_ssd *raw,
                                 struct machine_ssd *ssd, struct err_msg *msg)
{
    if (!raw)
        return yaml_doc_mistake(doc, "ssd", msg, "is missing; allowed: the drives of the store");
    TRY(yaml_values_parse(doc, "ssd", ssd_keys, ARRAY_LEN(ssd_keys), raw, ssd, msg));
    if (ssd->drive_bytes == 0)
        ssd->drive_bytes = ssd->bytes;
    if (ssd->drive_bytes < ssd->bytes)
        return yaml_doc_mistake(doc, "ssd.drive_bytes", msg,
                                "%s is less than the store's part; allowed: ssd.bytes, %s, or more",
                                BYTES_TEXT(ssd->drive_bytes), BYTES_TEXT(ssd->bytes));
    /* RocksDB writes a row again with each compaction, so a drive's warranty says nothing without
     * this. */
    if (ssd->write_amplification == 0 &&
        (ssd->drive_writes_per_day > 0 || ssd->write_bandwidth_bytes_per_s > 0))
        return yaml_doc_mistake(doc, "ssd.write_amplification", msg,
                                "is missing; allowed: 1 to 1000, with limits of writes "
                                "(`embtier endurance` measures it)");
    return EMBTIER_OK;
}

static enum embtier_err take(const struct yaml_doc *doc, struct machine *machine,
                             struct err_msg *msg)
{
    static const struct raw_machine nothing = { 0 };
    const struct raw_machine *raw = yaml_doc_data(doc);

    if (!raw)
        raw = &nothing;
    TRY(yaml_value_parse(doc, &lanes_key, lanes_key.name, raw->lanes, &machine->lanes, msg));
    if (raw->gpus)
        TRY(yaml_values_parse(doc, "gpus", gpu_keys, ARRAY_LEN(gpu_keys), raw->gpus, machine, msg));
    TRY(take_tiers(doc, raw, machine, msg));
    return take_ssd(doc, raw->ssd, &machine->ssd, msg);
}

enum embtier_err machine_file_load(const char *path, struct machine *ret_machine,
                                   struct err_msg *msg)
{
    _cleanup_(yaml_doc_freep) struct yaml_doc *doc = NULL;
    struct machine machine = { 0 };

    TRY(yaml_doc_load(path, &machine_schema, &doc, msg));
    TRY(take(doc, &machine, msg));
    note_places(doc, &machine);
    *ret_machine = machine;
    return EMBTIER_OK;
}
