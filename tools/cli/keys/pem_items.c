/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/pem_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "base/text/text_escape.h"
#include "base/tls/openssl_err.h"
#include "base/tls/secret_file.h"

/* A decoded item, in memory that OpenSSL overwrites when it is freed. */
struct block {
    char *label, *header;
    unsigned char *data;
    long bytes;
};

static void free_block(struct block *block)
{
    OPENSSL_secure_free(block->label);
    OPENSSL_secure_free(block->header);
    OPENSSL_secure_clear_free(block->data, (size_t)block->bytes);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text), end_bytes = strlen(end);

    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static bool is_key(const char *label)
{
    return strcmp(label, PEM_STRING_PKCS8INF) == 0 || ends_with(label, " " PEM_STRING_PKCS8INF);
}

bool pem_item_is_locked(const struct pem_item *item)
{
    return is_key(item->label) && !item->key;
}

/* True if the key has a password, in the new form or in the old one. */
static bool is_locked(const struct block *block)
{
    return strcmp(block->label, PEM_STRING_PKCS8) == 0 || strstr(block->header, "ENCRYPTED");
}

static enum embtier_err decode(const char *path, const struct block *block, struct pem_item *item,
                               struct err_msg *msg)
{
    const unsigned char *at = block->data;

    (void)snprintf(item->label, sizeof(item->label), "%s", block->label);
    if (strcmp(block->label, PEM_STRING_X509) == 0)
        item->certificate = d2i_X509(NULL, &at, block->bytes);
    else if (is_key(block->label) && !is_locked(block))
        item->key = d2i_AutoPrivateKey(NULL, &at, block->bytes);
    else
        return EMBTIER_OK;
    if ((item->certificate || item->key) && at == block->data + block->bytes)
        return EMBTIER_OK;
    return openssl_failed(msg, EMBTIER_INVALID, "%s: the %s in it is damaged", path,
                          TEXT_SHOWN(block->label));
}

static enum embtier_err append(const char *path, const struct block *block, struct pem_items *items,
                               struct err_msg *msg)
{
    struct pem_item *const all = reallocarray(items->all, items->count + 1, sizeof(*items->all));

    if (!all)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    items->all = all;
    all[items->count] = (struct pem_item){ NULL };
    items->count++;
    return decode(path, block, &all[items->count - 1], msg);
}

/* Reads the next block; false: there is none, or it is damaged. */
static bool next_block(BIO *bio, struct block *ret_block)
{
    *ret_block = (struct block){ NULL };
    return PEM_read_bio_ex(bio, &ret_block->label, &ret_block->header, &ret_block->data,
                           &ret_block->bytes, PEM_FLAG_SECURE | PEM_FLAG_EAY_COMPATIBLE) == 1;
}

static bool is_at_end(void)
{
    const unsigned long code = ERR_peek_last_error();

    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

static enum embtier_err parse_all(const char *path, BIO *bio, struct pem_items *items,
                                  struct err_msg *msg)
{
    struct block block;

    while (next_block(bio, &block)) {
        const enum embtier_err err = append(path, &block, items, msg);

        free_block(&block);
        TRY(err);
    }
    if (!is_at_end())
        return openssl_failed(msg, EMBTIER_INVALID, "%s: a part of it is damaged", path);
    ERR_clear_error();
    if (items->count == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s holds no certificate and no key in PEM (-----BEGIN ...-----)", path);
    return EMBTIER_OK;
}

enum embtier_err pem_items_parse(const char *path, const char *text, size_t bytes,
                                 struct pem_items *ret_items, struct err_msg *msg)
{
    _cleanup_(pem_items_clear) struct pem_items items = { NULL };
    BIO *const bio = BIO_new_mem_buf(text, (int)bytes);
    enum embtier_err err;

    if (!bio)
        return openssl_failed(msg, EMBTIER_NO_MEMORY, "%s", path);
    err = parse_all(path, bio, &items, msg);
    BIO_free(bio);
    if (err == EMBTIER_OK)
        *ret_items = (struct pem_items){ .all = TAKE(items.all), .count = items.count };
    return err;
}

enum embtier_err pem_items_read(const char *path, struct pem_items *ret_items, struct err_msg *msg)
{
    _cleanup_(secret_file_clear) struct secret_file file = { NULL };

    TRY(secret_file_read(path, PEM_FILE_BYTES_MAX, &file, msg));
    return pem_items_parse(path, file.text, file.bytes, ret_items, msg);
}

void pem_items_clear(struct pem_items *items)
{
    for (size_t i = 0; items->all && i < items->count; i++) {
        X509_free(items->all[i].certificate);
        EVP_PKEY_free(items->all[i].key);
    }
    free(items->all);
    items->all = NULL;
}

X509 *pem_items_certificate(const struct pem_items *items)
{
    for (size_t i = 0; i < items->count; i++)
        if (items->all[i].certificate)
            return items->all[i].certificate;
    return NULL;
}

EVP_PKEY *pem_items_key(const struct pem_items *items)
{
    for (size_t i = 0; i < items->count; i++)
        if (items->all[i].key)
            return items->all[i].key;
    return NULL;
}
