/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/text_escape.h"

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

enum embtier_err err_shutdown(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_SHUTDOWN, "the server is shutting down");
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
    case EFBIG: /* a limit on this process's files, such as ulimit -f */
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

/* Enough for most messages. */
#define STACK_BYTES 1024

/* Writes @before, the message and @after into @msg, escaped and cut to fit. */
PRINTF_LIKE(4, 0)
static void write_message(struct err_msg *msg, const char *before, const char *after,
                          const char *format, va_list args)
{
    _cleanup_(freep) char *whole = NULL;
    _cleanup_(freep) char *long_text = NULL;
    char text[STACK_BYTES];
    const char *shown = text;
    va_list again;

    va_copy(again, args);
    if (vsnprintf(text, sizeof(text), format, args) >= (int)sizeof(text)) {
        if (vasprintf(&long_text, format, again) < 0)
            long_text = NULL; /* the part in @text has to do */
        else
            shown = long_text;
    }
    va_end(again);
    if (before[0] != '\0' || after[0] != '\0') {
        if (asprintf(&whole, "%s%s%s", before, shown, after) < 0)
            whole = NULL;
        else
            shown = whole;
    }
    text_fit(shown, msg->text, sizeof(msg->text));
}

void err_write(struct err_msg *msg, const char *format, ...)
{
    va_list args;

    if (!msg)
        return;
    va_start(args, format);
    write_message(msg, "", "", format, args);
    va_end(args);
}

void err_append(struct err_msg *msg, const char *format, ...)
{
    struct err_msg before;
    va_list args;

    if (!msg)
        return;
    before = *msg;
    va_start(args, format);
    write_message(msg, before.text, "", format, args);
    va_end(args);
}

void err_write_errno(struct err_msg *msg, int errnum, const char *format, ...)
{
    char reason[128];
    va_list args;

    if (!msg)
        return;
    snprintf(reason, sizeof(reason), ": %s", strerror(errnum)); // NOLINT(concurrency-mt-unsafe)
    va_start(args, format);
    write_message(msg, "", reason, format, args);
    va_end(args);
}
