/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/session/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum embtier_err check_readers(const char *path, int fd, struct err_msg *msg)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return err_set_errno(msg, errno, "token file %s", path);
    if (!S_ISREG(info.st_mode))
        return err_set(msg, EMBTIER_INVALID, "token file %s: it must be a regular file", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return err_set(msg, EMBTIER_PERMISSION,
                       "token file %s belongs to user %u, who knows the token: use one of your own",
                       path, (unsigned)info.st_uid);
    if (info.st_mode & 077)
        return err_set(msg, EMBTIER_PERMISSION,
                       "token file %s has mode %04o, so others may read or change it: chmod it to "
                       "0600, and replace the token if others may know it",
                       path, (unsigned)info.st_mode & 07777);
    return EMBTIER_OK;
}

static enum embtier_err read_token(const char *path, int fd, struct token *ret_token,
                                   struct err_msg *msg)
{
    char text[TOKEN_BYTES + 3]; /* the end of a line, and one byte more than a token may have */
    const ssize_t got = read(fd, text, sizeof(text));
    const int errnum = errno;
    const bool is_token = got > 0 && token_parse(text, (size_t)got, ret_token);

    explicit_bzero(text, sizeof(text));
    if (got < 0)
        return err_set_errno(msg, errnum, "token file %s", path);
    if (!is_token)
        return err_set(msg, EMBTIER_INVALID,
                       "token file %s holds no token: one is %s and %zu characters, on one line",
                       path, TOKEN_PREFIX, TOKEN_BYTES - strlen(TOKEN_PREFIX));
    return EMBTIER_OK;
}

enum embtier_err token_file_read(const char *path, struct token *ret_token, struct err_msg *msg)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum embtier_err err;

    if (fd < 0)
        return err_set_errno(msg, errno, "token file %s", path);
    err = check_readers(path, fd, msg);
    if (err == EMBTIER_OK)
        err = read_token(path, fd, ret_token, msg);
    close(fd);
    return err;
}

enum embtier_err token_file_find(const char *path, struct token *ret_token, struct err_msg *msg)
{
    if (path[0] == '\0')
        path = getenv("EMBTIER_TOKEN_FILE"); // NOLINT(concurrency-mt-unsafe)
    if (path && path[0] != '\0')
        return token_file_read(path, ret_token, msg);
    ret_token->text[0] = '\0';
    return EMBTIER_OK;
}
