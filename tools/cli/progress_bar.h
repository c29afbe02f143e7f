/* SPDX-License-Identifier: Apache-2.0 */
/* progress_bar.h: how far long work is and when it will be done, on standard error, if that is a
 * terminal. Work of several stages counts something else in each, or from 0 again: the time that is
 * left is that of the stage, from how fast that goes. A first stage that is told of before any of
 * it is done begins then, another one has gone on since the bar began. */
#ifndef EMBTIER_TOOLS_CLI_PROGRESS_BAR_H
#define EMBTIER_TOOLS_CLI_PROGRESS_BAR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct progress_bar {
    const char *what;
    char unit[32]; /* of the stage */
    uint64_t begin_ns;
    uint64_t begin_done; /* when it began */
    uint64_t done;
    bool is_shown;
    struct sigaction before; /* SIGINT's */
};

/* @what: "creating". From here to the end SIGINT, unless it is ignored, ends the program with a
 * line that says @word, a literal: what becomes of the work. */
void progress_bar_begin(struct progress_bar *bar, const char *what, const char *word);
/* Another word from here on. */
void progress_bar_interrupted(const char *word);
/* Fits embtier_table_options.progress; @context is the bar. A @total of 0 is not known. */
void progress_bar_update(void *context, uint64_t done, uint64_t total, const char *unit);
void progress_bar_end(struct progress_bar *bar);

#endif
