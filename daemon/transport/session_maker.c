/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/session_maker.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/system/thread_class.h"
#include "daemon/engine/sessions/session.h"

struct session_maker {
    void (*send)(void *owner, struct message *message);
    void *owner;
    pthread_mutex_t lock; /* protects all below, and the orders' rounds */
    pthread_cond_t wake_maker, wake_freer;
    struct session_order *orders;          /* those that wait for their next step */
    uint64_t round;                        /* the round of the step that was begun last */
    struct transport_channel *freed_first; /* those that wait to be freed, oldest first */
    struct transport_channel **freed_end;
    bool stopping;
    pthread_t threads[SESSION_MAKER_THREADS];
    uint32_t thread_count;
};

/* ---- Making ---- */

/* Locked. Each of a user's sessions has its own round, so that users take turns. */
static void link_order(struct session_maker *maker, struct session_order *order)
{
    uint64_t round = maker->round;

    for (const struct session_order *other = maker->orders; other; other = other->next)
        if (other->user == order->user && other->round > round)
            round = other->round;
    order->round = round + 1;
    order->next = maker->orders;
    maker->orders = order;
}

/* Locked. Takes out and returns the order of the earliest round; NULL: there is none. */
static struct session_order *take_order(struct session_maker *maker)
{
    struct session_order **best = &maker->orders;
    struct session_order *order;

    for (struct session_order **at = best; *at; at = &(*at)->next)
        if ((*at)->round < (*best)->round)
            best = at;
    order = *best;
    if (order) {
        *best = order->next;
        maker->round = order->round;
    }
    return order;
}

/* True if the order is done with. */
static bool make_some(struct session_order *order, bool stopping)
{
    if (stopping || atomic_load(&order->given_up)) {
        order->err = stopping ? EMBTIER_SHUTDOWN : EMBTIER_DISCONNECTED;
        return true;
    }
    assert(!order->session);
    order->err = EMBTIER_OK;
    if (!order->channel)
        order->err = order->transport->prepare(&order->spec, &order->channel, &order->msg);
    if (order->err == EMBTIER_OK) {
        assert(order->channel->transport == order->transport);
        order->err = order->transport->reserve(order->channel, SESSION_STEP_BYTES, &order->msg);
    }
    if (order->err == EMBTIER_OK)
        order->err = session_new(order->id, &order->channel->channel, order->lane_count,
                                 &order->session, &order->msg);
    return order->err != EMBTIER_AGAIN;
}

static void *maker_main(void *context)
{
    struct session_maker *const maker = context;

    thread_class_answering();
    pthread_mutex_lock(&maker->lock);
    for (;;) {
        struct session_order *const order = take_order(maker);
        const bool stopping = maker->stopping;
        bool done;

        if (!order && stopping)
            break;
        if (!order) {
            pthread_cond_wait(&maker->wake_maker, &maker->lock);
            continue;
        }
        pthread_mutex_unlock(&maker->lock);
        done = make_some(order, stopping);
        if (done)
            maker->send(maker->owner, &order->made_message);
        pthread_mutex_lock(&maker->lock);
        if (!done)
            link_order(maker, order);
    }
    pthread_mutex_unlock(&maker->lock);
    return NULL;
}

void session_maker_make(struct session_maker *maker, struct session_order *order)
{
    pthread_mutex_lock(&maker->lock);
    link_order(maker, order);
    pthread_cond_signal(&maker->wake_maker);
    pthread_mutex_unlock(&maker->lock);
}

void session_maker_give_up(struct session_order *order)
{
    atomic_store(&order->given_up, true);
}

/* ---- Freeing ---- */

static void *freer_main(void *context)
{
    struct session_maker *const maker = context;

    thread_class_answering();
    pthread_mutex_lock(&maker->lock);
    for (;;) {
        struct transport_channel *const channel = maker->freed_first;

        if (!channel && maker->stopping)
            break;
        if (!channel) {
            pthread_cond_wait(&maker->wake_freer, &maker->lock);
            continue;
        }
        maker->freed_first = channel->next_freed;
        if (!maker->freed_first)
            maker->freed_end = &maker->freed_first;
        pthread_mutex_unlock(&maker->lock);
        channel->transport->release(channel, channel->is_abandoned);
        maker->send(maker->owner, &channel->freed_message);
        pthread_mutex_lock(&maker->lock);
    }
    pthread_mutex_unlock(&maker->lock);
    return NULL;
}

void session_maker_release(struct session_maker *maker, struct transport_channel *channel,
                           bool is_abandoned)
{
    channel->is_abandoned = is_abandoned;
    channel->next_freed = NULL;
    pthread_mutex_lock(&maker->lock);
    *maker->freed_end = channel;
    maker->freed_end = &channel->next_freed;
    pthread_cond_signal(&maker->wake_freer);
    pthread_mutex_unlock(&maker->lock);
}

/* ---- Both ---- */

enum embtier_err session_maker_new(void (*send)(void *owner, struct message *message), void *owner,
                                   struct session_maker **ret_maker, struct err_msg *msg)
{
    static void *(*const mains[SESSION_MAKER_THREADS])(void *) = { maker_main, freer_main };
    _cleanup_(session_maker_freep) struct session_maker *maker = calloc(1, sizeof(*maker));

    if (!maker)
        return err_set(msg, EMBTIER_NO_MEMORY, "sessions: out of memory");
    maker->send = send;
    maker->owner = owner;
    maker->freed_end = &maker->freed_first;
    pthread_mutex_init(&maker->lock, NULL);
    pthread_cond_init(&maker->wake_maker, NULL);
    pthread_cond_init(&maker->wake_freer, NULL);
    for (uint32_t i = 0; i < SESSION_MAKER_THREADS; i++) {
        const int rc = pthread_create(&maker->threads[i], NULL, mains[i], maker);

        if (rc != 0)
            return err_set_errno(msg, rc, "cannot start a thread for sessions");
        pthread_setname_np(maker->threads[i], "sessions");
        maker->thread_count++;
    }
    *ret_maker = TAKE(maker);
    return EMBTIER_OK;
}

void session_maker_free(struct session_maker *maker)
{
    if (!maker)
        return;
    pthread_mutex_lock(&maker->lock);
    maker->stopping = true;
    pthread_cond_signal(&maker->wake_maker);
    pthread_cond_signal(&maker->wake_freer);
    pthread_mutex_unlock(&maker->lock);
    for (uint32_t i = 0; i < maker->thread_count; i++)
        pthread_join(maker->threads[i], NULL);
    assert(!maker->orders && !maker->freed_first);
    pthread_cond_destroy(&maker->wake_freer);
    pthread_cond_destroy(&maker->wake_maker);
    pthread_mutex_destroy(&maker->lock);
    free(maker);
}
