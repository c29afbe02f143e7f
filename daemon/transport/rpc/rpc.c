/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "base/yaml/yaml_doc.h"
#include "config/config.h"
#include "config/config_descriptors.h"
#include "daemon/transport/listen/listener.h"
#include "daemon/transport/rpc/net/handshakes.h"
#include "daemon/transport/rpc/rpc_loop.h"

_Static_assert(CONFIG_LISTEN_MAX <= RPC_LISTENERS_MAX, "each loop accepts at all addresses");

struct rpc {
    struct listener listeners[CONFIG_LISTEN_MAX];
    uint32_t listener_count;
    struct rpc_loop **loops;
    uint32_t loop_count;
    _Atomic uint32_t stream_count;     /* of all loops */
    struct certificates *certificates; /* borrowed; NULL: no address has TLS */
    struct handshakes *handshakes;
};

/* Clients over TLS are known if they must show a certificate, or be users of the access file. */
static bool may_be_remote(const struct config *config, const struct address *address)
{
    return config->rpc.insecure || (address->kind == ADDRESS_TLS &&
                                    (config->tls.require_certificate || config->access.file));
}

static enum embtier_err address_mistake(const struct config *config, uint32_t i,
                                        const struct err_msg *why, struct err_msg *msg)
{
    char key[32];

    snprintf(key, sizeof(key), "rpc.listen[%u]", i);
    return yaml_doc_mistake(config->doc, key, msg, "%s", why->text);
}

enum embtier_err rpc_check(const struct config *config, bool may_live, struct err_msg *msg)
{
    for (uint32_t i = 0; i < config->rpc.listen_count; i++) {
        const struct address *const address = &config->rpc.listen[i];
        struct err_msg why = { { 0 } };

        if (listener_check(address, may_be_remote(config, address), may_live, &why) != EMBTIER_OK)
            return address_mistake(config, i, &why, msg);
    }
    return EMBTIER_OK;
}

static enum embtier_err listen_all(struct rpc *rpc, const struct config *config,
                                   struct err_msg *msg)
{
    for (uint32_t i = 0; i < config->rpc.listen_count; i++) {
        struct listener *const listener = &rpc->listeners[i];
        struct err_msg why = { { 0 } };

        if (listener_open(&config->rpc.listen[i], (mode_t)config->socket.mode,
                          may_be_remote(config, &config->rpc.listen[i]), listener,
                          &why) != EMBTIER_OK)
            return address_mistake(config, i, &why, msg);
        rpc->listener_count++;
        log_info("listening", "address=%s", LOG_QUOTED(listener->text));
    }
    if (config->rpc.insecure)
        log_warn("rpc.insecure: every host that reaches these addresses may read and change all "
                 "tables, and nothing is encrypted at tcp:// addresses",
                 "addresses=%u", rpc->listener_count);
    return EMBTIER_OK;
}

static const struct io_engine *engine_of(enum config_switch io_uring)
{
    switch (io_uring) {
    case SWITCH_ON:
        return &io_uring_engine;
    case SWITCH_OFF:
        return &io_epoll_engine;
    default:
        return NULL;
    }
}

/* Gives a loop descriptors of its own for all sockets. */
static enum embtier_err copy_listeners(const struct rpc *rpc, struct rpc_loop_opts *opts,
                                       struct err_msg *msg)
{
    for (uint32_t i = 0; i < rpc->listener_count; i++) {
        opts->listeners[i].is_tls = rpc->listeners[i].is_tls;
        opts->listeners[i].fd = fcntl(rpc->listeners[i].fd, F_DUPFD_CLOEXEC, 0);
        if (opts->listeners[i].fd < 0)
            return err_set_errno(msg, errno, "cannot have another descriptor of a socket");
        opts->listener_count++;
    }
    return EMBTIER_OK;
}

static enum embtier_err make_loop(struct rpc *rpc, const struct config *config, uint32_t index,
                                  struct rpc_loop_opts *opts, struct err_msg *msg)
{
    enum embtier_err err;

    opts->index = index;
    /* Loops share their listening sockets, so all run on the engine that the first one has. */
    opts->engine = index > 0 ? rpc_loop_engine(rpc->loops[0]) : engine_of(config->rpc.io_uring);
    opts->count = &rpc->stream_count;
    opts->loop_count = config->rpc.threads;
    opts->strangers_most = config_rpc_strangers(config);
    opts->certificates = rpc->certificates;
    opts->handshakes = rpc->handshakes;
    opts->streams_most = config_rpc_streams(config);
    err = copy_listeners(rpc, opts, msg);
    if (err == EMBTIER_OK)
        err = rpc_loop_new(opts, &rpc->loops[index], msg);
    for (uint32_t i = 0; i < opts->listener_count && err != EMBTIER_OK; i++)
        closep(&opts->listeners[i].fd);
    return err;
}

enum embtier_err rpc_new(const struct config *config, struct certificates *certificates,
                         struct strangers *strangers,
                         void (*send)(void *owner, struct message *message), void *owner,
                         struct rpc **ret_rpc, struct err_msg *msg)
{
    struct rpc *rpc;

    *ret_rpc = NULL;
    if (config->rpc.listen_count == 0)
        return EMBTIER_OK;
    rpc = calloc(1, sizeof(*rpc));
    if (!rpc)
        return err_set(msg, EMBTIER_NO_MEMORY, "RPC: out of memory");
    *ret_rpc = rpc;
    rpc->certificates = certificates;
    rpc->loops = calloc(config->rpc.threads, sizeof(struct rpc_loop *));
    if (!rpc->loops)
        return err_set(msg, EMBTIER_NO_MEMORY, "RPC: out of memory");
    TRY(listen_all(rpc, config, msg));
    if (certificates)
        TRY(handshakes_new(config->tls.handshake_threads, &rpc->handshakes, msg));
    for (uint32_t i = 0; i < config->rpc.threads; i++) {
        struct rpc_loop_opts opts = { .strangers = strangers, .send = send, .owner = owner };

        TRY(make_loop(rpc, config, i, &opts, msg));
        rpc->loop_count++;
    }
    return EMBTIER_OK;
}

void rpc_stop(struct rpc *rpc)
{
    for (uint32_t i = 0; rpc && i < rpc->listener_count; i++)
        listener_close(&rpc->listeners[i]);
    for (uint32_t i = 0; rpc && i < rpc->loop_count; i++)
        rpc_loop_stop_listening(rpc->loops[i]);
}

void rpc_free(struct rpc *rpc)
{
    if (!rpc)
        return;
    for (uint32_t i = 0; i < rpc->loop_count; i++)
        rpc_loop_end(rpc->loops[i]);
    handshakes_free(rpc->handshakes);
    for (uint32_t i = 0; i < rpc->loop_count; i++)
        rpc_loop_free(rpc->loops[i]);
    free(rpc->loops);
    free(rpc);
}
