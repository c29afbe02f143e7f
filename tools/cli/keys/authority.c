/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/authority.h"

#include <openssl/x509v3.h>

#include "base/paths.h"
#include "base/tls/openssl_err.h"
#include "tools/cli/keys/pem_items.h"
#include "tools/cli/number.h"

enum embtier_err asn1_time_parse(const ASN1_TIME *time, time_t *ret_time, struct err_msg *msg)
{
    struct tm utc;

    if (ASN1_TIME_to_tm(time, &utc) != 1)
        return openssl_failed(msg, EMBTIER_INVALID, "a date of the certificate is damaged");
    *ret_time = timegm(&utc);
    return EMBTIER_OK;
}

static enum embtier_err read_items(const char *folder, const char *path, struct pem_items *items,
                                   struct err_msg *msg)
{
    const enum embtier_err err = pem_items_read(path, items, msg);

    if (err == EMBTIER_NOT_FOUND)
        err_append(msg, "; make a CA with `embtier keys ca %s`, or name the folder that has one",
                   folder);
    return err;
}

static enum embtier_err check_use(const char *path, X509 *certificate, struct err_msg *msg)
{
    /* Without the extension all uses are allowed. */
    if (X509_check_ca(certificate) != 0 &&
        (X509_get_key_usage(certificate) & X509v3_KU_KEY_CERT_SIGN))
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "%s is no certificate of a CA, so it cannot sign others; `embtier keys ca` "
                   "makes one in another folder",
                   path);
}

static enum embtier_err check_time(const char *path, struct authority *authority,
                                   struct err_msg *msg)
{
    const X509 *const certificate = authority->certificate;
    const time_t now = time(NULL);
    struct number_text date;

    TRY(asn1_time_parse(X509_get0_notBefore(certificate), &authority->not_before, msg));
    TRY(asn1_time_parse(X509_get0_notAfter(certificate), &authority->not_after, msg));
    if (now > authority->not_after)
        return err_set(msg, EMBTIER_INVALID,
                       "%s expired on %s, so nobody would accept what it signs; make a new CA, and "
                       "new certificates by it",
                       path, number_date(&date, (uint64_t)authority->not_after * 1000));
    if (now < authority->not_before)
        return err_set(msg, EMBTIER_INVALID,
                       "%s is not valid before %s; check the clock of this machine", path,
                       number_date(&date, (uint64_t)authority->not_before * 1000));
    return EMBTIER_OK;
}

static enum embtier_err load_certificate(const char *folder, struct authority *authority,
                                         struct err_msg *msg)
{
    _cleanup_(pem_items_clear) struct pem_items items = { NULL };
    _cleanup_(freep) char *path = path_join(folder, AUTHORITY_NAME ".crt");

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    TRY(read_items(folder, path, &items, msg));
    authority->certificate = pem_items_certificate(&items);
    if (!authority->certificate)
        return err_set(msg, EMBTIER_INVALID, "%s holds no certificate", path);
    X509_up_ref(authority->certificate);
    TRY(check_use(path, authority->certificate, msg));
    return check_time(path, authority, msg);
}

static enum embtier_err load_key(const char *folder, struct authority *authority,
                                 struct err_msg *msg)
{
    _cleanup_(pem_items_clear) struct pem_items items = { NULL };
    _cleanup_(freep) char *path = path_join(folder, AUTHORITY_NAME ".key");

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", folder);
    TRY(read_items(folder, path, &items, msg));
    authority->key = pem_items_key(&items);
    if (!authority->key)
        return err_set(
            msg, EMBTIER_INVALID,
            "%s holds no private key without a password; keys with one are not supported", path);
    EVP_PKEY_up_ref(authority->key);
    if (X509_check_private_key(authority->certificate, authority->key) == 1)
        return EMBTIER_OK;
    (void)openssl_failed(msg, EMBTIER_MISMATCH, "%s", path); /* empties OpenSSL's queue */
    return err_set(msg, EMBTIER_MISMATCH,
                   "%s is not the key of the certificate in " AUTHORITY_NAME ".crt beside it",
                   path);
}

enum embtier_err authority_load(const char *folder, struct authority *ret_authority,
                                struct err_msg *msg)
{
    _cleanup_(authority_clear) struct authority authority = { NULL };

    TRY(load_certificate(folder, &authority, msg));
    TRY(load_key(folder, &authority, msg));
    *ret_authority = authority;
    authority = (struct authority){ NULL };
    return EMBTIER_OK;
}

void authority_clear(struct authority *authority)
{
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
}
