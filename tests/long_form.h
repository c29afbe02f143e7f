/* SPDX-License-Identifier: Apache-2.0 */
/* long_form.h: tests have a short form for the usual check, and a long one with
 * EMBTIER_TEST_LONG=1. */
#ifndef EMBTIER_TESTS_LONG_FORM_H
#define EMBTIER_TESTS_LONG_FORM_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_long_form(void)
{
    const char *const text = getenv("EMBTIER_TEST_LONG"); // NOLINT(concurrency-mt-unsafe)

    return text && strcmp(text, "1") == 0;
}

#endif
