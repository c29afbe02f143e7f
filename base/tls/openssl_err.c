/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/openssl_err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>

static const char *reason_of(unsigned long code, char *text, size_t room)
{
    const char *const reason = ERR_reason_error_string(code);

    /* OpenSSL has no words for errors of the system. */
    if (code != 0 && ERR_SYSTEM_ERROR(code))
        return strerror_r(ERR_GET_REASON(code), text, room);
    return reason ? reason : "no reason is known";
}

enum embtier_err openssl_write(struct err_msg *msg, enum embtier_err err, const char *format, ...)
{
    const unsigned long code = ERR_get_error();
    char text[sizeof(msg->text)], reason[128];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ERR_clear_error();
    if (code != 0 && ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE)
        err = EMBTIER_NO_MEMORY;
    return err_set(msg, err, "%s: %s", text, reason_of(code, reason, sizeof(reason)));
}
