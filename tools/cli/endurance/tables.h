/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h: bytes that go to SSD for each table, by cause. Each byte that the server wrote is in
 * one row: of a table, of those that are gone, or of what all share. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_ENDURANCE_TABLES_H
#define EMBTIER_TOOLS_CLI_ENDURANCE_TABLES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "client/include/embtier.h"
#include "tools/cli/endurance/sample.h"

struct json_t;

enum table_window { TABLE_NOW, TABLE_HOUR, TABLE_DAY, TABLE_WEEK, TABLE_WINDOWS };

/* One row. NAN: not known. */
struct writes {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    double updated_rows, updated_bytes;
    double flush_bytes;
    double initial_bytes; /* of flush_bytes: first values of a table that was made eager */
    double compaction_bytes, log_bytes, import_bytes;
    double other_bytes;                /* of causes that no table has */
    double daily_bytes[TABLE_WINDOWS]; /* by the server's history */
    double history_seconds, history_bytes;
};

/* @tables: with room for all of @now. */
struct table_rows {
    struct writes *tables;
    size_t count;
    struct writes dropped; /* bytes of files with rows of tables that are gone, and of no rows */
    struct writes shared;  /* bytes that belong to no table */
    struct writes all;
};

/* @before may be empty; then everything since the start counts. False: out of memory. */
MUST_CHECK bool table_rows_make(const struct endurance_sample *before,
                                const struct endurance_sample *now, struct table_rows *ret_rows);
void table_rows_clear(struct table_rows *rows);
/* Bytes of all causes. */
double writes_bytes(const struct writes *writes);

/* Prints bytes, and bytes a day over @seconds, or "-" if they are not @known. False: out of memory.
 */
MUST_CHECK bool table_rows_print(const struct table_rows *rows, bool has_rates, double seconds);
/* Prints what goes to SSD a day, by the history. False: out of memory. */
MUST_CHECK bool table_rows_print_rates(const struct table_rows *rows);
/* NULL: out of memory. */
struct json_t *writes_to_json(const struct writes *writes, const char *name);

#endif
