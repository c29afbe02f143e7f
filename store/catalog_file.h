/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_file.h: catalog.json as text: all tables of a catalog, in order of table id.
 *
 *   crc32c          of the whole text (files/summed_json.h)
 *   format_version  6
 *   next_table_id   the id of the next table that is made
 *   tables          a record each (catalog_table.h), with a checksum of its own
 *   journal         the number of its journal (catalog_journal.h); absent if there is none
 *
 * The file's checksum finds any damage. Those of the records tell which table is damaged. Thread:
 * any. */
#ifndef EMBTIER_STORE_CATALOG_FILE_H
#define EMBTIER_STORE_CATALOG_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "store/catalog_table.h"

#define CATALOG_FILE "catalog.json"
/* For messages about damage. */
#define CATALOG_WAY_OUT ": put the catalog's files back from a copy, or restore a checkpoint"

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
