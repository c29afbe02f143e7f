/* SPDX-License-Identifier: Apache-2.0 */
/* strangers.h: figures of connections that are no session: of clients that have not said hello, or
 * had their session and are on their way out (rpc/rpc_strangers.h). Any thread. */
#ifndef EMBTIER_DAEMON_TRANSPORT_STRANGERS_H
#define EMBTIER_DAEMON_TRANSPORT_STRANGERS_H

#include <stdatomic.h>
#include <stdint.h>

struct strangers {
    _Atomic uint32_t now;
    _Atomic uint64_t ended; /* to make place for others */
};

#endif
