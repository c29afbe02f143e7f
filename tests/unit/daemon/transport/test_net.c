/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that reads and writes with TLS end once and with the right bytes, on both engines, also
 * while the client has its keys updated again and again. The client is OpenSSL's own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "daemon/transport/rpc/net/net.h"
#include "tests/unit/base/authority.h"

#define LIMIT_NS   (UINT64_C(60) * 1000000000)
#define SENT_BYTES ((size_t)1 << 20)
/* More than the answers to them that a connection keeps. */
#define UPDATES 4000

struct fixture {
    struct io *io;
    int wake_fd;
    struct net net;
    int client_fd; /* -1: closed */
    SSL *client;
    uint64_t until_ns;

    uint8_t *sent, *got;
    size_t written, received;
    struct iovec out;
    uint8_t in[64];
    struct iovec in_buffer;
    uint32_t reads_ended, closed;
    int write_result; /* the last one */
};

static struct fixture *fixture_of(struct net *net)
{
    return CONTAINER_OF(net, struct fixture, net);
}

static void turn(struct fixture *f)
{
    assert_true(clock_now_ns(&clock_monotonic) < f->until_ns);
    io_run(f->io, UINT64_C(1000000));
}

/* ---- Set-up ---- */

static void make_contexts(SSL_CTX **ret_server, SSL_CTX **ret_client)
{
    struct holder ca = holder_make("authority", NULL, NULL, 0, 86400);
    struct holder server = holder_make("server", &ca, "DNS:server.test", 0, 86400);
    struct err_msg msg = { { 0 } };
    char paths[3][64] = { "/tmp/embtier-net-XXXXXX", "/tmp/embtier-net-XXXXXX",
                          "/tmp/embtier-net-XXXXXX" };

    for (int i = 0; i < 3; i++)
        assert_int_equal(close(mkstemp(paths[i])), 0);
    write_certificates(paths[0], &ca, NULL);
    write_certificates(paths[1], &server, NULL);
    write_key(paths[2], &server);
    assert_int_equal(
        tls_context_server(&(struct tls_files){ .certificate = paths[1], .key = paths[2] }, false,
                           ret_server, &(enum tls_file){ 0 }, &msg),
        EMBTIER_OK);
    assert_int_equal(
        tls_context_client(&(struct tls_files){ .authority = paths[0] }, ret_client, &msg),
        EMBTIER_OK);
    for (int i = 0; i < 3; i++)
        unlink(paths[i]);
    holder_free(&ca);
    holder_free(&server);
}

static struct tls_stream *shake_hands(struct fixture *f, int server_fd)
{
    struct tls_stream *stream = NULL;
    SSL_CTX *server, *client;
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_AGAIN;
    int result = 0;

    make_contexts(&server, &client);
    assert_int_equal(tls_stream_accept(server, server_fd, &stream, &msg), EMBTIER_OK);
    f->client = SSL_new(client);
    SSL_set_fd(f->client, f->client_fd);
    SSL_set_connect_state(f->client);
    for (int i = 0; i < 10 && (result != 1 || err == EMBTIER_AGAIN); i++) {
        result = SSL_do_handshake(f->client);
        err = tls_handshake(stream, &msg);
        assert_int_equal(tls_flush(stream, &msg), EMBTIER_OK);
    }
    assert_int_equal(result, 1);
    assert_int_equal(err, EMBTIER_OK);
    tls_context_free(server);
    tls_context_free(client);
    return stream;
}

static int setup_on(const struct io_engine *engine, void **state)
{
    struct fixture *const f = calloc(1, sizeof(*f));
    struct err_msg msg = { { 0 } }, refusal;
    int pair[2];

    f->until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;
    f->wake_fd = eventfd(0, EFD_NONBLOCK);
    if (io_new(engine, f->wake_fd, &f->io, &refusal, &msg) != EMBTIER_OK)
        fail_msg("%s: %s", engine->name, msg.text);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    f->client_fd = pair[1];
    net_open(&f->net, f->io, pair[0], shake_hands(f, pair[0]));
    f->sent = malloc(SENT_BYTES);
    f->got = calloc(1, SENT_BYTES);
    for (size_t i = 0; i < SENT_BYTES; i++)
        f->sent[i] = (uint8_t)((i * 2654435761U) >> 13);
    *state = f;
    return 0;
}

static int setup_uring(void **state)
{
    return setup_on(&io_uring_engine, state);
}

static int setup_epoll(void **state)
{
    return setup_on(&io_epoll_engine, state);
}

static void on_closed(struct net *net)
{
    fixture_of(net)->closed++;
}

static void close_client(struct fixture *f)
{
    if (f->client_fd >= 0)
        close(f->client_fd);
    f->client_fd = -1;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    net_close(&f->net, on_closed);
    while (f->closed == 0)
        turn(f);
    SSL_free(f->client);
    close_client(f);
    io_free(f->io);
    close(f->wake_fd);
    free(f->sent);
    free(f->got);
    free(f);
    return 0;
}

/* ---- The server's side ---- */

static void on_read(struct net *net, int result)
{
    (void)result;
    fixture_of(net)->reads_ended++;
}

static void begin_read(struct fixture *f)
{
    f->in_buffer = (struct iovec){ f->in, sizeof(f->in) };
    net_read(&f->net, &f->in_buffer, 1, on_read);
}

static void on_written(struct net *net, int result);

static void write_more(struct fixture *f)
{
    f->out = (struct iovec){ f->sent + f->written, SENT_BYTES - f->written };
    net_write(&f->net, &f->out, 1, on_written);
}

static void on_written(struct net *net, int result)
{
    struct fixture *const f = fixture_of(net);

    f->write_result = result;
    if (result < 0)
        return;
    f->written += (size_t)result;
    if (f->written < SENT_BYTES)
        write_more(f);
}

/* ---- The client's side ---- */

/* Wants new keys of the server, which answers each time. It reads nothing meanwhile. */
static void update_keys(struct fixture *f, uint32_t count)
{
    for (uint32_t i = 0; i < count && !f->net.lacks_room; i++) {
        assert_int_equal(SSL_key_update(f->client, SSL_KEY_UPDATE_REQUESTED), 1);
        while (SSL_do_handshake(f->client) != 1)
            turn(f);
        turn(f);
    }
}

static void receive_all(struct fixture *f)
{
    while (f->received < SENT_BYTES) {
        size_t got = 0;

        if (SSL_read_ex(f->client, f->got + f->received, SENT_BYTES - f->received, &got) == 1)
            f->received += got;
        else
            assert_int_equal(SSL_get_error(f->client, 0), SSL_ERROR_WANT_READ);
        turn(f);
    }
}

static void test_updates_of_keys_spoil_no_write(void **state)
{
    struct fixture *const f = *state;

    begin_read(f);
    write_more(f);
    update_keys(f, UPDATES);
    assert_true(f->net.lacks_room); /* as many answers wait as may */
    receive_all(f);
    assert_memory_equal(f->sent, f->got, SENT_BYTES);
    while (f->written < SENT_BYTES)
        turn(f);
    assert_int_equal(f->written, SENT_BYTES);
    assert_false(f->net.lacks_room);
    assert_int_equal(f->reads_ended, 0); /* no byte has come for it */
    assert_int_equal(SSL_write(f->client, "x", 1), 1);
    while (f->reads_ended == 0)
        turn(f);
    assert_int_equal(f->in[0], 'x');
}

static void test_a_client_that_goes_ends_a_read_without_room(void **state)
{
    struct fixture *const f = *state;

    begin_read(f);
    write_more(f);
    update_keys(f, UPDATES);
    assert_true(f->net.lacks_room);
    close_client(f);
    while (f->reads_ended == 0)
        turn(f);
    assert_true(f->write_result < 0);
    assert_false(net_is_reading(&f->net));
}

#define ON(test)                                                                                   \
    cmocka_unit_test_setup_teardown(test, setup_uring, teardown),                                  \
        cmocka_unit_test_setup_teardown(test, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(test_updates_of_keys_spoil_no_write),
        ON(test_a_client_that_goes_ends_a_read_without_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
