/* SPDX-License-Identifier: Apache-2.0 */
#include "store/open_progress.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "base/log/log.h"

#define NS_PER_S UINT64_C(1000000000)

/* Waits for a second; false at the end. The caller holds the lock, which is free meanwhile. */
static bool wait_a_second(struct open_progress *progress)
{
    const struct timespec until = clock_until(NS_PER_S);

    while (!progress->is_ended)
        if (pthread_cond_timedwait(&progress->ended, &progress->lock, &until) == ETIMEDOUT)
            break;
    return !progress->is_ended;
}

static void *progress_main(void *arg)
{
    struct open_progress *const progress = arg;

    pthread_mutex_lock(&progress->lock);
    while (wait_a_second(progress))
        if (progress->step)
            log_info("opening the store", "step=%s done=%u of=%u seconds=%" PRIu64, progress->step,
                     progress->done, progress->of,
                     (clock_now_ns(&clock_monotonic) - progress->began_ns) / NS_PER_S);
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

void open_progress_begin(struct open_progress *progress)
{
    *progress = (struct open_progress){ .began_ns = clock_now_ns(&clock_monotonic) };
    pthread_mutex_init(&progress->lock, NULL);
    clock_init_cond(&progress->ended);
    progress->has_thread = pthread_create(&progress->thread, NULL, progress_main, progress) == 0;
    if (progress->has_thread)
        pthread_setname_np(progress->thread, "opening");
}

void open_progress_set(struct open_progress *progress, const char *step, uint32_t done, uint32_t of)
{
    pthread_mutex_lock(&progress->lock);
    progress->step = step;
    progress->done = done;
    progress->of = of;
    pthread_mutex_unlock(&progress->lock);
}

void open_progress_end(struct open_progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    assert(!progress->is_ended);
    progress->is_ended = true;
    pthread_cond_signal(&progress->ended);
    pthread_mutex_unlock(&progress->lock);
    if (progress->has_thread)
        pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->ended);
    pthread_mutex_destroy(&progress->lock);
}
