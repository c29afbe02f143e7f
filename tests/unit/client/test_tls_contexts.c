/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a session reads the files of its addresses once, that files which were renewed are
 * read again, and that files which cannot be used never give way to what was read before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "base/macros.h"
#include "base/tls/tls_context.h"
#include "client/transport/rpc/tls_contexts.h"
#include "tests/unit/base/authority.h"

#define DAY (24 * 60 * 60L)

static const char *const names[] = { "ca.crt", "other.crt", "own.crt", "own.key", "new" };

static char folder[] = "/tmp/embtier-contexts-XXXXXX";
static struct tls_contexts *contexts;

static void name_file(const char *name, char path[ADDRESS_FILE_MAX + 1])
{
    if (name)
        snprintf(path, ADDRESS_FILE_MAX + 1, "%s/%s", folder, name);
}

static struct address_files files_of(const char *authority, const char *certificate)
{
    struct address_files files = { .authority = "" };

    name_file(authority, files.authority);
    if (certificate) {
        name_file(certificate, files.certificate);
        name_file("own.key", files.key);
    }
    return files;
}

/* ---- Files, written until the system's clock tells them from the ones before ---- */

static struct timespec changed(const char *path)
{
    struct stat at;

    return stat(path, &at) == 0 ? at.st_ctim : (struct timespec){ 0 };
}

static bool is_renewed(const char *path, struct timespec before)
{
    const struct timespec now = changed(path);

    return now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec;
}

static void renew_certificate(const char *path, const struct holder *holder)
{
    const struct timespec before = changed(path);

    do
        write_certificates(path, holder, NULL);
    while (!is_renewed(path, before));
}

static void renew_key(const char *path, const struct holder *holder)
{
    const struct timespec before = changed(path);

    do
        write_key(path, holder);
    while (!is_renewed(path, before));
}

static void write_authority(const char *name)
{
    char path[ADDRESS_FILE_MAX + 1];
    struct holder ca = holder_make("an authority", NULL, NULL, -DAY, DAY);

    name_file(name, path);
    renew_certificate(path, &ca);
    holder_free(&ca);
}

static void write_own(void)
{
    const struct address_files files = files_of(NULL, "own.crt");
    struct holder own = holder_make("trainer", NULL, NULL, -DAY, DAY);

    renew_certificate(files.certificate, &own);
    renew_key(files.key, &own);
    holder_free(&own);
}

static int set_up(void **state)
{
    struct err_msg msg;

    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_authority("ca.crt");
    write_authority("other.crt");
    write_own();
    assert_int_equal(tls_contexts_new(&contexts, &msg), EMBTIER_OK);
    return 0;
}

static int tear_down(void **state)
{
    char path[ADDRESS_FILE_MAX + 1];

    (void)state;
    tls_contexts_free(TAKE(contexts));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        name_file(names[i], path);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static SSL_CTX *get(const char *authority, const char *certificate)
{
    const struct address_files files = files_of(authority, certificate);
    struct err_msg msg = { { 0 } };
    SSL_CTX *context = NULL;

    if (tls_contexts_get(contexts, &files, &context, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return context;
}

/* Two contexts that are held cannot have the same address. */
static void assert_same(SSL_CTX *held, const char *authority, const char *certificate)
{
    SSL_CTX *const again = get(authority, certificate);

    assert_ptr_equal(again, held);
    tls_context_free(again);
}

static void assert_another(SSL_CTX *held, const char *authority, const char *certificate)
{
    SSL_CTX *const fresh = get(authority, certificate);

    assert_ptr_not_equal(fresh, held);
    assert_same(fresh, authority, certificate);
    tls_context_free(fresh);
}

static void assert_refused(const char *authority, const char *certificate, const char *said)
{
    const struct address_files files = files_of(authority, certificate);
    struct err_msg msg = { { 0 } };
    SSL_CTX *context = NULL;

    assert_int_equal(tls_contexts_get(contexts, &files, &context, &msg), EMBTIER_INVALID);
    assert_null(context);
    if (!strstr(msg.text, said))
        fail_msg("'%s' does not tell of '%s'", msg.text, said);
}

static void test_each_set_of_files_has_one_context(void **state)
{
    SSL_CTX *const one = get("ca.crt", NULL), *const other = get("other.crt", NULL),
                   *const own = get("ca.crt", "own.crt"), *const systems = get(NULL, NULL);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_same(one, "ca.crt", NULL);
        assert_same(other, "other.crt", NULL);
        assert_same(own, "ca.crt", "own.crt");
        assert_same(systems, NULL, NULL);
    }
    assert_ptr_not_equal(one, other);
    assert_ptr_not_equal(one, own);
    assert_ptr_not_equal(one, systems);
    tls_context_free(one);
    tls_context_free(other);
    tls_context_free(own);
    tls_context_free(systems);
}

static void test_an_authority_that_was_renewed_is_read_again(void **state)
{
    SSL_CTX *const before = get("ca.crt", NULL), *const other = get("other.crt", NULL);

    (void)state;
    write_authority("ca.crt");
    assert_another(before, "ca.crt", NULL);
    assert_same(other, "other.crt", NULL);
    tls_context_free(before);
    tls_context_free(other);
}

/* A file of the same length in its place, with an older time, as tar and cp -p make it. */
static void test_a_file_that_took_another_ones_place_is_read(void **state)
{
    char fresh[ADDRESS_FILE_MAX + 1], path[ADDRESS_FILE_MAX + 1], command[3 * ADDRESS_FILE_MAX];
    SSL_CTX *const before = get("ca.crt", NULL);

    (void)state;
    name_file("ca.crt", path);
    name_file("new", fresh);
    snprintf(command, sizeof(command), "cp -p %s %s", path, fresh);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c,concurrency-mt-unsafe)
    assert_int_equal(rename(fresh, path), 0);
    assert_another(before, "ca.crt", NULL);
    tls_context_free(before);
}

static void test_a_key_of_another_certificate_is_refused_and_its_own_taken(void **state)
{
    const struct address_files own = files_of(NULL, "own.crt");
    struct holder renewed = holder_make("trainer", NULL, NULL, -DAY, DAY);
    SSL_CTX *const before = get("ca.crt", "own.crt");

    (void)state;
    renew_certificate(own.certificate, &renewed);
    assert_refused("ca.crt", "own.crt", "is not that of the certificate");
    renew_key(own.key, &renewed);
    assert_another(before, "ca.crt", "own.crt");
    tls_context_free(before);
    holder_free(&renewed);
}

static void test_files_that_are_gone_or_bad_are_refused(void **state)
{
    char path[ADDRESS_FILE_MAX + 1];
    SSL_CTX *const before = get("ca.crt", NULL);
    FILE *junk;

    (void)state;
    name_file("ca.crt", path);
    assert_int_equal(unlink(path), 0);
    assert_refused("ca.crt", NULL, "ca.crt: No such file");
    junk = fopen(path, "we");
    assert_non_null(junk);
    assert_int_equal(fclose(junk), 0);
    assert_refused("ca.crt", NULL, "ca.crt holds no authority's certificate");
    write_authority("ca.crt");
    assert_another(before, "ca.crt", NULL);
    tls_context_free(before);
}

static void test_the_authorities_of_the_system_are_read_again(void **state)
{
    char path[ADDRESS_FILE_MAX + 1];
    SSL_CTX *before;

    (void)state;
    name_file("other.crt", path);
    assert_int_equal(setenv("SSL_CERT_FILE", path, 1), 0); // NOLINT(concurrency-mt-unsafe)
    before = get(NULL, NULL);
    assert_same(before, NULL, NULL);
    write_authority("other.crt");
    assert_another(before, NULL, NULL);
    tls_context_free(before);
    assert_int_equal(unsetenv("SSL_CERT_FILE"), 0); // NOLINT(concurrency-mt-unsafe)
}

/* Connections outlive the contexts of their session. */
static void test_a_context_lives_as_long_as_its_connections(void **state)
{
    SSL_CTX *const context = get("ca.crt", "own.crt");
    SSL *connection;

    (void)state;
    write_own();
    assert_another(context, "ca.crt", "own.crt");
    tls_contexts_free(TAKE(contexts));
    connection = SSL_new(context);
    tls_context_free(context);
    assert_non_null(connection);
    assert_non_null(SSL_get_certificate(connection));
    SSL_free(connection);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_set_of_files_has_one_context, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_authority_that_was_renewed_is_read_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_that_took_another_ones_place_is_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_key_of_another_certificate_is_refused_and_its_own_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_that_are_gone_or_bad_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_authorities_of_the_system_are_read_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_context_lives_as_long_as_its_connections, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
