/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_edit.h: changes one value of a YAML text that people wrote, and leaves the rest as it is:
 * comments, order, indentation, line ends.
 *
 * Only the bytes of the value are replaced. A missing key is added behind the last one of its
 * mapping, and a missing mapping at the end of the text. Both block and flow style stay what they
 * are. Thread: any. */
#ifndef EMBTIER_BASE_YAML_YAML_EDIT_H
#define EMBTIER_BASE_YAML_YAML_EDIT_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Sets @key ("lanes.count", "cache.tiers[1].bytes") to @value in a UTF-8 text, and returns the new
 * text, malloced, with a NUL behind it. INVALID: the text is not YAML, or @key cannot be set
 * there. NOT_FOUND: @key names an item that the list does not have. */
MUST_CHECK enum embtier_err yaml_edit(const char *text, size_t text_bytes, const char *key,
                                      const char *value, char **ret_text, size_t *ret_text_bytes,
                                      struct err_msg *msg);

/* Writes @value as a YAML value of one line, in quotes where it needs them; `null` has none. */
void yaml_write_value(FILE *out, const char *value);

#endif
