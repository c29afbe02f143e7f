/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that TLS carries bytes between sides that trust each other, and refuses others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tls/certificate_names.h"
#include "base/tls/tls_chain.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "tests/unit/base/authority.h"

#define DAY 86400L

/* Files of a folder, which is gone after the tests. */
static char folder[] = "/tmp/embtier-tls-XXXXXX";
static const char *const names[] = { "ca.crt",     "other.crt",  "server.crt", "server.key",
                                     "client.crt", "client.key", "old.crt",    "old.key",
                                     "mixed.crt",  "junk",       "middle.crt", "below.crt",
                                     "below.key",  "long.crt",   "chain.crt",  "chain.key",
                                     "extra.crt" };

static const char *path_of(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *const path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void write_holder(const char *name, const struct holder *holder)
{
    char file[64];

    snprintf(file, sizeof(file), "%s.crt", name);
    write_certificates(path_of(file), holder, NULL);
    snprintf(file, sizeof(file), "%s.key", name);
    write_key(path_of(file), holder);
}

static int make_files(void **state)
{
    struct holder ca, other, server, client, old, middle, below;
    FILE *junk;

    (void)state;
    assert_non_null(mkdtemp(folder));
    ca = holder_make("an authority", NULL, NULL, -DAY, DAY);
    other = holder_make("another", NULL, NULL, -DAY, DAY);
    server = holder_make("server", &ca, "DNS:server.test,IP:127.0.0.1", -DAY, DAY);
    client = holder_make("trainer", &ca, "URI:spiffe://a/b", -DAY, DAY);
    old = holder_make("server", &ca, "DNS:server.test", -2 * DAY, -DAY);
    middle = holder_make_authority("in the middle", &ca, -DAY, DAY);
    below = holder_make("server", &middle, "DNS:server.test", -DAY, DAY);
    write_certificates(path_of("ca.crt"), &ca, NULL);
    write_certificates(path_of("other.crt"), &other, NULL);
    write_certificates(path_of("mixed.crt"), &server, &other);
    write_holder("server", &server);
    write_holder("client", &client);
    write_holder("old", &old);
    write_certificates(path_of("middle.crt"), &middle, NULL);
    write_holder("below", &below);
    write_certificates(path_of("extra.crt"), &below, &middle);
    append_certificate(path_of("extra.crt"), &other);
    junk = fopen(path_of("junk"), "w");
    assert_non_null(junk);
    fputs("no certificate\n", junk);
    assert_int_equal(fclose(junk), 0);
    holder_free(&ca);
    holder_free(&other);
    holder_free(&server);
    holder_free(&client);
    holder_free(&old);
    holder_free(&middle);
    holder_free(&below);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

/* ---- Contexts ---- */

static SSL_CTX *server_context(const char *certificate, const char *key, const char *authority,
                               bool must_show)
{
    const struct tls_files files = { certificate ? path_of(certificate) : NULL, path_of(key),
                                     authority ? path_of(authority) : NULL };
    struct err_msg msg = { { 0 } };
    SSL_CTX *context = NULL;

    if (tls_context_server(&files, must_show, &context, &(enum tls_file){ 0 }, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return context;
}

static SSL_CTX *client_context(const char *certificate, const char *key, const char *authority)
{
    const struct tls_files files = { certificate ? path_of(certificate) : NULL,
                                     key ? path_of(key) : NULL, path_of(authority) };
    struct err_msg msg = { { 0 } };
    SSL_CTX *context = NULL;

    if (tls_context_client(&files, &context, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return context;
}

static void assert_refused(const char *certificate, const char *key, const char *authority,
                           enum tls_file wrong, const char *expected)
{
    const struct tls_files files = { path_of(certificate), path_of(key),
                                     authority ? path_of(authority) : NULL };
    struct err_msg msg = { { 0 } };
    SSL_CTX *context = NULL;
    enum tls_file file;

    assert_int_equal(tls_context_server(&files, false, &context, &file, &msg), EMBTIER_INVALID);
    assert_int_equal(file, wrong);
    assert_null(context);
    if (!strstr(msg.text, expected))
        fail_msg("'%s' does not tell of '%s'", msg.text, expected);
}

static void test_files_that_do_not_fit_are_named(void **state)
{
    (void)state;
    assert_refused("none.crt", "server.key", NULL, TLS_FILE_CERTIFICATE, "none.crt: No such file");
    assert_refused("junk", "server.key", NULL, TLS_FILE_CERTIFICATE, "junk holds no certificate");
    assert_refused("server.crt", "none.key", NULL, TLS_FILE_KEY, "none.key: No such file");
    assert_refused("server.crt", "junk", NULL, TLS_FILE_KEY, "junk holds no private key");
    assert_refused("server.crt", "client.key", NULL, TLS_FILE_KEY,
                   "is not that of the certificate");
    assert_refused("mixed.crt", "server.key", NULL, TLS_FILE_CERTIFICATE,
                   "certificate 1 was not signed by the one behind it");
    assert_refused("extra.crt", "below.key", NULL, TLS_FILE_CERTIFICATE,
                   "certificate 2 was not signed by the one behind it");
    assert_refused("server.crt", "server.key", "junk", TLS_FILE_AUTHORITY,
                   "junk holds no authority");
    assert_refused("server.crt", "server.key", "none.crt", TLS_FILE_AUTHORITY,
                   "none.crt: No such file");
}

/* The other side would end the handshake, and say nothing that helps. */
static void test_a_chain_that_nobody_takes_is_refused(void **state)
{
    FILE *const from = fopen(path_of("server.crt"), "r");
    FILE *const to = fopen(path_of("long.crt"), "w");
    char text[4096] = "";

    (void)state;
    assert_non_null(from);
    assert_non_null(to);
    assert_true(fread(text, 1, sizeof(text) - 1, from) > 0);
    for (int i = 0; i < 200; i++)
        fputs(text, to);
    assert_int_equal(fclose(from), 0);
    assert_int_equal(fclose(to), 0);
    assert_refused("long.crt", "server.key", NULL, TLS_FILE_CERTIFICATE,
                   "long.crt: its 200 certificates have ");
}

/* A chain in the file chain.crt: a server's certificate, and those that have signed it. */
struct chain {
    const char *own;     /* its extended usage, or NULL */
    long own_until_s;    /* from now */
    const char *middle;  /* constraints of its signer */
    long middle_until_s; /* 0: the authority signs it, and is not in the file */
    const char *top;     /* constraints of the one above, which is in the file if not NULL */
    bool is_top_old;     /* it has expired */
    const char *why;     /* NULL: it is good */
};

static enum embtier_err check_chain(const struct chain *chain, struct err_msg *msg)
{
    struct holder ca = holder_new("ca", NULL, chain->top ? chain->top : "critical,CA:TRUE", NULL,
                                  -3 * DAY, chain->is_top_old ? -DAY : DAY);
    struct holder middle = holder_new("middle", &ca, chain->middle ? chain->middle : "CA:TRUE",
                                      NULL, -3 * DAY, chain->middle_until_s);
    const bool is_long = chain->middle_until_s != 0;
    struct holder own =
        holder_make("server", is_long ? &middle : &ca, NULL, -3 * DAY, chain->own_until_s);
    SSL_CTX *context;
    enum embtier_err err;
    int verdict;

    if (chain->own) {
        add_extension(own.certificate, ca.certificate, NID_ext_key_usage, chain->own);
        must(X509_sign(own.certificate, is_long ? middle.key : ca.key, EVP_sha256()) > 0);
    }
    write_certificates(path_of("chain.crt"), &own, is_long ? &middle : NULL);
    write_key(path_of("chain.key"), &own);
    if (chain->top)
        append_certificate(path_of("chain.crt"), &ca);
    context = server_context("chain.crt", "chain.key", NULL, false);
    err = tls_chain_check(context, &verdict, msg);
    tls_context_free(context);
    holder_free(&own);
    holder_free(&middle);
    holder_free(&ca);
    return err;
}

static void test_a_chain_that_clients_refuse_is_known(void **state)
{
    static const struct chain cases[] = {
        { .own_until_s = DAY },
        { .own_until_s = DAY, .middle_until_s = DAY },
        { .own = "serverAuth", .own_until_s = DAY, .middle_until_s = DAY, .top = "CA:TRUE" },
        { .own_until_s = -DAY, .why = "the certificate expired at 20" },
        { .own = "clientAuth", .own_until_s = DAY, .why = "the certificate is not made for serv" },
        { .own_until_s = DAY, .middle_until_s = -DAY, .why = "certificate 2, CN=middle, expired" },
        { .own_until_s = DAY, .middle_until_s = DAY, .top = "CA:TRUE", .is_top_old = true },
        { .own_until_s = DAY,
          .middle_until_s = DAY,
          .top = "CA:FALSE",
          .is_top_old = true,
          .why = "certificate 3, CN=ca, is no CA's" },
        { .own_until_s = DAY,
          .middle_until_s = -DAY,
          .top = "CA:TRUE",
          .why = "certificate 2, CN=middle, expired at 20" },
        { .own_until_s = DAY,
          .middle = "CA:FALSE",
          .middle_until_s = DAY,
          .why = "certificate 2, CN=middle, is no CA's" },
        { .own_until_s = DAY,
          .middle_until_s = DAY,
          .top = "critical,CA:TRUE,pathlen:0",
          .why = "certificate 3, CN=ca, would be refused: path length" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err_msg msg = { { 0 } };
        const enum embtier_err err = check_chain(&cases[i], &msg);

        assert_int_equal(err, cases[i].why ? EMBTIER_INVALID : EMBTIER_OK);
        if (cases[i].why && !strstr(msg.text, cases[i].why))
            fail_msg("case %zu: '%s' does not tell of '%s'", i, msg.text, cases[i].why);
    }
}

/* ---- Connections ---- */

struct sides {
    int fds[2];
    struct tls_stream *server, *client;
    enum embtier_err server_err, client_err;
    struct err_msg server_msg, client_msg;
};

static void sides_open(struct sides *s, SSL_CTX *server, SSL_CTX *client, const char *host)
{
    struct err_msg msg = { { 0 } };

    *s = (struct sides){ .fds = { -1, -1 } };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s->fds), 0);
    if (tls_stream_accept(server, s->fds[0], &s->server, &msg) != EMBTIER_OK ||
        tls_stream_connect(client, s->fds[1], host, &s->client, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    tls_context_free(server);
    tls_context_free(client);
}

static void sides_close(struct sides *s)
{
    tls_stream_free(s->server);
    tls_stream_free(s->client);
    close(s->fds[0]);
    close(s->fds[1]);
}

/* Sends what the other side takes. The other side may have gone. */
static void flush(struct tls_stream *stream)
{
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = tls_flush(stream, &msg);

    assert_true(err == EMBTIER_OK || err == EMBTIER_AGAIN || err == EMBTIER_DISCONNECTED);
}

/* Lets both go on until neither waits for the other. A side that has ended closes its socket. */
static void shake_hands(struct sides *s)
{
    s->server_err = s->client_err = EMBTIER_AGAIN;
    for (int i = 0; i < 10; i++) {
        if (s->client_err == EMBTIER_AGAIN)
            s->client_err = tls_handshake(s->client, &s->client_msg);
        flush(s->client);
        if (s->server_err == EMBTIER_AGAIN)
            s->server_err = tls_handshake(s->server, &s->server_msg);
        flush(s->server);
    }
}

/* A client of TLS 1.3 is done before the server has looked at its certificate. */
static enum embtier_err client_reads(struct sides *s)
{
    char byte;
    const struct iovec buffer = { &byte, 1 };
    size_t got;

    return tls_read(s->client, &buffer, 1, 1, &got, &s->client_msg);
}

static void assert_trusted(SSL_CTX *server, SSL_CTX *client, const char *host)
{
    struct sides s;

    sides_open(&s, server, client, host);
    shake_hands(&s);
    if (s.server_err != EMBTIER_OK || s.client_err != EMBTIER_OK)
        fail_msg("%s, %s", s.server_msg.text, s.client_msg.text);
    assert_int_equal(client_reads(&s), EMBTIER_AGAIN);
    sides_close(&s);
}

static void test_sides_that_trust_each_other_connect(void **state)
{
    (void)state;
    assert_trusted(server_context("server.crt", "server.key", NULL, false),
                   client_context(NULL, NULL, "ca.crt"), "server.test");
    assert_trusted(server_context("server.crt", "server.key", NULL, false),
                   client_context(NULL, NULL, "ca.crt"), "127.0.0.1");
    assert_trusted(server_context("below.crt", "below.key", NULL, false),
                   client_context(NULL, NULL, "middle.crt"), "server.test");
    assert_trusted(server_context("server.crt", "server.key", "ca.crt", false),
                   client_context(NULL, NULL, "ca.crt"), "server.test");
    assert_trusted(server_context("server.crt", "server.key", "ca.crt", true),
                   client_context("client.crt", "client.key", "ca.crt"), "server.test");
}

static void assert_client_refuses(SSL_CTX *server, const char *authority, const char *host,
                                  const char *expected)
{
    struct sides s;

    sides_open(&s, server, client_context(NULL, NULL, authority), host);
    shake_hands(&s);
    assert_int_equal(s.client_err, EMBTIER_PERMISSION);
    if (!strstr(s.client_msg.text, expected))
        fail_msg("'%s' does not tell of '%s'", s.client_msg.text, expected);
    assert_int_not_equal(s.server_err, EMBTIER_OK);
    assert_int_not_equal(s.server_err, EMBTIER_AGAIN); /* it was told */
    sides_close(&s);
}

static void test_a_client_refuses_a_server_that_it_does_not_trust(void **state)
{
    (void)state;
    assert_client_refuses(server_context("server.crt", "server.key", NULL, false), "other.crt",
                          "server.test", "issuer");
    assert_client_refuses(server_context("server.crt", "server.key", NULL, false), "ca.crt",
                          "else.test", "ostname mismatch");
    assert_client_refuses(server_context("server.crt", "server.key", NULL, false), "ca.crt",
                          "127.0.0.2", "IP address mismatch");
    assert_client_refuses(server_context("old.crt", "old.key", NULL, false), "ca.crt",
                          "server.test", "expired");
}

static void assert_server_refuses(const char *authority, SSL_CTX *client, const char *expected)
{
    struct sides s;

    sides_open(&s, server_context("server.crt", "server.key", authority, true), client,
               "server.test");
    shake_hands(&s);
    assert_int_equal(s.server_err, EMBTIER_PERMISSION);
    if (!strstr(s.server_msg.text, expected))
        fail_msg("'%s' does not tell of '%s'", s.server_msg.text, expected);
    assert_int_equal(client_reads(&s), EMBTIER_PERMISSION);
    sides_close(&s);
}

static void test_a_server_refuses_a_client_that_it_does_not_trust(void **state)
{
    (void)state;
    assert_server_refuses("ca.crt", client_context(NULL, NULL, "ca.crt"),
                          "peer did not return a certificate");
    assert_server_refuses("other.crt", client_context("client.crt", "client.key", "ca.crt"),
                          "in certificate chain");
    assert_server_refuses("ca.crt", client_context("old.crt", "old.key", "ca.crt"), "expired");
}

static void test_plain_bytes_are_no_handshake(void **state)
{
    static const char text[] = "EBT1 plain text to the port of TLS";
    struct sides s;

    (void)state;
    sides_open(&s, server_context("server.crt", "server.key", NULL, false),
               client_context(NULL, NULL, "ca.crt"), "server.test");
    assert_int_equal(write(s.fds[1], text, sizeof(text)), sizeof(text));
    assert_int_equal(tls_handshake(s.server, &s.server_msg), EMBTIER_PROTOCOL);
    sides_close(&s);
}

/* ---- Bytes ---- */

static void open_trusted(struct sides *s)
{
    sides_open(s, server_context("server.crt", "server.key", "ca.crt", true),
               client_context("client.crt", "client.key", "ca.crt"), "server.test");
    shake_hands(s);
    assert_int_equal(s->server_err, EMBTIER_OK);
    assert_int_equal(s->client_err, EMBTIER_OK);
}

static void test_a_clients_names_are_its_certificates(void **state)
{
    struct err_msg msg = { { 0 } };
    struct sides s;
    char *list = NULL;
    X509 *certificate;

    (void)state;
    open_trusted(&s);
    certificate = tls_peer_certificate(s.server);
    assert_non_null(certificate);
    assert_int_equal(certificate_names(certificate, &list, &msg), EMBTIER_OK);
    assert_string_equal(list, "CN=trainer");
    assert_string_equal(list + sizeof("CN=trainer"), "URI:spiffe://a/b");
    free(list);
    X509_free(certificate);
    sides_close(&s);
}

/* Fills bytes that tell their place. */
static void number(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)((i * 2654435761U) >> 13);
}

/* Small and large pieces, and empty ones. */
static uint32_t cut(uint8_t *bytes, size_t count, struct iovec *ret_pieces)
{
    static const size_t sizes[] = { 0, 32, 7, 0, 512, 512, 40000, 3, 16384, 1, 5000, 16385 };
    size_t at = 0;
    uint32_t pieces = 0;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        ret_pieces[pieces++] = (struct iovec){ bytes + at, sizes[i] };
        at += sizes[i];
    }
    ret_pieces[pieces++] = (struct iovec){ bytes + at, count - at };
    return pieces;
}

/* Drops @bytes from the front of pieces. */
static void drop(struct iovec *pieces, uint32_t count, size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const size_t here = MIN(bytes, pieces[i].iov_len);

        pieces[i].iov_base = (uint8_t *)pieces[i].iov_base + here;
        pieces[i].iov_len -= here;
        bytes -= here;
    }
}

static void test_bytes_arrive_as_they_were_sent(void **state)
{
    enum { COUNT = 1000000 };
    uint8_t *const sent = malloc(COUNT), *const got = calloc(1, COUNT);
    struct iovec out[16], in[16];
    struct err_msg msg = { { 0 } };
    size_t written = 0, received = 0;
    struct sides s;
    uint32_t pieces;

    (void)state;
    assert_true(sent && got);
    number(sent, COUNT);
    open_trusted(&s);
    pieces = cut(sent, COUNT, out);
    (void)cut(got, COUNT, in);
    while (received < COUNT) {
        size_t bytes = 0;
        enum embtier_err err =
            written < COUNT ? tls_write(s.client, out, pieces, &bytes, &msg) : EMBTIER_AGAIN;

        assert_true(err == EMBTIER_OK || err == EMBTIER_AGAIN);
        drop(out, pieces, bytes);
        written += bytes;
        flush(s.client);
        bytes = 0;
        err = tls_read(s.server, in, pieces, 50000, &bytes, &msg);
        assert_true(err == EMBTIER_OK || err == EMBTIER_AGAIN);
        assert_true(bytes <= 50000);
        drop(in, pieces, bytes);
        received += bytes;
    }
    assert_int_equal(received, COUNT);
    assert_memory_equal(sent, got, COUNT);
    free(sent);
    free(got);
    sides_close(&s);
}

static void test_what_is_collected_has_a_limit(void **state)
{
    static uint8_t bytes[TLS_OUT_BYTES];
    const struct iovec piece = { bytes, sizeof(bytes) };
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;
    size_t taken = 0, waiting;
    struct sides s;

    (void)state;
    open_trusted(&s);
    for (int i = 0; i < 100 && err == EMBTIER_OK; i++)
        err = tls_write(s.client, &piece, 1, &taken, &msg);
    assert_int_equal(err, EMBTIER_AGAIN);
    (void)tls_out(s.client, &waiting);
    assert_true(waiting > 0 && waiting <= TLS_OUT_BYTES);
    sides_close(&s);
}

/* So that no client keeps its server's thread for long. */
static void test_one_call_takes_a_part_of_what_has_come(void **state)
{
    enum { COUNT = 150000 };
    uint8_t *const bytes = calloc(2, COUNT);
    enum embtier_err err = EMBTIER_OK;
    struct err_msg msg = { { 0 } };
    size_t written = 0, count = 0;
    struct iovec piece;
    struct sides s;

    (void)state;
    assert_non_null(bytes);
    open_trusted(&s);
    while (written < COUNT && err == EMBTIER_OK) {
        piece = (struct iovec){ bytes + written, COUNT - written };
        assert_int_equal(tls_write(s.client, &piece, 1, &count, &msg), EMBTIER_OK);
        err = tls_flush(s.client, &msg);
        written += count;
    }
    assert_true(written > 100000); /* the socket takes more than one call gives */
    piece = (struct iovec){ bytes + COUNT, COUNT };
    assert_int_equal(tls_read(s.server, &piece, 1, SIZE_MAX, &count, &msg), EMBTIER_OK);
    assert_in_range(count, 1, 64 << 10);
    free(bytes);
    sides_close(&s);
}

static void test_an_end_is_told_after_the_bytes_before_it(void **state)
{
    char bytes[16] = "last words";
    struct iovec piece = { bytes, sizeof(bytes) };
    struct err_msg msg = { { 0 } };
    struct sides s;
    size_t count;

    (void)state;
    open_trusted(&s);
    assert_int_equal(tls_write(s.server, &piece, 1, &count, &msg), EMBTIER_OK);
    tls_end(s.server);
    assert_int_equal(tls_flush(s.server, &msg), EMBTIER_OK);
    assert_int_equal(tls_read(s.client, &piece, 1, SIZE_MAX, &count, &msg), EMBTIER_OK);
    assert_int_equal(count, sizeof(bytes));
    assert_int_equal(tls_read(s.client, &piece, 1, SIZE_MAX, &count, &msg), EMBTIER_DISCONNECTED);
    assert_int_equal(tls_read(s.client, &piece, 1, SIZE_MAX, &count, &msg), EMBTIER_DISCONNECTED);
    sides_close(&s);
}

static void test_a_byte_that_was_changed_ends_the_connection(void **state)
{
    char bytes[64] = "rows";
    const struct iovec piece = { bytes, sizeof(bytes) };
    struct err_msg msg = { { 0 } };
    uint8_t record[256];
    struct sides s;
    size_t count;
    ssize_t got;

    (void)state;
    open_trusted(&s);
    assert_int_equal(tls_write(s.client, &piece, 1, &count, &msg), EMBTIER_OK);
    assert_int_equal(tls_flush(s.client, &msg), EMBTIER_OK);
    got = read(s.fds[0], record, sizeof(record));
    assert_true(got > 20);
    record[got - 20] ^= 1;
    assert_int_equal(write(s.fds[1], record, (size_t)got), got);
    assert_int_equal(tls_read(s.server, &piece, 1, SIZE_MAX, &count, &msg), EMBTIER_PROTOCOL);
    (void)tls_out(s.server, &count);
    assert_true(count > 0); /* an alert for the client */
    sides_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_that_do_not_fit_are_named),
        cmocka_unit_test(test_a_chain_that_nobody_takes_is_refused),
        cmocka_unit_test(test_a_chain_that_clients_refuse_is_known),
        cmocka_unit_test(test_sides_that_trust_each_other_connect),
        cmocka_unit_test(test_a_client_refuses_a_server_that_it_does_not_trust),
        cmocka_unit_test(test_a_server_refuses_a_client_that_it_does_not_trust),
        cmocka_unit_test(test_plain_bytes_are_no_handshake),
        cmocka_unit_test(test_a_clients_names_are_its_certificates),
        cmocka_unit_test(test_bytes_arrive_as_they_were_sent),
        cmocka_unit_test(test_what_is_collected_has_a_limit),
        cmocka_unit_test(test_one_call_takes_a_part_of_what_has_come),
        cmocka_unit_test(test_an_end_is_told_after_the_bytes_before_it),
        cmocka_unit_test(test_a_byte_that_was_changed_ends_the_connection),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
