/* SPDX-License-Identifier: Apache-2.0 */
/* authority.h: certificates for tests and benchmarks, made in this process. It aborts where OpenSSL
 * fails. */
#ifndef EMBTIER_TESTS_UNIT_BASE_AUTHORITY_H
#define EMBTIER_TESTS_UNIT_BASE_AUTHORITY_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

static inline void must(bool has_worked)
{
    if (!has_worked)
        abort();
}

struct holder {
    X509 *certificate;
    EVP_PKEY *key;
};

static inline void holder_free(struct holder *holder)
{
    X509_free(holder->certificate);
    EVP_PKEY_free(holder->key);
}

static inline void add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    must(extension != NULL);
    must(X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static inline struct holder holder_new(const char *name, const struct holder *issuer,
                                       const char *constraints, const char *alternative,
                                       long from_s, long until_s)
{
    struct holder holder = { X509_new(), EVP_EC_gen("P-256") };
    const struct holder *const by = issuer ? issuer : &holder;
    static long serial;
    X509_NAME *subject;

    must(holder.certificate && holder.key);
    X509_set_version(holder.certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(holder.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(holder.certificate), from_s);
    X509_gmtime_adj(X509_getm_notAfter(holder.certificate), until_s);
    subject = X509_get_subject_name(holder.certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
                               0);
    X509_set_issuer_name(holder.certificate, X509_get_subject_name(by->certificate));
    X509_set_pubkey(holder.certificate, holder.key);
    add_extension(holder.certificate, by->certificate, NID_basic_constraints, constraints);
    if (alternative)
        add_extension(holder.certificate, by->certificate, NID_subject_alt_name, alternative);
    must(X509_sign(holder.certificate, by->key, EVP_sha256()) > 0);
    return holder;
}

/* A certificate for @name, signed by @issuer; NULL: an authority, signed by itself. It is valid
 * from @from_s on until @until_s, from now. @alternative: such as "DNS:x", or NULL. */
static inline struct holder holder_make(const char *name, const struct holder *issuer,
                                        const char *alternative, long from_s, long until_s)
{
    return holder_new(name, issuer, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE", alternative,
                      from_s, until_s);
}

/* An authority that another one has signed. */
static inline struct holder holder_make_authority(const char *name, const struct holder *issuer,
                                                  long from_s, long until_s)
{
    return holder_new(name, issuer, "critical,CA:TRUE", NULL, from_s, until_s);
}

static inline void write_certificates(const char *path, const struct holder *first,
                                      const struct holder *second)
{
    FILE *const file = fopen(path, "w");

    must(file != NULL);
    must(PEM_write_X509(file, first->certificate) == 1);
    if (second)
        must(PEM_write_X509(file, second->certificate) == 1);
    must(fclose(file) == 0);
}

static inline void append_certificate(const char *path, const struct holder *holder)
{
    FILE *const file = fopen(path, "a");

    must(file != NULL && PEM_write_X509(file, holder->certificate) == 1);
    must(fclose(file) == 0);
}

static inline void write_key(const char *path, const struct holder *holder)
{
    FILE *const file = fopen(path, "w");

    must(file != NULL);
    must(PEM_write_PrivateKey(file, holder->key, NULL, NULL, 0, NULL, NULL) == 1);
    must(fclose(file) == 0);
}

#endif
