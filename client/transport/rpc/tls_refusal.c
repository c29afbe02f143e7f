/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/rpc/tls_refusal.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text/text_escape.h"
#include "base/tls/certificate_names.h"

/* Names of a certificate that a message has room for. */
#define SHOWN_NAMES_MAX 6

/* ---- Dates ---- */

struct day {
    char text[32];
};

static const char *day_of(const ASN1_TIME *time, struct day *buffer)
{
    struct tm date;

    if (!time || ASN1_TIME_to_tm(time, &date) != 1 ||
        strftime(buffer->text, sizeof(buffer->text), "%Y-%m-%d", &date) == 0)
        return "an unknown day";
    return buffer->text;
}

#define DAY_OF(time) day_of((time), &(struct day){ { 0 } })

/* ---- The server refuses the client's certificate ---- */

struct complaint {
    int alert;
    const char *why;
    const char *help;
};

static const struct complaint complaints[] = {
    { SSL_R_TLSV1_ALERT_UNKNOWN_CA, "it is of no CA that the server knows",
      "have one made by the CA in the server's tls.client_ca: embtier keys client" },
    { SSL_R_TLSV1_ALERT_DECRYPT_ERROR,
      "its signature is not that of the CA which the server knows by this name",
      "have one made by the CA in the server's tls.client_ca: embtier keys client" },
    { SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, "it is not made for clients",
      "make one that is: embtier keys client" },
    { SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, "it is revoked",
      "make a new one: embtier keys client" },
    { SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "it, or its CA's, has expired by the server's clock",
      "make a new one: embtier keys client" },
    { SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "it is damaged, or not valid yet by the server's clock",
      "compare the clocks, or make a new one: embtier keys client" },
    { SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the server gives no reason",
      "its log may: a handshake of TLS failed" },
    { SSL_R_TLSV1_ALERT_ACCESS_DENIED, "the server gives it no access",
      "its log may say why: a handshake of TLS failed" },
};

static const struct complaint *complaint_of(int alert)
{
    for (size_t i = 0; i < ARRAY_LEN(complaints); i++)
        if (complaints[i].alert == alert)
            return &complaints[i];
    return NULL;
}

struct reason {
    char text[sizeof(struct text_shown) + 64];
};

static bool is_expired(const X509 *certificate)
{
    return X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

/* The first signer of the own certificate that has expired, among those shown behind it. */
static const X509 *expired_signer(const struct tls_refusal *refusal)
{
    for (int i = 0; i < sk_X509_num(refusal->own_signers); i++)
        if (is_expired(sk_X509_value(refusal->own_signers, i)))
            return sk_X509_value(refusal->own_signers, i);
    return NULL;
}

static const char *reason_of_expiry(const struct tls_refusal *refusal, const char *otherwise,
                                    struct reason *buffer)
{
    const X509 *const own = refusal->own;
    const X509 *const signer = expired_signer(refusal);
    struct text_shown subject;

    if (own && is_expired(own))
        (void)snprintf(buffer->text, sizeof(buffer->text), "it has expired on %s",
                       DAY_OF(X509_get0_notAfter(own)));
    else if (signer)
        (void)snprintf(buffer->text, sizeof(buffer->text), "its signer, %s, has expired on %s",
                       certificate_show(X509_get_subject_name(signer), &subject),
                       DAY_OF(X509_get0_notAfter(signer)));
    else
        return otherwise;
    return buffer->text;
}

/* The alert does not say which of the certificates is meant, nor since when. */
static const char *reason_of(const struct complaint *complaint, const struct tls_refusal *refusal,
                             struct reason *buffer)
{
    const ASN1_TIME *const from = refusal->own ? X509_get0_notBefore(refusal->own) : NULL;

    if (complaint->alert == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED)
        return reason_of_expiry(refusal, complaint->why, buffer);
    if (complaint->alert != SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || !from ||
        X509_cmp_current_time(from) <= 0)
        return complaint->why;
    (void)snprintf(buffer->text, sizeof(buffer->text), "it is not valid before %s", DAY_OF(from));
    return buffer->text;
}

static void explain_alert(const struct tls_refusal *refusal, const struct address *address,
                          struct err_msg *msg)
{
    const struct complaint *const complaint = complaint_of(refusal->alert);
    const char *const file = address->files.certificate;
    struct address_shown place;
    struct reason reason;

    address_show(&place, address);
    if (refusal->alert == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED || (complaint && !*file))
        err_write(msg,
                  "the server at %s refuses clients without a certificate: certificate required "
                  "(name one with ?cert=FILE&key=FILE; embtier keys client makes one)",
                  TEXT_SHOWN(place.text));
    else if (complaint)
        err_write(msg, "the server at %s refuses the certificate %s: %s (%s)",
                  TEXT_SHOWN(place.text), file, reason_of(complaint, refusal, &reason),
                  complaint->help);
}

/* ---- The client refuses the server's certificate ---- */

static void print_number(FILE *out, const ASN1_OCTET_STRING *number)
{
    const int bytes = ASN1_STRING_length(number);
    char text[INET6_ADDRSTRLEN] = "?";

    (void)inet_ntop(bytes == sizeof(struct in_addr) ? AF_INET : AF_INET6,
                    ASN1_STRING_get0_data(number), text, sizeof(text));
    fprintf(out, "%s", text);
}

static bool is_number(const GENERAL_NAME *name)
{
    const int bytes = name->type == GEN_IPADD ? ASN1_STRING_length(name->d.iPAddress) : 0;

    return bytes == sizeof(struct in_addr) || bytes == sizeof(struct in6_addr);
}

static void print_text(FILE *out, const ASN1_STRING *string)
{
    struct text_shown shown;

    fprintf(out, "%s",
            text_show_bytes(&shown, (const char *)ASN1_STRING_get0_data(string),
                            (size_t)ASN1_STRING_length(string)));
}

/* True: it is a name that a client can connect by. */
static bool print_alternative(FILE *out, const GENERAL_NAME *name, unsigned count)
{
    if (name->type != GEN_DNS && !is_number(name))
        return false;
    if (count < SHOWN_NAMES_MAX) {
        fprintf(out, "%s", count > 0 ? ", " : "");
        if (name->type == GEN_DNS)
            print_text(out, name->d.dNSName);
        else
            print_number(out, name->d.iPAddress);
    } else if (count == SHOWN_NAMES_MAX) {
        fprintf(out, " and others");
    }
    return true;
}

static unsigned print_alternatives(FILE *out, X509 *certificate)
{
    GENERAL_NAMES *const names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    unsigned count = 0;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        count += print_alternative(out, sk_GENERAL_NAME_value(names, i), count);
    GENERAL_NAMES_free(names);
    return count;
}

/* OpenSSL looks at the common name if there is no other. */
static void print_names(FILE *out, X509 *certificate)
{
    const X509_NAME *const subject = X509_get_subject_name(certificate);
    const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (print_alternatives(out, certificate) > 0)
        return;
    if (at >= 0)
        print_text(out, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    else
        fprintf(out, "no name");
}

static void append_names(const struct tls_refusal *refusal, const struct address *address,
                         struct err_msg *msg)
{
    char names[sizeof(msg->text) / 2] = "";
    FILE *const out = fmemopen(names, sizeof(names), "w");

    if (out && refusal->other)
        print_names(out, refusal->other);
    if (out)
        (void)fclose(out);
    names[sizeof(names) - 1] = '\0';
    err_append(msg,
               ": it is for %s, and not for %s (connect by a name that it has, or make a new one: "
               "embtier keys server)",
               names, TEXT_SHOWN(address->host));
}

static void append_authority(const struct address *address, struct err_msg *msg)
{
    const char *const file = address->files.authority;

    err_append(msg, ": no CA %s%s has signed it (name the file of the server's CA: ?ca=FILE)",
               *file ? "in " : "that this system trusts", file);
}

static void append_dates(const struct tls_refusal *refusal, struct err_msg *msg)
{
    const bool is_early = refusal->verdict == X509_V_ERR_CERT_NOT_YET_VALID;
    const X509 *const refused = refusal->refused;

    if (refused)
        err_append(msg, " (it is valid %s %s)", is_early ? "from" : "until",
                   DAY_OF(is_early ? X509_get0_notBefore(refused) : X509_get0_notAfter(refused)));
    if (is_early)
        return;
    err_append(msg,
               refusal->depth == 0
                   ? "; the server needs a new one: embtier keys server"
                   : "; the signer needs a new one, and the files that have it: embtier keys ca");
}

static void append_signer(const struct tls_refusal *refusal, struct err_msg *msg)
{
    struct text_shown subject;

    if (refusal->depth > 0 && refusal->refused)
        err_append(msg, ": certificate %d of its chain, %s", refusal->depth + 1,
                   certificate_show(X509_get_subject_name(refusal->refused), &subject));
}

static void explain_verdict(const struct tls_refusal *refusal, const struct address *address,
                            struct err_msg *msg)
{
    err_write(msg, "cannot connect to %s: the server's certificate is refused: %s",
              TEXT_SHOWN(ADDRESS_SHOWN(address)), X509_verify_cert_error_string(refusal->verdict));
    append_signer(refusal, msg);
    switch (refusal->verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        append_names(refusal, address, msg);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
        append_authority(address, msg);
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        append_dates(refusal, msg);
        break;
    default:
        break;
    }
}

bool tls_refusal_explain(const struct tls_stream *stream, const struct address *address,
                         struct err_msg *msg)
{
    struct tls_refusal refusal;

    if (!tls_refusal_of(stream, &refusal))
        return false;
    if (refusal.alert != 0)
        explain_alert(&refusal, address, msg);
    else
        explain_verdict(&refusal, address, msg);
    return true;
}
