/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/net/handshakes.h"

#include <assert.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/system/thread_class.h"
#include "base/tls/certificate_names.h"
#include "base/tls/tls_stream.h"

struct handshakes {
    pthread_mutex_t lock;
    pthread_cond_t added;
    struct handshake *first;
    struct handshake **end;
    bool is_stopping;
    uint32_t thread_count;
    pthread_t threads[];
};

/* NULL: they are to stop. */
static struct handshake *take_next(struct handshakes *h)
{
    struct handshake *next;

    pthread_mutex_lock(&h->lock);
    while (!h->first && !h->is_stopping)
        pthread_cond_wait(&h->added, &h->lock);
    next = h->first;
    if (next)
        h->first = next->next;
    if (!h->first)
        h->end = &h->first;
    pthread_mutex_unlock(&h->lock);
    return next;
}

/* A certificate with bad names has none: its client is no user by it. */
static void take_names(struct handshake *handshake)
{
    X509 *const certificate = tls_peer_certificate(handshake->tls);

    if (certificate)
        handshake->has_bad_names =
            certificate_names(certificate, &handshake->names, &handshake->msg) != EMBTIER_OK;
    X509_free(certificate);
}

static void go_on(struct handshake *handshake)
{
    handshake->err = tls_handshake(handshake->tls, &handshake->msg);
    if (handshake->err == EMBTIER_OK)
        take_names(handshake);
    mailbox_send(handshake->mailbox, &handshake->message);
}

static void *handshakes_main(void *context)
{
    struct handshakes *const h = context;
    struct handshake *handshake;

    thread_class_background();
    while ((handshake = take_next(h)))
        go_on(handshake);
    return NULL;
}

enum embtier_err handshakes_new(uint32_t thread_count, struct handshakes **ret_handshakes,
                                struct err_msg *msg)
{
    _cleanup_(handshakes_freep) struct handshakes *h =
        calloc(1, sizeof(*h) + thread_count * sizeof(h->threads[0]));

    if (!h)
        return err_set(msg, EMBTIER_NO_MEMORY, "TLS: out of memory");
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->added, NULL);
    h->end = &h->first;
    for (uint32_t i = 0; i < thread_count; i++) {
        const int rc = pthread_create(&h->threads[i], NULL, handshakes_main, h);

        if (rc != 0)
            return err_set_errno(msg, rc, "cannot start a thread for handshakes of TLS");
        pthread_setname_np(h->threads[i], "handshakes");
        h->thread_count++;
    }
    *ret_handshakes = TAKE(h);
    return EMBTIER_OK;
}

void handshakes_free(struct handshakes *handshakes)
{
    if (!handshakes)
        return;
    pthread_mutex_lock(&handshakes->lock);
    assert(!handshakes->first);
    handshakes->is_stopping = true;
    pthread_cond_broadcast(&handshakes->added);
    pthread_mutex_unlock(&handshakes->lock);
    for (uint32_t i = 0; i < handshakes->thread_count; i++)
        pthread_join(handshakes->threads[i], NULL);
    pthread_cond_destroy(&handshakes->added);
    pthread_mutex_destroy(&handshakes->lock);
    free(handshakes);
}

void handshakes_add(struct handshakes *handshakes, struct handshake *handshake)
{
    handshake->next = NULL;
    pthread_mutex_lock(&handshakes->lock);
    *handshakes->end = handshake;
    handshakes->end = &handshake->next;
    pthread_cond_signal(&handshakes->added);
    pthread_mutex_unlock(&handshakes->lock);
}
