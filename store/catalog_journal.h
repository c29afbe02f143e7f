/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_journal.h: the changes of a catalog since its catalog.json was written: one line of JSON
 * each, in a file beside it. So a change costs the same with thousands of tables as with a few.
 *
 * catalog.json names its journal by a number that is never used again. So a journal left behind by
 * another catalog.json is not read. Each line has a checksum and its number in the file. If power
 * failed during the last line, that line is ignored: it was not acknowledged. Any other fault is
 * damage. Thread: the same as the catalog's. */
#ifndef EMBTIER_STORE_CATALOG_JOURNAL_H
#define EMBTIER_STORE_CATALOG_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct catalog_journal {
    uint32_t number; /* 0: no journal */
    uint32_t line_count;
    uint64_t bytes;
    bool is_unsure; /* the file's contents after these bytes are unknown: no line may be added */
};

/* Makes a journal without changes. It replaces a file that no catalog.json names. */
MUST_CHECK enum embtier_err catalog_journal_make(const char *directory, uint32_t number,
                                                 struct catalog_journal *ret_journal,
                                                 struct err_msg *msg);
/* Calls @apply for each change, in order. CORRUPT: the journal is missing or damaged, or @apply
 * returned it. */
MUST_CHECK enum embtier_err catalog_journal_read(
    const char *directory, uint32_t number,
    enum embtier_err (*apply)(void *context, const json_t *change, struct err_msg *msg),
    void *context, struct catalog_journal *ret_journal, struct err_msg *msg);
/* Adds a change; it is on disk on return. Takes @change; NULL: out of memory. */
MUST_CHECK enum embtier_err catalog_journal_add(const char *directory,
                                                struct catalog_journal *journal, json_t *change,
                                                struct err_msg *msg);
/* Removes all journals but @number (0: all). One that cannot be removed does no harm. */
void catalog_journal_sweep(const char *directory, uint32_t number);

#endif
