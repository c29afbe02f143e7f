/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that certificates and users which keep clients out, now or soon, are told, and no others.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/tls/tls_context.h"
#include "config/config_load.h"
#include "daemon/access/access_rules.h"
#include "daemon/budget/budget.h"
#include "daemon/file_warnings.h"
#include "tests/unit/base/authority.h"

#define DAY 86400L
/* So that a test may take its time. */
#define LATER 600L

static char folder[] = "/tmp/embtier-warnings-XXXXXX";
static char told[4096]; /* the warnings, one a line */
static bool asks_notes;
static const struct holder *root; /* behind the signer in the server's file; NULL: none */

static const char *path_of(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *const path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void take_warning(const char *place, const char *what, const char *why)
{
    const size_t used = strlen(told);

    snprintf(told + used, sizeof(told) - used, "%s | %s | %s\n", place, what, why);
}

static struct config *new_config(const char *listen, const char *tls)
{
    const struct machine machine = { .memory_bytes = 64 * GIB,
                                     .available_bytes = 64 * GIB,
                                     .core_count = 2,
                                     .descriptor_limit = 100000 };
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    char text[1024];

    snprintf(text, sizeof(text), "rpc: {listen: ['%s']}\ntls:\n%s", listen, tls);
    if (config_parse("e.yaml", text, strlen(text), &machine, budget_unbudgeted, &config, &msg) !=
        EMBTIER_OK)
        fail_msg("%s", msg.text);
    return config;
}

/* Looks at a server with this certificate, signed by @signer, and this CA of its clients. */
static void look_at(const struct holder *own, const struct holder *signer, const struct holder *ca)
{
    _cleanup_(config_freep) struct config *config = NULL;
    _cleanup_(tls_context_freep) SSL_CTX *tls = NULL;
    struct err_msg msg = { { 0 } };
    enum tls_file file;
    char text[512];

    write_certificates(path_of("own.crt"), own, signer);
    if (root)
        append_certificate(path_of("own.crt"), root);
    write_key(path_of("own.key"), own);
    write_certificates(path_of("ca.crt"), ca, NULL);
    assert_int_equal(chmod(path_of("own.key"), 0640), 0);
    snprintf(text, sizeof(text), "  certificate: %s\n  key: %s\n  client_ca: %s\n",
             path_of("own.crt"), path_of("own.key"), path_of("ca.crt"));
    config = new_config("tls://127.0.0.1:7411", text);
    if (tls_context_server(&(struct tls_files){ .certificate = config->tls.certificate,
                                                .key = config->tls.key,
                                                .authority = config->tls.client_ca },
                           false, &tls, &file, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    told[0] = '\0';
    file_warnings(config, tls, NULL, take_warning, asks_notes ? take_warning : NULL);
}

/* @words: NULL: nothing is told. */
static void assert_told(const char *words)
{
    if (words ? strstr(told, words) == NULL : told[0] != '\0')
        fail_msg("\n got: %s\nwant: %s", told, words ? words : "(nothing)");
}

static void test_dates(void **state)
{
    static const struct {
        long from_s, until_s;
        const char *words;
    } cases[] = {
        { -335 * DAY, 30 * DAY + LATER, NULL },
        { -335 * DAY, 30 * DAY - LATER, "the server's certificate expires soon | " },
        { -LATER, 10 * DAY, NULL }, /* of a short life: a third of it counts */
        { -6 * DAY - LATER, 3 * DAY - LATER, "e.yaml:3: tls.certificate | the server's cert" },
        { -6 * DAY + LATER, 3 * DAY + LATER, NULL },
        { -2 * DAY, -DAY, "clients will refuse the server's certificate | " },
        { LATER, DAY, "own.crt is not valid before 20" },
    };
    struct holder ca = holder_make("ca", NULL, NULL, -DAY, 365 * DAY);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct holder own = holder_make("server", &ca, NULL, cases[i].from_s, cases[i].until_s);

        look_at(&own, NULL, &ca);
        assert_told(cases[i].words);
        holder_free(&own);
    }
    holder_free(&ca);
}

static void test_dates_of_signers(void **state)
{
    struct holder good = holder_make("ca", NULL, NULL, -DAY, 365 * DAY);
    struct holder late = holder_make("late", NULL, NULL, -365 * DAY, DAY);
    struct holder middle = holder_make_authority("middle", &good, -30 * DAY, -DAY);
    struct holder own = holder_make("server", &middle, NULL, -DAY, 365 * DAY);
    struct holder old = holder_make_authority("old", &good, -30 * DAY, -DAY);
    struct holder below = holder_make_authority("below", &old, -DAY, 365 * DAY);
    struct holder last = holder_make("server", &below, NULL, -DAY, 365 * DAY);

    (void)state;
    look_at(&own, NULL, &middle);
    assert_told("e.yaml:5: tls.client_ca | clients with certificates of this CA are refused | ");
    look_at(&own, &middle, &good);
    assert_told("e.yaml:3: tls.certificate | clients will refuse the server's certificate | ");
    assert_told("own.crt: certificate 2, CN=middle, expired at 20");
    root = &old;
    look_at(&last, &below, &good);
    root = NULL;
    assert_told("e.yaml:3: tls.certificate | clients may refuse the server's certificate | ");
    assert_told("own.crt: certificate 3, CN=old, expired at 20");
    look_at(&own, NULL, &late);
    assert_told("e.yaml:5: tls.client_ca | a CA of clients expires soon | ");
    assert_told("ca.crt: the certificate of CN=late expires at 20");
    holder_free(&last);
    holder_free(&below);
    holder_free(&old);
    holder_free(&own);
    holder_free(&middle);
    holder_free(&late);
    holder_free(&good);
}

/* A client that has the CA alone cannot know the signer. Clients may have another CA, too. */
static void test_a_signer_that_no_file_has(void **state)
{
    static const char words[] = "tls.certificate | clients may refuse the server's certificate | ";
    struct holder ca = holder_make("ca", NULL, NULL, -DAY, 365 * DAY);
    struct holder middle = holder_make_authority("middle", &ca, -DAY, 365 * DAY);
    struct holder own = holder_make("server", &middle, NULL, -DAY, 365 * DAY);

    (void)state;
    look_at(&own, NULL, &ca);
    assert_told(NULL);
    asks_notes = true;
    look_at(&own, NULL, &ca);
    assert_told(words);
    assert_told("its signer, CN=middle, is not in tls.client_ca");
    look_at(&own, &middle, &ca);
    assert_told(NULL);
    look_at(&own, NULL, &middle);
    assert_told(NULL);
    look_at(&ca, NULL, &own);
    assert_null(strstr(told, words)); /* it is its own signer */
    asks_notes = false;
    holder_free(&own);
    holder_free(&middle);
    holder_free(&ca);
}

static void test_signers_that_may_not_sign(void **state)
{
    struct holder ca = holder_make("ca", NULL, NULL, -DAY, 365 * DAY);
    struct holder middle = holder_make("middle", &ca, NULL, -DAY, 365 * DAY);
    struct holder own = holder_make("server", &middle, NULL, -DAY, 365 * DAY);

    (void)state;
    look_at(&own, &middle, &ca);
    assert_told("e.yaml:3: tls.certificate | clients will refuse the server's certificate | ");
    assert_told("own.crt: certificate 2, CN=middle, is no CA's, and so may not sign another; make");
    holder_free(&own);
    holder_free(&middle);
    holder_free(&ca);
}

static void test_certificates_of_others(void **state)
{
    struct holder ca = holder_make("ca", NULL, NULL, -DAY, 365 * DAY);
    struct holder client = holder_make("trainer", &ca, NULL, -DAY, 365 * DAY);
    struct holder server = holder_make("server", &ca, NULL, -DAY, 365 * DAY);

    (void)state;
    add_extension(client.certificate, ca.certificate, NID_ext_key_usage, "clientAuth");
    must(X509_sign(client.certificate, ca.key, EVP_sha256()) > 0);
    look_at(&client, NULL, &ca);
    assert_told("own.crt: the certificate is not made for servers; make a new one");
    add_extension(server.certificate, ca.certificate, NID_ext_key_usage, "serverAuth");
    must(X509_sign(server.certificate, ca.key, EVP_sha256()) > 0);
    look_at(&server, NULL, &ca);
    assert_told(NULL);
    add_extension(ca.certificate, ca.certificate, NID_key_usage, "critical,keyCertSign");
    must(X509_sign(ca.certificate, ca.key, EVP_sha256()) > 0);
    look_at(&ca, NULL, &ca);
    assert_told("own.crt: the certificate is a CA's own; make a new one");
    holder_free(&server);
    holder_free(&client);
    holder_free(&ca);
}

static void look_at_users(const char *listen, const char *tls)
{
    static const char text[] = "users:\n"
                               "  - {name: none, role: read}\n"
                               "  - {name: shown, role: read, certificates: ['CN=a']}\n"
                               "  - {name: both, role: read, certificates: ['CN=b'], "
                               "unix_users: [7]}\n";
    _cleanup_(config_freep) struct config *config = new_config(listen, tls);
    _cleanup_(access_rules_freep) struct access_rules *rules = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(access_rules_parse("a.yaml", text, strlen(text), &rules, &msg), EMBTIER_OK);
    told[0] = '\0';
    file_warnings(config, NULL, rules, take_warning, NULL);
}

static void test_users_that_no_client_can_be(void **state)
{
    static const char with_ca[] = "  certificate: c\n  key: k\n  client_ca: a\n";
    static const char none[] = "a.yaml:2: users[0] | no client can be this user of the access file "
                               "| user 'none' has no tokens";
    static const char shown[] = "a.yaml:3: users[1] | no client can be this user of the access "
                                "file | user 'shown' is known by certificates alone";

    (void)state;
    look_at_users("tls://127.0.0.1:7411", with_ca);
    assert_told(none);
    assert_null(strstr(told, "shown"));
    look_at_users("tls://127.0.0.1:7411", "  certificate: c\n  key: k\n");
    assert_told(none);
    assert_told(shown);
    assert_told("has no tls.client_ca");
    assert_null(strstr(told, "both"));
    look_at_users("tcp://127.0.0.1:7411", with_ca);
    assert_told(shown);
    assert_told("no address of rpc.listen has tls://");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path_of("own.crt"));
    (void)unlink(path_of("own.key"));
    (void)unlink(path_of("ca.crt"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_dates_of_signers),
        cmocka_unit_test(test_a_signer_that_no_file_has),
        cmocka_unit_test(test_signers_that_may_not_sign),
        cmocka_unit_test(test_certificates_of_others),
        cmocka_unit_test(test_users_that_no_client_can_be),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
