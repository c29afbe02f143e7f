/* SPDX-License-Identifier: Apache-2.0 */
/* config_asking.h: has an embtierd check a configuration (`embtierd --check`).
 *
 * Only embtierd knows all that a start would refuse, such as RocksDB's options and the data
 * directories. Its checks inspect files, make threads of RocksDB and take sockets, which a process
 * that serves cannot do again. So both the command line and the server ask a program. Thread: any
 * that may wait. */
#ifndef EMBTIER_CONFIG_CONFIG_ASKING_H
#define EMBTIER_CONFIG_CONFIG_ASKING_H

#include <stdint.h>

#include "base/err.h"

struct config_asking {
    const char *server; /* the program */
    const char *path;   /* of the file, for messages too; NULL: the defaults */
    int fd;             /* reads the file's bytes, in place of the path; -1: none */
    uint64_t most_ms;   /* until the program is killed; 0: it may take any time */
    /* Takes each warning; NULL: they are dropped. */
    void (*warn)(void *context, const char *warning);
    void *context;
};

/* Waits for the program's end. CONFIG: a start would refuse the file, or end as the program did;
 * the message says why. TIMEOUT: it took too long, and was killed. Any other error: the program
 * could not be run. */
MUST_CHECK enum embtier_err config_ask(const struct config_asking *asking, struct err_msg *msg);

#endif
