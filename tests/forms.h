/* SPDX-License-Identifier: Apache-2.0 */
/* forms.h: the forms of a test. It has a short form for the usual check, and a long one with
 * EMBTIER_TEST_LONG=1. A build with a sanitizer may have a shorter one: each round takes three to
 * ten times as long there, and a sanitizer finds what it finds in few. */
#ifndef EMBTIER_TESTS_FORMS_H
#define EMBTIER_TESTS_FORMS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The number for this build: @address with the address sanitizer, @thread with the thread
 * sanitizer, else @plain. */
#if defined(__SANITIZE_ADDRESS__)
#define BY_BUILD(plain, address, thread) (address)
#elif defined(__SANITIZE_THREAD__)
#define BY_BUILD(plain, address, thread) (thread)
#else
#define BY_BUILD(plain, address, thread) (plain)
#endif

static inline bool is_long_form(void)
{
    const char *const text = getenv("EMBTIER_TEST_LONG"); // NOLINT(concurrency-mt-unsafe)

    return text && strcmp(text, "1") == 0;
}

/* Returns how many of a random test's rounds it makes: all in the long form, else half. */
static inline uint32_t rounds_of(uint32_t all)
{
    return BY_BUILD(is_long_form() ? all : (all + 1) / 2, (all + 3) / 4, (all + 9) / 10);
}

#endif
