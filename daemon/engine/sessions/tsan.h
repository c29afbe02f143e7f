/* SPDX-License-Identifier: Apache-2.0 */
/* tsan.h: order that the thread sanitizer cannot see because it passes through another process.
 *
 * A client sees a completion that one lane has published, or the answer to a job that used its
 * arena. Then it uses the same bytes for a request that another lane serves, or for another job.
 * The client is the link between the two, and is not part of this process. In other builds these
 * macros do nothing. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_TSAN_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_TSAN_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TSAN_RELEASE(address) __tsan_release(address)
#define TSAN_ACQUIRE(address) __tsan_acquire(address)
#else
#define TSAN_RELEASE(address) ((void)(address))
#define TSAN_ACQUIRE(address) ((void)(address))
#endif

#endif
