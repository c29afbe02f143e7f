/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_doc.h: reads a YAML text into a struct by libcyaml, and reports mistakes in the form that
 * people want: `FILE:LINE: KEY: the fault; allowed: …`.
 *
 * libcyaml gives a line only inside its log text, and accepts a key that stands twice. So the text
 * is first walked event by event along the same schema. The walk finds unknown, repeated and
 * misshapen keys, and notes each key's line for later checks of values.
 *
 * A text is a small file written by people: one document, no aliases, no NUL, at most
 * YAML_DOC_BYTES_MAX. Files that programs write may have a limit of their own. Parsing takes about
 * four times the text and 100 bytes for each key, of which the schema allows a limited number.
 *
 * Thread: any; a document never changes. */
#ifndef EMBTIER_BASE_YAML_YAML_DOC_H
#define EMBTIER_BASE_YAML_YAML_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cyaml/cyaml.h>

#include "base/err.h"
#include "base/macros.h"

#define YAML_DOC_BYTES_MAX MIB

struct yaml_doc;

/* @schema is borrowed for the document's life: a mapping by pointer, of mappings, sequences and
 * scalars. A file that cannot be read returns its errno's error; a mistake in it is
 * EMBTIER_CONFIG. */
MUST_CHECK enum embtier_err yaml_doc_load(const char *path, const struct cyaml_schema_value *schema,
                                          struct yaml_doc **ret_doc, struct err_msg *msg);
/* The same for a text in memory; messages name it @source. */
MUST_CHECK enum embtier_err yaml_doc_parse(const char *source, const char *text, size_t text_bytes,
                                           const struct cyaml_schema_value *schema,
                                           struct yaml_doc **ret_doc, struct err_msg *msg);
/* The same with another limit of bytes. */
MUST_CHECK enum embtier_err yaml_doc_parse_within(const char *source, const char *text,
                                                  size_t text_bytes, size_t bytes_max,
                                                  const struct cyaml_schema_value *schema,
                                                  struct yaml_doc **ret_doc, struct err_msg *msg);
/* Reads a file for yaml_doc_parse_within(), malloced. A file over the limit is read up to one byte
 * behind it, so that the parser refuses it. */
MUST_CHECK enum embtier_err yaml_doc_read(const char *path, size_t bytes_max, char **ret_text,
                                          size_t *ret_text_bytes, struct err_msg *msg);
void yaml_doc_free(struct yaml_doc *doc);
DEFINE_CLEANUP(struct yaml_doc, yaml_doc_free)

/* Returns the schema's struct, owned by the document; NULL if the text is empty. */
const void *yaml_doc_data(const struct yaml_doc *doc);
/* Returns the line of @key ("cache.tiers[1].bytes"). If the key is missing, returns the line of the
 * mapping or sequence around it, or 1. */
uint32_t yaml_doc_line(const struct yaml_doc *doc, const char *key);

/* Writes the place of @key, "a.yaml:3: pin[0]". A long path is cut at its beginning. */
void yaml_doc_place(const struct yaml_doc *doc, const char *key, char *ret_text, size_t bytes);

/* Reports a mistake in @key and returns EMBTIER_CONFIG. @doc is NULL if there is no file, only
 * defaults. */
enum embtier_err yaml_doc_mistake(const struct yaml_doc *doc, const char *key, struct err_msg *msg,
                                  const char *format, ...) PRINTF_LIKE(4, 5);

#endif
