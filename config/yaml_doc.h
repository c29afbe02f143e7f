/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_doc.h: a YAML text read into a struct by libcyaml, with mistakes told as people want them:
 * `FILE:LINE: KEY: the fault; allowed: …`.
 *
 * libcyaml tells a line only inside its log text, and takes a key that stands twice. So the text is
 * first walked, event by event, along the same schema: that finds unknown, repeated and misshapen
 * keys, and notes the line of each, by which later checks of values can report too.
 *
 * A text is a small file of people's making: one document, no aliases, no NUL, at most
 * YAML_DOC_BYTES_MAX. Thread: any; a document never changes. */
#ifndef EMBTIER_CONFIG_YAML_DOC_H
#define EMBTIER_CONFIG_YAML_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cyaml/cyaml.h>

#include "base/err.h"
#include "base/macros.h"

#define YAML_DOC_BYTES_MAX MIB

struct yaml_doc;

/* @schema is borrowed for the document's life: a mapping by pointer, of mappings, sequences and
 * scalars. A file that cannot be read is its errno's error; a mistake in it is EMBTIER_CONFIG. */
MUST_CHECK enum embtier_err yaml_doc_load(const char *path, const struct cyaml_schema_value *schema,
                                          struct yaml_doc **ret_doc, struct err_msg *msg);
/* The same from memory. @source names it in messages. */
MUST_CHECK enum embtier_err yaml_doc_parse(const char *source, const char *text, size_t text_bytes,
                                           const struct cyaml_schema_value *schema,
                                           struct yaml_doc **ret_doc, struct err_msg *msg);
void yaml_doc_free(struct yaml_doc *doc);
DEFINE_CLEANUP(struct yaml_doc, yaml_doc_free)

/* The struct of the schema, the document's own; NULL if the text holds nothing. */
const void *yaml_doc_data(const struct yaml_doc *doc);
/* The line of @key ("cache.tiers[1].bytes"), or, where that is not written, of the mapping or
 * sequence around it; 1 at last. */
uint32_t yaml_doc_line(const struct yaml_doc *doc, const char *key);

/* Reports a mistake in @key and returns EMBTIER_CONFIG. @doc NULL: there is no file, only
 * defaults. */
enum embtier_err yaml_doc_mistake(const struct yaml_doc *doc, const char *key, struct err_msg *msg,
                                  const char *format, ...) PRINTF_LIKE(4, 5);

#endif
