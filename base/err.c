/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void freep(void *p)
{
    free(*(void **)p);
}

void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

const char *err_name(enum embtier_err err)
{
    switch (err) {
#define X(name, number, text)                                                                      \
    case EMBTIER_##name:                                                                           \
        return #name;
        EMBTIER_ERR_TABLE(X)
#undef X
    }
    return "UNKNOWN";
}

const char *err_text(enum embtier_err err)
{
    switch (err) {
#define X(name, number, text)                                                                      \
    case EMBTIER_##name:                                                                           \
        return text;
        EMBTIER_ERR_TABLE(X)
#undef X
    }
    return "unknown error";
}

enum embtier_err err_from_errno(int errnum)
{
    switch (errnum) {
    case 0:
        return EMBTIER_OK;
    case ENOMEM:
        return EMBTIER_NO_MEMORY;
    case EINVAL:
        return EMBTIER_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: /* by a limit on this process's files, such as ulimit -f */
        return EMBTIER_NO_SPACE;
    case ENOENT:
    case ENOTDIR:
        return EMBTIER_NOT_FOUND;
    case EEXIST:
        return EMBTIER_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return EMBTIER_PERMISSION;
    case EAGAIN:
    case EBUSY:
        return EMBTIER_BUSY;
    case ETIMEDOUT:
        return EMBTIER_TIMEOUT;
    case ECONNREFUSED:
    case EHOSTUNREACH:
        return EMBTIER_UNREACHABLE;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return EMBTIER_DISCONNECTED;
    case EOPNOTSUPP:
    case ENOSYS:
        return EMBTIER_UNSUPPORTED;
    default:
        return EMBTIER_IO;
    }
}

void err_write(struct err_msg *msg, const char *format, ...)
{
    va_list args;

    if (!msg)
        return;
    va_start(args, format);
    vsnprintf(msg->text, sizeof(msg->text), format, args);
    va_end(args);
}

void err_append(struct err_msg *msg, const char *format, ...)
{
    va_list args;
    size_t used;

    if (!msg)
        return;
    used = strlen(msg->text);
    va_start(args, format);
    vsnprintf(msg->text + used, sizeof(msg->text) - used, format, args);
    va_end(args);
}

void err_write_errno(struct err_msg *msg, int errnum, const char *format, ...)
{
    va_list args;

    if (!msg)
        return;
    va_start(args, format);
    vsnprintf(msg->text, sizeof(msg->text), format, args);
    va_end(args);
    err_append(msg, ": %s", strerror(errnum));
}
