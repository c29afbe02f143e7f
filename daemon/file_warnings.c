/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file_warnings.h"

#include <inttypes.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/log/log.h"
#include "base/macros.h"
#include "base/text/text_escape.h"
#include "base/tls/certificate_life.h"
#include "base/tls/certificate_names.h"
#include "base/tls/tls_chain.h"
#include "base/yaml/yaml_doc.h"
#include "config/config.h"
#include "daemon/access/access_rules.h"

#define DAY_S INT64_C(86400)

PRINTF_LIKE(5, 6)
static void warn_at(file_warning_fn *warn, const struct yaml_doc *doc, const char *key,
                    const char *what, const char *format, ...)
{
    struct err_msg place, why;
    va_list args;

    yaml_doc_place(doc, key, place.text, sizeof(place.text));
    va_start(args, format);
    vsnprintf(why.text, sizeof(why.text), format, args);
    va_end(args);
    warn(place.text, what, why.text);
}

/* ---- Certificates ---- */

static const char may_refuse[] = "clients may refuse the server's certificate";

/* A file of certificates, and texts for those in it. */
struct shown_file {
    const struct yaml_doc *doc;
    const char *key;
    const char *path;
    const char *refused, *soon; /* what happens when one is not valid, and that it soon is not */
    const char *remedy;
    file_warning_fn *warn;
};

struct date {
    char text[64];
};

struct which {
    char text[sizeof(struct text_shown) + 32];
};

static const char *date_of(const ASN1_TIME *time, struct date *buffer)
{
    struct tm date;

    if (ASN1_TIME_to_tm(time, &date) != 1 ||
        strftime(buffer->text, sizeof(buffer->text), "%Y-%m-%d %H:%M:%S UTC", &date) == 0)
        return "an unknown time";
    return buffer->text;
}

/* Returns the seconds between two times; NULL is now. A damaged time is as long ago as can be, so
 * that it is told. */
static int64_t seconds_between(const ASN1_TIME *from, const ASN1_TIME *until)
{
    int days = 0, seconds = 0;

    return ASN1_TIME_diff(&days, &seconds, from, until) == 1 ? days * DAY_S + seconds : INT64_MIN;
}

/* @which: names the certificate if the file may have others; else "". */
static void look_at_dates(const struct shown_file *file, const char *which, const X509 *certificate)
{
    const ASN1_TIME *const from = X509_get0_notBefore(certificate);
    const ASN1_TIME *const until = X509_get0_notAfter(certificate);
    const int64_t left_s = seconds_between(NULL, until);
    struct date date = { { 0 } };

    if (seconds_between(NULL, from) > 0)
        warn_at(file->warn, file->doc, file->key, file->refused, "%s%s is not valid before %s",
                file->path, which, date_of(from, &date));
    else if (left_s < 0)
        warn_at(file->warn, file->doc, file->key, file->refused, "%s%s expired at %s; %s",
                file->path, which, date_of(until, &date), file->remedy);
    else if (certificate_expires_soon(seconds_between(from, until), left_s))
        warn_at(file->warn, file->doc, file->key, file->soon, "%s%s expires at %s; %s", file->path,
                which, date_of(until, &date), file->remedy);
}

static void look_at_signers_dates(const struct shown_file *file, const STACK_OF(X509) * signers)
{
    for (int i = 0; i < sk_X509_num(signers); i++) {
        const X509 *const signer = sk_X509_value(signers, i);
        struct text_shown subject;
        struct which which;

        snprintf(which.text, sizeof(which.text), ": certificate %d, %s,", i + 2,
                 certificate_show(X509_get_subject_name(signer), &subject));
        look_at_dates(file, which.text, signer);
    }
}

/* The dates of all are told besides. Returns true if some client may accept the chain. */
static bool look_at_chain(const struct shown_file *file, SSL_CTX *tls)
{
    struct err_msg why = { { 0 } };
    int verdict;

    if (tls_chain_check(tls, &verdict, &why) == EMBTIER_OK)
        return true;
    if (verdict != X509_V_ERR_CERT_HAS_EXPIRED && verdict != X509_V_ERR_CERT_NOT_YET_VALID)
        warn_at(file->warn, file->doc, file->key, file->refused, "%s: %s; %s", file->path, why.text,
                file->remedy);
    return false;
}

static bool is_in_store(X509_STORE *store, X509 *own)
{
    const STACK_OF(X509_OBJECT) *const all = X509_STORE_get0_objects(store);

    for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
        X509 *const ca = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));

        if (ca && X509_check_issued(ca, own) == X509_V_OK)
            return true;
    }
    return false;
}

/* A server does not know the CA of its clients, but theirs is often the one of their own
 * certificates. If it is not, this says nothing, and so is no warning of each start. */
static void look_at_missing_signer(const struct shown_file *file, SSL_CTX *tls,
                                   file_warning_fn *note)
{
    X509 *const own = SSL_CTX_get0_certificate(tls);
    struct text_shown issuer;

    if (X509_check_issued(own, own) == X509_V_OK || is_in_store(SSL_CTX_get_cert_store(tls), own))
        return;
    warn_at(note, file->doc, file->key, may_refuse,
            "%s has one certificate, and its signer, %s, is not in tls.client_ca either: clients "
            "that trust only a CA above this signer refuse it; append the signer's certificate",
            file->path, certificate_show(X509_get_issuer_name(own), &issuer));
}

static void look_at_own(const struct config *config, SSL_CTX *tls, file_warning_fn *warn,
                        file_warning_fn *note)
{
    struct shown_file file = {
        .doc = config->doc,
        .key = "tls.certificate",
        .path = config->tls.certificate,
        .refused = "clients will refuse the server's certificate",
        .soon = "the server's certificate expires soon",
        .remedy = "make a new one (embtier keys server)",
        .warn = warn,
    };
    STACK_OF(X509) *signers = NULL;

    (void)SSL_CTX_get0_chain_certs(tls, &signers);
    look_at_dates(&file, "", SSL_CTX_get0_certificate(tls));
    if (look_at_chain(&file, tls))
        file.refused = may_refuse; /* where only the last signer is not valid */
    look_at_signers_dates(&file, signers);
    if (sk_X509_num(signers) <= 0 && config->tls.client_ca && note)
        look_at_missing_signer(&file, tls, note);
}

static void look_at_client_ca(const struct config *config, SSL_CTX *tls, file_warning_fn *warn)
{
    const struct shown_file file = {
        .doc = config->doc,
        .key = "tls.client_ca",
        .path = config->tls.client_ca,
        .refused = "clients with certificates of this CA are refused",
        .soon = "a CA of clients expires soon",
        .remedy = "make a new one (embtier keys ca), and certificates of it",
        .warn = warn,
    };
    const STACK_OF(X509_OBJECT) *const all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(tls));

    for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
        const X509 *const ca = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
        struct text_shown subject;
        struct which which = { { 0 } };

        if (!ca)
            continue;
        snprintf(which.text, sizeof(which.text), ": the certificate of %s",
                 certificate_show(X509_get_subject_name(ca), &subject));
        look_at_dates(&file, which.text, ca);
    }
}

/* A group may be made for those that need the key. */
static void look_at_key(const struct config *config, file_warning_fn *warn)
{
    struct stat info;

    if (stat(config->tls.key, &info) == 0 && (info.st_mode & (S_IROTH | S_IWOTH)))
        warn_at(warn, config->doc, "tls.key", "the server's private key is no secret",
                "%s may be %s by all users of this machine; chmod it to 0600, and make a new one "
                "if another user can have read it",
                config->tls.key, info.st_mode & S_IROTH ? "read" : "written");
}

/* ---- Users ---- */

/* Returns why no client can show a certificate, or NULL. */
static const char *why_no_certificates(const struct config *config)
{
    if (!config_has_tls(config))
        return "no address of rpc.listen has tls://";
    return config->tls.client_ca ? NULL : "the configuration has no tls.client_ca";
}

static void look_at_users(const struct config *config, const struct access_rules *rules,
                          file_warning_fn *warn)
{
    static const char what[] = "no client can be this user of the access file";
    const char *const without = why_no_certificates(config);

    for (uint32_t i = 0; i < rules->user_count; i++) {
        const struct access_user *const user = &rules->users[i];
        const bool has_other = user->uid_count + user->gid_count + user->token_count > 0;
        char key[40];

        snprintf(key, sizeof(key), "users[%" PRIu32 "]", i);
        if (!has_other && user->certificate_count == 0)
            warn_at(warn, rules->doc, key, what,
                    "user '%s' has no tokens, certificates, unix_users or unix_groups; give it one",
                    user->name);
        else if (!has_other && without)
            warn_at(warn, rules->doc, key, what,
                    "user '%s' is known by certificates alone, and the server asks clients for "
                    "none, as %s",
                    user->name, without);
    }
}

/* ---- All ---- */

void file_warnings(const struct config *config, SSL_CTX *tls, const struct access_rules *rules,
                   file_warning_fn *warn, file_warning_fn *note)
{
    if (tls) {
        look_at_own(config, tls, warn, note);
        look_at_key(config, warn);
    }
    if (tls && config->tls.client_ca)
        look_at_client_ca(config, tls, warn);
    if (rules)
        look_at_users(config, rules, warn);
}

void file_warning_log(const char *place, const char *what, const char *why)
{
    log_warn(what, "at=%s why=%s", LOG_QUOTED(place), LOG_QUOTED(why));
}
