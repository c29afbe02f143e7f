/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/tickets/caster.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/system/thread_class.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/memory/reserved.h"
#include "daemon/engine/ops/tickets/ticket.h"

struct caster {
    struct cast_pair *scratch;
    uint64_t scratch_bytes;
    struct cast_queue queue;
    sem_t sent; /* posted once for each group, and to stop */
    pthread_t thread;
    bool has_thread;
    _Atomic bool stopping;
    uint64_t busy_ns; /* a counter */
};

static void *caster_main(void *context)
{
    struct caster *const caster = context;

    thread_class_answering();
    for (;;) {
        struct ticket_group *group;
        uint64_t begin_ns;

        while (sem_wait(&caster->sent) != 0 && errno == EINTR)
            continue;
        if (atomic_load(&caster->stopping))
            return NULL;
        group = cast_queue_take(&caster->queue);
        begin_ns = clock_now_ns(&clock_monotonic);
        ticket_cast(group, caster->scratch);
        counter_add(&caster->busy_ns, clock_now_ns(&clock_monotonic) - begin_ns);
        mailbox_send(group->ticket->home, &group->message);
    }
}

enum embtier_err caster_new(uint32_t index, uint64_t pairs_max, struct caster **ret_caster,
                            struct err_msg *msg)
{
    _cleanup_(caster_freep) struct caster *caster =
        aligned_alloc(CACHE_LINE, align_up(sizeof(*caster), CACHE_LINE));
    char name[16];
    int rc;

    if (!caster)
        return err_set(msg, EMBTIER_NO_MEMORY, "caster: out of memory");
    memset(caster, 0, sizeof(*caster));
    sem_init(&caster->sent, 0, 0);
    cast_queue_init(&caster->queue);
    caster->scratch_bytes = pairs_max * sizeof(struct cast_pair);
    caster->scratch = reserved_new(caster->scratch_bytes);
    if (!caster->scratch)
        return err_set_errno(msg, errno, "caster: cannot reserve %llu bytes",
                             (unsigned long long)caster->scratch_bytes);
    rc = pthread_create(&caster->thread, NULL, caster_main, caster);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start the caster thread of lane %u", index);
    snprintf(name, sizeof(name), "caster-%u", index);
    pthread_setname_np(caster->thread, name);
    caster->has_thread = true;
    *ret_caster = TAKE(caster);
    return EMBTIER_OK;
}

void caster_free(struct caster *caster)
{
    if (!caster)
        return;
    if (caster->has_thread) {
        atomic_store(&caster->stopping, true);
        sem_post(&caster->sent);
        pthread_join(caster->thread, NULL);
    }
    reserved_free(caster->scratch, caster->scratch_bytes);
    sem_destroy(&caster->sent);
    cast_queue_destroy(&caster->queue);
    free(caster);
}

void caster_send(struct caster *caster, struct cast_line *line, struct ticket_group *group)
{
    cast_queue_put(&caster->queue, line, group);
    sem_post(&caster->sent);
}

uint64_t caster_busy_ns(const struct caster *caster)
{
    return counter_get(&caster->busy_ns);
}
