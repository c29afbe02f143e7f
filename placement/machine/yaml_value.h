/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_value.h: values of the YAML files of placement. libcyaml gives each as the text that was
 * written; a table of keys says what it means and what is allowed.
 *
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_MACHINE_YAML_VALUE_H
#define EMBTIER_PLACEMENT_MACHINE_YAML_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/yaml/yaml_doc.h"

enum yaml_value_kind {
    YAML_COUNT,  /* uint32_t */
    YAML_BYTES,  /* uint64_t, written like 192GiB */
    YAML_RATE,   /* double; bytes in a unit of time, written like 200GB */
    YAML_NUMBER, /* double */
};

/* A key of a section. */
struct yaml_key {
    const char *name;
    enum yaml_value_kind kind;
    double standard; /* if the key is missing; NAN: it must be given */
    double least, most;
    size_t raw_offset; /* of the text, a char *, in the section's raw struct */
    size_t offset;     /* of the value, in the struct that is filled */
};

struct yaml_key_text {
    char text[96];
};

/* Writes the text of one key of a list's item: "pin[3].table". */
const char *yaml_item_key(struct yaml_key_text *buffer, const char *list, uint32_t item,
                          const char *name);

/* Parses @text, of a key that is @name in messages. NULL: the key is missing. CONFIG: a mistake. */
MUST_CHECK enum embtier_err yaml_value_parse(const struct yaml_doc *doc, const struct yaml_key *key,
                                             const char *name, const char *text, void *ret_value,
                                             struct err_msg *msg);
/* Fills @into from all keys of a section. @prefix: "ssd" or "tiers[0]". */
MUST_CHECK enum embtier_err yaml_values_parse(const struct yaml_doc *doc, const char *prefix,
                                              const struct yaml_key *keys, size_t key_count,
                                              const void *raw, void *into, struct err_msg *msg);

#endif
