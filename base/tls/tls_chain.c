/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/tls_chain.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <time.h>

#include "base/text/text_escape.h"
#include "base/tls/certificate_names.h"

DEFINE_CLEANUP(X509_STORE, X509_STORE_free)
DEFINE_CLEANUP(X509_STORE_CTX, X509_STORE_CTX_free)

struct named {
    char text[sizeof(struct text_shown) + 32];
};

/* Names the certificate at this depth. Its number is its place in the file. */
static const char *name_of(const X509 *certificate, int depth, struct named *buffer)
{
    struct text_shown subject;

    if (depth == 0)
        return "the certificate";
    (void)snprintf(buffer->text, sizeof(buffer->text), "certificate %d, %s,", depth + 1,
                   certificate_show(X509_get_subject_name(certificate), &subject));
    return buffer->text;
}

static enum embtier_err fail_date(const char *name, bool is_early, const ASN1_TIME *time,
                                  struct err_msg *msg)
{
    char text[64] = "an unknown time";
    struct tm date;

    if (ASN1_TIME_to_tm(time, &date) == 1)
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &date);
    return err_set(msg, EMBTIER_INVALID, "%s %s %s", name,
                   is_early ? "is not valid before" : "expired at", text);
}

static enum embtier_err fail(X509 *certificate, int depth, int verdict, struct err_msg *msg)
{
    struct named buffer;
    const char *const name = name_of(certificate, depth, &buffer);

    switch (verdict) {
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return fail_date(name, true, X509_get0_notBefore(certificate), msg);
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return fail_date(name, false, X509_get0_notAfter(certificate), msg);
    case X509_V_ERR_INVALID_PURPOSE:
        return err_set(msg, EMBTIER_INVALID, "%s is %s", name,
                       depth == 0 && X509_check_ca(certificate) != 0 ? "a CA's own"
                                                                     : "not made for servers");
    case X509_V_ERR_INVALID_CA:
        return err_set(msg, EMBTIER_INVALID, "%s is no CA's, and so may not sign another", name);
    case X509_V_ERR_OUT_OF_MEM:
        return err_set(msg, EMBTIER_NO_MEMORY, "cannot check certificates: out of memory");
    default:
        return err_set(msg, EMBTIER_INVALID, "%s would be refused: %s", name,
                       X509_verify_cert_error_string(verdict));
    }
}

/* The last certificate is the one that is trusted, and may be the own one. */
static X509_STORE *new_store(X509 *own, const STACK_OF(X509) * signers)
{
    _cleanup_(X509_STORE_freep) X509_STORE *store = X509_STORE_new();
    const int count = sk_X509_num(signers);
    X509 *const last = count > 0 ? sk_X509_value(signers, count - 1) : own;

    return store && X509_STORE_add_cert(store, last) == 1 ? TAKE(store) : NULL;
}

/* A client may know the last of several signers by another certificate: a root that another CA has
 * signed too, in which that CA's end is not the root's own. Roots sign no server's certificate. */
static int is_accepted(int is_good, X509_STORE_CTX *checking)
{
    const int verdict = X509_STORE_CTX_get_error(checking);
    const int depth = X509_STORE_CTX_get_error_depth(checking);
    const bool is_last_signer =
        depth > 1 && depth == sk_X509_num(X509_STORE_CTX_get0_chain(checking)) - 1;

    return is_good || (is_last_signer && (verdict == X509_V_ERR_CERT_HAS_EXPIRED ||
                                          verdict == X509_V_ERR_CERT_NOT_YET_VALID));
}

enum embtier_err tls_chain_check(SSL_CTX *context, int *ret_verdict, struct err_msg *msg)
{
    X509 *const own = SSL_CTX_get0_certificate(context);
    STACK_OF(X509) *signers = NULL;
    _cleanup_(X509_STORE_freep) X509_STORE *store = NULL;
    _cleanup_(X509_STORE_CTX_freep) X509_STORE_CTX *checking = X509_STORE_CTX_new();
    X509 *at;

    (void)SSL_CTX_get0_chain_certs(context, &signers);
    store = new_store(own, signers);
    if (!store || !checking || X509_STORE_CTX_init(checking, store, own, signers) != 1) {
        ERR_clear_error();
        return fail(own, 0, *ret_verdict = X509_V_ERR_OUT_OF_MEM, msg);
    }
    (void)X509_STORE_CTX_set_purpose(checking, X509_PURPOSE_SSL_SERVER);
    X509_STORE_CTX_set_flags(checking, X509_V_FLAG_PARTIAL_CHAIN);
    X509_STORE_CTX_set_verify_cb(checking, is_accepted);
    X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(checking),
                                     SSL_CTX_get_security_level(context));
    if (X509_verify_cert(checking) == 1)
        return EMBTIER_OK;
    ERR_clear_error();
    at = X509_STORE_CTX_get_current_cert(checking);
    *ret_verdict = X509_STORE_CTX_get_error(checking);
    return fail(at ? at : own, X509_STORE_CTX_get_error_depth(checking), *ret_verdict, msg);
}
