/* SPDX-License-Identifier: Apache-2.0 */
/* held_address.h: patience with an address that a dead server still holds.
 *
 * When a process is killed, the kernel cancels the operations of its io_uring on a thread of its
 * own. Until then the listening socket stays open, although the process has been waited for. A
 * server that is started again at once would find its own address in use. Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_LISTEN_HELD_ADDRESS_H
#define EMBTIER_DAEMON_TRANSPORT_LISTEN_HELD_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Begin zeroed, one for each address. */
struct held_address {
    uint64_t since_ns; /* 0: it was not in use yet */
};

/* Call when the address is in use. Waits a moment and returns true: try again. False: it has been
 * in use for three seconds, so a live program has it. @name is for the log. */
bool held_address_wait(struct held_address *held, const char *name);

#endif
