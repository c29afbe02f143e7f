/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/net/certificates.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/tls/tls_chain.h"
#include "base/tls/tls_context.h"
#include "base/yaml/yaml_doc.h"
#include "config/config.h"

struct certificates {
    const struct config *config;
    pthread_mutex_t lock;
    SSL_CTX *context;
};

/* A file that does not fit is told with its key and line. */
static enum embtier_err read_files(const struct config *config, SSL_CTX **ret_context,
                                   struct err_msg *msg)
{
    static const char *const keys[] = { [TLS_FILE_CERTIFICATE] = "tls.certificate",
                                        [TLS_FILE_KEY] = "tls.key",
                                        [TLS_FILE_AUTHORITY] = "tls.client_ca" };
    const struct tls_files files = { .certificate = config->tls.certificate,
                                     .key = config->tls.key,
                                     .authority = config->tls.client_ca };
    struct err_msg why = { { 0 } };
    enum tls_file file;

    if (tls_context_server(&files, config->tls.require_certificate, ret_context, &file, &why) ==
        EMBTIER_OK)
        return EMBTIER_OK;
    return yaml_doc_mistake(config->doc, keys[file], msg, "%s", why.text);
}

enum embtier_err certificates_new(const struct config *config,
                                  struct certificates **ret_certificates, struct err_msg *msg)
{
    _cleanup_(tls_context_freep) SSL_CTX *context = NULL;
    struct certificates *certificates;

    *ret_certificates = NULL;
    if (!config_has_tls(config))
        return EMBTIER_OK;
    TRY(read_files(config, &context, msg));
    certificates = calloc(1, sizeof(*certificates));
    if (!certificates)
        return err_set(msg, EMBTIER_NO_MEMORY, "TLS: out of memory");
    certificates->config = config;
    certificates->context = TAKE(context);
    pthread_mutex_init(&certificates->lock, NULL);
    *ret_certificates = certificates;
    return EMBTIER_OK;
}

void certificates_free(struct certificates *certificates)
{
    if (!certificates)
        return;
    tls_context_free(certificates->context);
    pthread_mutex_destroy(&certificates->lock);
    free(certificates);
}

SSL_CTX *certificates_get(struct certificates *certificates)
{
    SSL_CTX *context;

    pthread_mutex_lock(&certificates->lock);
    context = certificates->context;
    (void)SSL_CTX_up_ref(context);
    pthread_mutex_unlock(&certificates->lock);
    return context;
}

/* Only this thread replaces it. One that clients refuse itself shall not keep other files of a
 * reload from being taken. */
static bool is_good(const struct certificates *certificates)
{
    struct err_msg ignored;
    int verdict;

    return tls_chain_check(certificates->context, &verdict, &ignored) == EMBTIER_OK;
}

enum embtier_err certificates_read(void *context, void **ret_fresh, struct err_msg *msg)
{
    const struct certificates *const certificates = context;
    const struct config *const config = certificates->config;
    _cleanup_(tls_context_freep) SSL_CTX *fresh = NULL;
    struct err_msg why = { { 0 } };
    int verdict;

    TRY(read_files(config, &fresh, msg));
    if (tls_chain_check(fresh, &verdict, &why) != EMBTIER_OK && is_good(certificates))
        return yaml_doc_mistake(config->doc, "tls.certificate", msg, "%s: %s",
                                config->tls.certificate, why.text);
    *ret_fresh = TAKE(fresh);
    return EMBTIER_OK;
}

void certificates_take(void *context, void *fresh)
{
    struct certificates *const certificates = context;
    SSL_CTX *old;

    pthread_mutex_lock(&certificates->lock);
    old = certificates->context;
    certificates->context = fresh;
    pthread_mutex_unlock(&certificates->lock);
    tls_context_free(old);
}

void certificates_drop(void *context, void *fresh)
{
    (void)context;
    tls_context_free(fresh);
}
