/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/progress_bar.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text/text_escape.h"
#include "tools/cli/number.h"

#define BAR_CELLS   30
#define SILENT_NS   3000000000 /* of a stage: its speed is not known yet */
#define STEADY_PART 8          /* a time left may be wrong by this part of itself */

static const char *volatile interrupted; /* for the handler */

bool terminal_can_draw(int descriptor)
{
    const char *const kind = getenv("TERM"); // NOLINT(concurrency-mt-unsafe)

    return isatty(descriptor) && !(kind && strcmp(kind, "dumb") == 0);
}

/* Does only what a signal handler may. The default action would leave a half-drawn bar, and the
 * user would not know what becomes of the work. */
static void on_interrupt(int signal_number)
{
    static const char before[] = "\nembtier: interrupted; ";
    const char *const word = interrupted;

    (void)signal_number;
    if (write(STDERR_FILENO, before, sizeof(before) - 1) < 0 ||
        write(STDERR_FILENO, word, strlen(word)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(130);
    _exit(130); /* 128 + SIGINT, as shells do */
}

void progress_bar_interrupted(const char *word)
{
    interrupted = word;
}

void progress_bar_begin(struct progress_bar *bar, const char *what, const char *word)
{
    const struct sigaction action = { .sa_handler = on_interrupt };

    *bar = (struct progress_bar){ .what = what, .begin_ns = clock_now_ns(&clock_monotonic) };
    interrupted = word;
    sigaction(SIGINT, NULL, &bar->before);
    if (bar->before.sa_handler != SIG_IGN)
        sigaction(SIGINT, &action, NULL);
}

static void begin_stage(struct progress_bar *bar, uint64_t done, const char *unit)
{
    snprintf(bar->unit, sizeof(bar->unit), "%s", unit);
    bar->begin_ns = clock_now_ns(&clock_monotonic);
    bar->begin_done = done;
    bar->end_ns = 0;
}

/* Shows "[####    ]  50%  ". */
static void show_part(uint64_t done, uint64_t total)
{
    const double part = MIN((double)done / (double)total, 1.0);
    const int cells = (int)(BAR_CELLS * part);

    fprintf(stderr, "[%.*s%*s] %3.0f%%  ", cells, "##############################",
            BAR_CELLS - cells, "", 100 * part);
}

/* Keeps the expected end as long as the speed so far agrees with it, since a time that jumps to and
 * fro with each report cannot be read. */
static void expect_end(struct progress_bar *bar, uint64_t now_ns, uint64_t done, uint64_t total)
{
    const double left_ns = (double)(now_ns - bar->begin_ns) / (double)(done - bar->begin_done) *
                           (double)(total - done);
    const double off_ns = (double)now_ns + left_ns - (double)bar->end_ns;

    if (bar->end_ns <= now_ns || fabs(off_ns) * STEADY_PART > left_ns)
        bar->end_ns = now_ns + (uint64_t)MIN(left_ns, 1e18); /* a double may be beyond 64 bits */
}

static void show_time_left(struct progress_bar *bar, uint64_t done, uint64_t total)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    struct number_text left;

    if (done <= bar->begin_done || done >= total || now_ns - bar->begin_ns < SILENT_NS)
        return;
    expect_end(bar, now_ns, done, total);
    fprintf(stderr, ", %s left", number_duration(&left, (double)(bar->end_ns - now_ns) / 1e9));
}

void progress_bar_update(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct progress_bar *bar = context;
    struct number_text count;

    if (bar->unit[0] == '\0' && done > 0) /* the first stage, which has run since the bar began */
        snprintf(bar->unit, sizeof(bar->unit), "%s", unit);
    else if (strncmp(bar->unit, unit, sizeof(bar->unit) - 1) != 0 || done < bar->done)
        begin_stage(bar, done, unit);
    bar->done = done;
    if (!terminal_can_draw(STDERR_FILENO))
        return;
    bar->is_shown = true;
    fprintf(stderr, "\r\033[K%s ", bar->what);
    if (total > 0)
        show_part(done, total);
    text_print(stderr, "%s %s", number_count(&count, (double)done), unit);
    if (total > 0)
        show_time_left(bar, done, total);
    fflush(stderr);
}

void progress_bar_end(struct progress_bar *bar)
{
    if (bar->is_shown)
        fputs("\r\033[K", stderr);
    sigaction(SIGINT, &bar->before, NULL);
}
