/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/session_secret.h"

#include <errno.h>
#include <sys/random.h>

#include <openssl/crypto.h>

enum embtier_err session_secret_make(struct session_secret *ret_secret, struct err_msg *msg)
{
    struct session_secret made;

    if (getrandom(made.bytes, sizeof(made.bytes), 0) != (ssize_t)sizeof(made.bytes))
        return err_set_errno(msg, errno, "the system gives no random bytes (getrandom)");
    *ret_secret = made;
    return EMBTIER_OK;
}

bool session_secret_is(const struct session_secret *secret, const uint8_t *bytes, size_t count)
{
    return count == sizeof(secret->bytes) && CRYPTO_memcmp(secret->bytes, bytes, count) == 0;
}
