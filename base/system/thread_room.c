/* SPDX-License-Identifier: Apache-2.0 */
#include "base/system/thread_room.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Waits until all threads exist or one failed to start. */
static void *wait_for_all(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

enum embtier_err thread_room_check(uint32_t count, struct err_msg *msg)
{
    _cleanup_(freep) pthread_t *threads = calloc(count, sizeof(*threads));
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    uint32_t made = 0;
    int rc = 0;

    if (!threads)
        return err_set(msg, EMBTIER_NO_MEMORY, "threads: out of memory");
    pthread_mutex_lock(&gate);
    while (made < count && (rc = pthread_create(&threads[made], NULL, wait_for_all, &gate)) == 0)
        made++;
    pthread_mutex_unlock(&gate);
    for (uint32_t i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    if (made == count)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "the server needs up to %u more threads, and the system allows %u (%s): raise "
                   "the limit of the user (ulimit -u, LimitNPROC=), container (pids.max, "
                   "TasksMax=, --pids-limit), machine (kernel.threads-max) or address space "
                   "(ulimit -v)",
                   count, made, strerror(rc)); // NOLINT(concurrency-mt-unsafe)
}
