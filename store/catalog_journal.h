/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_journal.h: the changes of a catalog since its catalog.json was written, a line of JSON
 * each, in a file beside it. A change of a catalog of thousands of tables then costs as much as one
 * of a few.
 *
 * catalog.json names its journal by a number that is never used again, so a journal that another
 * catalog.json has left behind is not read. Each line has a checksum and its number in the file.
 * The end of a journal that was being written when power failed is left out: it was not
 * acknowledged. Anything else that is wrong is damage. Thread: as the catalog. */
#ifndef EMBTIER_STORE_CATALOG_JOURNAL_H
#define EMBTIER_STORE_CATALOG_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct catalog_journal {
    uint32_t number; /* 0: there is none */
    uint32_t line_count;
    uint64_t bytes;
    bool is_unsure; /* what follows these bytes is not known: no line may be added */
};

/* Makes one without changes. It replaces a file that no catalog.json names. */
MUST_CHECK enum embtier_err catalog_journal_make(const char *directory, uint32_t number,
                                                 struct catalog_journal *ret_journal,
                                                 struct err_msg *msg);
/* Calls @apply for each change, in order. CORRUPT: it is missing, damaged, or @apply says so. */
MUST_CHECK enum embtier_err catalog_journal_read(
    const char *directory, uint32_t number,
    enum embtier_err (*apply)(void *context, const json_t *change, struct err_msg *msg),
    void *context, struct catalog_journal *ret_journal, struct err_msg *msg);
/* On disk when it returns. Takes @change; NULL: out of memory. */
MUST_CHECK enum embtier_err catalog_journal_add(const char *directory,
                                                struct catalog_journal *journal, json_t *change,
                                                struct err_msg *msg);
/* All but that of @number (0: all). One that cannot be removed does no harm. */
void catalog_journal_sweep(const char *directory, uint32_t number);

#endif
