/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of servers (base/net/address.h): an accepted one has exactly the parts of its kind. */
#include "tests/fuzz/lib/fuzz.h"

#include "base/net/address.h"

static void check(const struct address *address)
{
    const size_t path = strnlen(address->path, sizeof(address->path));
    const size_t host = strnlen(address->host, sizeof(address->host));
    const size_t port = strnlen(address->port, sizeof(address->port));

    FUZZ_CHECK(path < sizeof(address->path) && host < sizeof(address->host) &&
               port < sizeof(address->port));
    FUZZ_CHECK((address->kind == ADDRESS_TCP) == (host > 0));
    FUZZ_CHECK((address->kind == ADDRESS_TCP) == (path == 0));
    FUZZ_CHECK(strspn(address->port, "0123456789") == port);
    FUZZ_CHECK((port > 0) == (host > 0) && strtoul(address->port, NULL, 10) <= UINT16_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct err_msg msg = { { 0 } };
    struct address address;

    if (address_parse(text, &address, &msg) == EMBTIER_OK)
        check(&address);
    else
        FUZZ_CHECK(msg.text[0]);
    return 0;
}
