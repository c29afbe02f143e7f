/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/certificate_make.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/rand.h>

#include "base/tls/openssl_err.h"

#define SERIAL_BYTES 16

struct extension {
    int nid;
    const char *value; /* as in OpenSSL's configuration files */
};

static const struct extension authority_extensions[] = {
    { NID_basic_constraints, "critical,CA:TRUE,pathlen:0" },
    { NID_key_usage, "critical,keyCertSign,cRLSign" },
    { NID_subject_key_identifier, "hash" },
    { NID_authority_key_identifier, "keyid:always" }, /* takes the one before */
    { NID_undef, NULL },
};
static const struct extension server_extensions[] = {
    { NID_basic_constraints, "critical,CA:FALSE" },
    { NID_key_usage, "critical,digitalSignature" },
    { NID_ext_key_usage, "serverAuth" },
    { NID_subject_key_identifier, "hash" },
    { NID_undef, NULL },
};
static const struct extension client_extensions[] = {
    { NID_basic_constraints, "critical,CA:FALSE" },
    { NID_key_usage, "critical,digitalSignature" },
    { NID_ext_key_usage, "clientAuth" },
    { NID_subject_key_identifier, "hash" },
    { NID_undef, NULL },
};
static const struct extension authority_identifier[] = {
    { NID_authority_key_identifier, "keyid:always" },
    { NID_undef, NULL },
};

static enum embtier_err failed(struct err_msg *msg, const char *what)
{
    return openssl_failed(msg, EMBTIER_INTERNAL, "OpenSSL cannot make %s of a certificate", what);
}

/* Any number of 128 bits, positive: no two certificates of a CA may have the same. */
static enum embtier_err set_serial(X509 *certificate, struct err_msg *msg)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number = NULL;
    bool done;

    done = RAND_bytes(bytes, sizeof(bytes)) == 1 &&
           (number = BN_bin2bn(bytes, sizeof(bytes), NULL)) != NULL &&
           BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return done ? EMBTIER_OK : failed(msg, "the serial number");
}

static enum embtier_err set_time(ASN1_TIME *field, time_t when, struct err_msg *msg)
{
    return ASN1_TIME_set(field, when) ? EMBTIER_OK : failed(msg, "a date");
}

static enum embtier_err set_subject(X509 *certificate, const char *common_name, struct err_msg *msg)
{
    if (common_name[0] == '\0')
        return EMBTIER_OK;
    if (X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName,
                                   MBSTRING_UTF8, (const unsigned char *)common_name, -1, -1,
                                   0) == 1)
        return EMBTIER_OK;
    return failed(msg, "the subject");
}

static enum embtier_err set_issuer(X509 *certificate, const struct certificate_order *order,
                                   struct err_msg *msg)
{
    const X509 *const issuer = order->authority ? order->authority->certificate : certificate;

    if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1)
        return EMBTIER_OK;
    return failed(msg, "the issuer");
}

static enum embtier_err add_extensions(X509 *certificate, X509V3_CTX *context,
                                       const struct extension *extensions, struct err_msg *msg)
{
    for (; extensions->value; extensions++) {
        X509_EXTENSION *const made =
            X509V3_EXT_conf_nid(NULL, context, extensions->nid, extensions->value);
        const bool done = made && X509_add_ext(certificate, made, -1) == 1;

        X509_EXTENSION_free(made);
        if (!done)
            return failed(msg, OBJ_nid2ln(extensions->nid));
    }
    return EMBTIER_OK;
}

static const struct extension *extensions_of(enum certificate_use use)
{
    switch (use) {
    case CERTIFICATE_AUTHORITY:
        return authority_extensions;
    case CERTIFICATE_SERVER:
        return server_extensions;
    case CERTIFICATE_CLIENT:
        return client_extensions;
    }
    return NULL;
}

/* Without a subject these names are the only ones, which the extension then must say. */
static enum embtier_err set_names(X509 *certificate, const struct certificate_order *order,
                                  struct err_msg *msg)
{
    const bool is_critical = order->common_name[0] == '\0';

    if (!order->names || sk_GENERAL_NAME_num(order->names) <= 0 ||
        X509_add1_ext_i2d(certificate, NID_subject_alt_name, (void *)(uintptr_t)order->names,
                          is_critical, X509V3_ADD_DEFAULT) == 1)
        return EMBTIER_OK;
    return failed(msg, "the names");
}

static enum embtier_err set_extensions(X509 *certificate, const struct certificate_order *order,
                                       struct err_msg *msg)
{
    X509 *const issuer = order->authority ? order->authority->certificate : certificate;
    X509V3_CTX context;

    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    TRY(add_extensions(certificate, &context, extensions_of(order->use), msg));
    /* A CA of another program may lack the identifier that this one repeats. */
    if (order->authority && X509_get0_subject_key_id(issuer))
        TRY(add_extensions(certificate, &context, authority_identifier, msg));
    return set_names(certificate, order, msg);
}

/* NULL: the key's kind has a digest of its own, as Ed25519 has. */
static const EVP_MD *digest_for(EVP_PKEY *key)
{
    enum { IS_MANDATORY = 2 };
    char name[64] = "";

    if (EVP_PKEY_get_default_digest_name(key, name, sizeof(name)) == IS_MANDATORY &&
        strcmp(name, SN_undef) == 0)
        return NULL;
    return EVP_sha256();
}

static enum embtier_err sign(const struct certificate_order *order, struct certified_key *made,
                             struct err_msg *msg)
{
    EVP_PKEY *const key = order->authority ? order->authority->key : made->key;

    if (X509_sign(made->certificate, key, digest_for(key)) > 0)
        return EMBTIER_OK;
    return failed(msg, "the signature");
}

static enum embtier_err fill(const struct certificate_order *order, struct certified_key *made,
                             struct err_msg *msg)
{
    X509 *const certificate = made->certificate;

    if (X509_set_version(certificate, X509_VERSION_3) != 1 ||
        X509_set_pubkey(certificate, made->key) != 1)
        return failed(msg, "the public key");
    TRY(set_serial(certificate, msg));
    TRY(set_time(X509_getm_notBefore(certificate), order->not_before, msg));
    TRY(set_time(X509_getm_notAfter(certificate), order->not_after, msg));
    TRY(set_subject(certificate, order->common_name, msg));
    TRY(set_issuer(certificate, order, msg));
    TRY(set_extensions(certificate, order, msg));
    return sign(order, made, msg);
}

/* Prepares to verify @made as TLS would. A CA that another one signed is trusted by itself. */
static bool prepare(X509_STORE_CTX *context, X509_STORE *store,
                    const struct certificate_order *order, const struct certified_key *made)
{
    const bool is_server = order->use == CERTIFICATE_SERVER;

    return context && store && X509_STORE_add_cert(store, order->authority->certificate) == 1 &&
           X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) == 1 &&
           X509_STORE_CTX_init(context, store, made->certificate, NULL) == 1 &&
           X509_STORE_CTX_set_purpose(context, is_server ? X509_PURPOSE_SSL_SERVER
                                                         : X509_PURPOSE_SSL_CLIENT) == 1;
}

/* A CA may be limited to some names or uses. Its peers would refuse the certificate; so does this.
 */
static enum embtier_err verify(const struct certificate_order *order,
                               const struct certified_key *made, struct err_msg *msg)
{
    X509_STORE *const store = X509_STORE_new();
    X509_STORE_CTX *const context = X509_STORE_CTX_new();
    enum embtier_err err = EMBTIER_OK;

    if (!prepare(context, store, order, made))
        err = openssl_failed(msg, EMBTIER_INTERNAL, "OpenSSL cannot verify the new certificate");
    else if (X509_verify_cert(context) != 1)
        err = err_set(msg, EMBTIER_INVALID,
                      "the CA may not sign this certificate, and peers would refuse it: %s",
                      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return err;
}

enum embtier_err certificate_make(const struct certificate_order *order,
                                  struct certified_key *ret_made, struct err_msg *msg)
{
    _cleanup_(certified_key_clear) struct certified_key made = { NULL };

    assert(order->authority || order->use == CERTIFICATE_AUTHORITY);
    made.key = EVP_EC_gen("P-256");
    if (!made.key)
        return openssl_failed(msg, EMBTIER_INTERNAL, "OpenSSL cannot make a key");
    made.certificate = X509_new();
    if (!made.certificate)
        return failed(msg, "anything");
    TRY(fill(order, &made, msg));
    if (order->authority)
        TRY(verify(order, &made, msg));
    *ret_made = made;
    made = (struct certified_key){ NULL };
    return EMBTIER_OK;
}

void certified_key_clear(struct certified_key *made)
{
    X509_free(made->certificate);
    EVP_PKEY_free(made->key); /* overwrites the private number */
}
