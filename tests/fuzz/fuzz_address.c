/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of servers (base/net/address.h), one or several (base/net/address_list.h): an accepted
 * one has exactly the parts of its kind. */
#include "tests/fuzz/lib/fuzz.h"

#include "base/net/address_list.h"

static void check_file(const char *file)
{
    FUZZ_CHECK(strnlen(file, ADDRESS_FILE_MAX + 1) <= ADDRESS_FILE_MAX && !strchr(file, '&'));
}

static void check_files(const struct address *address)
{
    const struct address_files *const files = &address->files;
    const bool has_tls_files = files->authority[0] || files->certificate[0] || files->key[0];

    check_file(files->authority);
    check_file(files->certificate);
    check_file(files->key);
    check_file(files->token);
    FUZZ_CHECK(!has_tls_files || address->kind == ADDRESS_TLS);
}

static void check(const struct address *address)
{
    const size_t path = strnlen(address->path, sizeof(address->path));
    const size_t host = strnlen(address->host, sizeof(address->host));
    const size_t port = strnlen(address->port, sizeof(address->port));

    FUZZ_CHECK(path < sizeof(address->path) && host < sizeof(address->host) &&
               port < sizeof(address->port));
    FUZZ_CHECK(address_is_tcp(address) == (host > 0));
    FUZZ_CHECK(address_is_tcp(address) == (path == 0));
    FUZZ_CHECK(strspn(address->port, "0123456789") == port);
    FUZZ_CHECK((port > 0) == (host > 0) && strtoul(address->port, NULL, 10) <= UINT16_MAX);
    check_files(address);
}

/* Each text of a list is that address. */
static void check_list(const struct address_list *list)
{
    FUZZ_CHECK(list->count >= 1 && list->count <= ADDRESS_LIST_MAX);
    for (uint32_t i = 0; i < list->count; i++) {
        struct err_msg msg = { { 0 } };
        struct address address;

        check(&list->addresses[i]);
        FUZZ_CHECK(address_parse(list->texts[i], &address, &msg) == EMBTIER_OK);
        FUZZ_CHECK(address.kind == list->addresses[i].kind);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(address_list_freep) struct address_list *list = NULL;
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct err_msg msg = { { 0 } };
    struct address address;

    if (address_parse(text, &address, &msg) == EMBTIER_OK)
        check(&address);
    else
        FUZZ_CHECK(msg.text[0]);
    if (address_list_parse(text, &list, &msg) == EMBTIER_OK)
        check_list(list);
    else
        FUZZ_CHECK(msg.text[0]);
    return 0;
}
