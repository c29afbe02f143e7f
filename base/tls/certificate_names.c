/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/certificate_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/x509v3.h>

/* The names so far. */
struct name_list {
    FILE *stream;
    size_t count;
};

static enum embtier_err no_memory(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_NO_MEMORY, "names of a certificate: out of memory");
}

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* NULL: the name is good. */
static const char *fault_of(const char *text, size_t bytes)
{
    if (bytes == 0)
        return "it is empty";
    if (bytes > CERTIFICATE_NAME_BYTES_MAX)
        return "it is too long";
    if (memchr(text, '\0', bytes))
        return "it has a NUL inside, which could hide its end";
    if (!text_is_plain(text, bytes))
        return "it is not UTF-8, or has an invisible or control character";
    return NULL;
}

static enum embtier_err add(struct name_list *list, const char *prefix, const char *text,
                            size_t bytes, const char *fault, struct err_msg *msg)
{
    struct text_shown shown;

    if (!fault)
        fault = fault_of(text, bytes);
    if (fault)
        return err_set(msg, EMBTIER_INVALID, "the certificate's name '%s%s' is refused: %s", prefix,
                       text_show_bytes(&shown, text, bytes), fault);
    if (++list->count > CERTIFICATE_NAMES_MAX)
        return err_set(msg, EMBTIER_INVALID, "the certificate has more names than the %d allowed",
                       CERTIFICATE_NAMES_MAX);
    fprintf(list->stream, "%s%.*s%c", prefix, (int)bytes, text, '\0');
    return EMBTIER_OK;
}

static enum embtier_err add_common_name(struct name_list *list, const X509_NAME_ENTRY *entry,
                                        struct err_msg *msg)
{
    unsigned char *text = NULL;
    const int bytes = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(entry));
    enum embtier_err err;

    if (bytes < 0)
        return err_set(msg, EMBTIER_INVALID,
                       "the certificate's common name is refused: it is no text");
    err = add(list, "CN=", (const char *)text, (size_t)bytes, NULL, msg);
    OPENSSL_free(text);
    return err;
}

static enum embtier_err add_common_names(struct name_list *list, X509 *certificate,
                                         struct err_msg *msg)
{
    const X509_NAME *const subject = X509_get_subject_name(certificate);
    int at = -1;

    while ((at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0)
        TRY(add_common_name(list, X509_NAME_get_entry(subject, at), msg));
    return EMBTIER_OK;
}

/* NULL: no role hangs on a name of this kind. */
static const char *prefix_of(int kind)
{
    switch (kind) {
    case GEN_DNS:
        return "DNS:";
    case GEN_URI:
        return "URI:";
    case GEN_EMAIL:
        return "EMAIL:";
    default:
        return NULL;
    }
}

static enum embtier_err add_alternative(struct name_list *list, const GENERAL_NAME *name,
                                        struct err_msg *msg)
{
    int kind;
    const ASN1_STRING *const value = GENERAL_NAME_get0_value(name, &kind);
    const char *const prefix = prefix_of(kind);
    const char *text;
    size_t bytes;

    if (!prefix)
        return EMBTIER_OK;
    text = (const char *)ASN1_STRING_get0_data(value);
    bytes = (size_t)ASN1_STRING_length(value);
    return add(list, prefix, text, bytes, is_ascii(text, bytes) ? NULL : "it is not ASCII", msg);
}

static enum embtier_err add_alternatives(struct name_list *list, X509 *certificate,
                                         struct err_msg *msg)
{
    enum { ABSENT = -1 };
    int why = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, &why, NULL);
    enum embtier_err err = EMBTIER_OK;

    if (!names && why == ABSENT)
        return EMBTIER_OK;
    if (!names)
        return err_set(msg, EMBTIER_INVALID,
                       "the certificate's subjectAltName is damaged, or there are two of it");
    for (int i = 0; err == EMBTIER_OK && i < sk_GENERAL_NAME_num(names); i++)
        err = add_alternative(list, sk_GENERAL_NAME_value(names, i), msg);
    GENERAL_NAMES_free(names);
    return err;
}

static enum embtier_err add_all(struct name_list *list, X509 *certificate, struct err_msg *msg)
{
    TRY(add_common_names(list, certificate, msg));
    TRY(add_alternatives(list, certificate, msg));
    fputc('\0', list->stream);
    return EMBTIER_OK;
}

enum embtier_err certificate_names(X509 *certificate, char **ret_names, struct err_msg *msg)
{
    _cleanup_(freep) char *names = NULL;
    size_t bytes;
    struct name_list list = { .stream = open_memstream(&names, &bytes) };
    enum embtier_err err;

    if (!list.stream)
        return no_memory(msg);
    err = add_all(&list, certificate, msg);
    if (fclose(list.stream) != 0 && err == EMBTIER_OK)
        err = no_memory(msg);
    if (err == EMBTIER_OK)
        *ret_names = TAKE(names);
    return err;
}

const char *certificate_show(const X509_NAME *name, struct text_shown *buffer)
{
    BIO *const bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    long bytes = 0;

    if (bio && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >= 0)
        bytes = BIO_get_mem_data(bio, &text);
    if (bytes > 0)
        (void)text_show_bytes(buffer, text, (size_t)bytes);
    else
        (void)text_show(buffer, "without a name");
    BIO_free(bio);
    return buffer->text;
}
