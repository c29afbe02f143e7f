/* SPDX-License-Identifier: Apache-2.0 */
/* config_items.h: the values of a configuration one by one, by name and as text, as its file would
 * have them: "cache.tiers[0].bytes" is "1GiB". Items of lists have their index in the name.
 *
 * No value is a secret: certificates, keys, tokens and users are files, of which a configuration
 * has the paths. Thread: any. */
#ifndef EMBTIER_CONFIG_CONFIG_ITEMS_H
#define EMBTIER_CONFIG_CONFIG_ITEMS_H

#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"
#include "config/config_keys.h"

#define CONFIG_ITEM_NAME_MAX  63
#define CONFIG_ITEM_VALUE_MAX 4096
#define CONFIG_DEFAULT_WORD   "null" /* a value that stands for the default */

struct config_item {
    char name[CONFIG_ITEM_NAME_MAX + 1];
    const struct config_key *key;
    uint64_t least, most;              /* of a number, as other values here allow */
    bool in_file;                      /* else it has its default */
    char value[CONFIG_ITEM_VALUE_MAX]; /* "": none is set, and there is none to compute */
};

/* Calls @each for all values, in the order of the table of keys, until one call fails. A list
 * without items has one value, "". The item is borrowed. */
typedef enum embtier_err config_item_fn(void *context, const struct config_item *item);
MUST_CHECK enum embtier_err config_each_item(const struct config *config, config_item_fn *each,
                                             void *context);

/* Returns config_allowed() of the key, with the item's own limits. */
const char *config_item_allowed(struct config_allowed *buffer, const struct config_item *item);

/* Finds one by its name. NOT_FOUND: the message has a name that is near, if any is. */
MUST_CHECK enum embtier_err config_find_item(const struct config *config, const char *name,
                                             struct config_item *ret_item, struct err_msg *msg);

/* Checks @value alone. INVALID: the item cannot have it; the message says what is allowed. */
MUST_CHECK enum embtier_err config_check_value(const struct config_item *item, const char *value,
                                               struct err_msg *msg);

/* Makes a copy of @config in which the key of @name has @value, after all checks of config_load().
 * Its other values are those of @config, computed ones too. INVALID: the value, or its sum with
 * others, is not possible; the message says what is allowed. */
MUST_CHECK enum embtier_err config_change(const struct config *config, const char *name,
                                          const char *value, struct config **ret_config,
                                          struct err_msg *msg);
/* Cuts the place in such a copy, which nobody can look at, off a message about it. */
void config_cut_place(struct err_msg *msg);

#endif
