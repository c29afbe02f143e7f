/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_file.h: catalog.json as text: all tables of a catalog, in order of table id.
 *
 *   crc32c          of the whole text (files/summed_json.h)
 *   format_version  6
 *   next_table_id   the id of the next table that is made
 *   tables          a record each, with a checksum of its own
 *   journal         the number of its journal (catalog_journal.h); absent if there is none
 *
 * The file's checksum finds any damage. Those of the records tell which table is damaged. Thread:
 * any. */
#ifndef EMBTIER_STORE_CATALOG_FILE_H
#define EMBTIER_STORE_CATALOG_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"

#define CATALOG_FILE "catalog.json"
/* For messages about damage. */
#define CATALOG_WAY_OUT ": put the catalog's files back from a copy, or restore a checkpoint"

enum catalog_state {
    CATALOG_CREATING, /* eager rows are being written; a start that finds it drops the table */
    CATALOG_LIVE,
    CATALOG_DROPPING, /* a start that finds it drops the table again */
};

#define CATALOG_NOBODY ((uid_t)-1)

struct catalog_table {
    uint32_t table_id;
    enum catalog_state state;
    uid_t owner; /* the user that made it; CATALOG_NOBODY: made before owners were noted */
    struct table_spec spec;
};

const char *catalog_state_word(enum catalog_state state);
/* False: no known state. */
bool catalog_state_from_json(const json_t *json, enum catalog_state *ret_state);
/* Returns a record with a checksum of its own (files/summed_json.h). NULL: out of memory. */
json_t *catalog_table_to_json(const struct catalog_table *table);
/* False: something is missing, or not as it must be. The caller has checked the checksum. */
bool catalog_table_from_json(const json_t *json, struct catalog_table *ret_table);

struct catalog_tables {
    struct catalog_table *tables;
    uint32_t count;
    uint32_t next_table_id;
};

void catalog_tables_clear(struct catalog_tables *tables);

/* @journal: the journal's number, or 0. */
MUST_CHECK enum embtier_err catalog_file_write(const char *directory,
                                               const struct catalog_tables *tables,
                                               uint32_t journal, struct err_msg *msg);
/* Reads @text of the file @path; @ret_tables has room for one table more. The caller checks the
 * tables' specs and ids. CORRUPT for damage, VERSION for another format. */
MUST_CHECK enum embtier_err catalog_file_parse(const char *path, const char *text,
                                               struct catalog_tables *ret_tables,
                                               uint32_t *ret_journal, struct err_msg *msg);

#endif
