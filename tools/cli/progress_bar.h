/* SPDX-License-Identifier: Apache-2.0 */
/* progress_bar.h: shows the progress of long work and the time left, on standard error if that is a
 * terminal. Each stage of the work may count another unit, or count from 0 again. The time left is
 * that of the stage, from its speed so far. It is shown after some seconds, and then counts down as
 * long as the speed agrees with it. A first stage that reports before any of it is done begins with
 * that report; else it has run since the bar began. */
#ifndef EMBTIER_TOOLS_CLI_PROGRESS_BAR_H
#define EMBTIER_TOOLS_CLI_PROGRESS_BAR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct progress_bar {
    const char *what;
    char unit[32]; /* of the stage */
    uint64_t begin_ns;
    uint64_t begin_done; /* at the stage's begin */
    uint64_t end_ns;     /* when the stage is expected to end; 0: not known yet */
    uint64_t done;
    bool is_shown;
    struct sigaction before; /* SIGINT's */
};

/* Says whether @descriptor is a terminal whose cursor can be moved. */
bool terminal_can_draw(int descriptor);

/* Begins a bar; @what: "creating". Until the end SIGINT, unless it is ignored, ends the program
 * with a line that has @word, a literal: the fate of the work. */
void progress_bar_begin(struct progress_bar *bar, const char *what, const char *word);
/* Replaces @word from here on. */
void progress_bar_interrupted(const char *word);
/* Fits embtier_table_options.progress; @context is the bar. A @total of 0 is unknown. */
void progress_bar_update(void *context, uint64_t done, uint64_t total, const char *unit);
void progress_bar_end(struct progress_bar *bar);

#endif
