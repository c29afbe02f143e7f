/* SPDX-License-Identifier: Apache-2.0 */
/* tsan.h: order that the thread sanitizer cannot see because it passes through another process.
 *
 * A client sees a completion that one lane has published, or the answer to a job that used its
 * arena. Then it uses the same bytes for a request that another lane serves, or for another job.
 * The client is the link between the two, and is not part of this process. In other builds these
 * macros do nothing. The address is that of the session's channel, which has no atomic word: the
 * sanitizer forgets what was released at an atomic when that is stored to.
 *
 * A client may also write its region while a request reads it. Over shared memory another process
 * does. Over RPC a thread of this process does, between TSAN_CLIENT_BEGIN() and TSAN_CLIENT_END():
 * the sanitizer then reports no race on what the thread reads and writes. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_TSAN_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_TSAN_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TSAN_RELEASE(address) __tsan_release(address)
#define TSAN_ACQUIRE(address) __tsan_acquire(address)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define TSAN_CLIENT_BEGIN()                                                                        \
    (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define TSAN_CLIENT_END()                                                                          \
    (AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__))
#else
#define TSAN_RELEASE(address) ((void)(address))
#define TSAN_ACQUIRE(address) ((void)(address))
#define TSAN_CLIENT_BEGIN()   ((void)0)
#define TSAN_CLIENT_END()     ((void)0)
#endif

#endif
