/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <openssl/crypto.h>

/* Reads until the end or until @room is full. Returns 0 or an errno. */
static int read_up_to(int fd, char *text, size_t room, size_t *ret_bytes)
{
    size_t used = 0;

    while (used < room) {
        const ssize_t count = read(fd, text + used, room - used);

        if (count == 0)
            break;
        if (count > 0)
            used += (size_t)count;
        else if (errno != EINTR)
            return errno;
    }
    *ret_bytes = used;
    return 0;
}

enum embtier_err secret_file_read(const char *path, size_t bytes_max, struct secret_file *ret_file,
                                  struct err_msg *msg)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    _cleanup_(secret_file_clear) struct secret_file file = { .bytes = bytes_max + 1 };
    size_t bytes = 0;
    int why;

    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    /* One byte more than allowed shows a file that is too large, and then is the NUL's. */
    file.text = OPENSSL_zalloc(file.bytes);
    if (!file.text)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    why = read_up_to(fd, file.text, file.bytes, &bytes);
    if (why != 0)
        return err_set_errno(msg, why, "%s", path);
    if (bytes > bytes_max)
        return err_set(msg, EMBTIER_TOO_LARGE, "%s has more than %zu bytes; allowed: at most that",
                       path, bytes_max);
    *ret_file = (struct secret_file){ .text = TAKE(file.text), .bytes = bytes };
    return EMBTIER_OK;
}

void secret_file_clear(struct secret_file *file)
{
    OPENSSL_clear_free(file->text, file->text ? file->bytes : 0);
    file->text = NULL;
}
