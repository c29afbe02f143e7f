/* SPDX-License-Identifier: Apache-2.0 */
/* thread_class.h: tells the system which of the server's threads to run first when cores are few.
 *
 * A thread calls one of these for itself, once. Each is a request that the system may refuse. The
 * first two leave a thread alone if its policy is not the usual one, because the user has chosen
 * that policy. */
#ifndef EMBTIER_BASE_SYSTEM_THREAD_CLASS_H
#define EMBTIER_BASE_SYSTEM_THREAD_CLASS_H

#ifdef __cplusplus
extern "C" {
#endif

/* For a thread that requests wait for. It asks for short turns, so it runs soon after it wakes
 * (Linux 6.12 and later; needs no privilege). */
void thread_class_answering(void);

/* For a thread that makes space, which requests wait for once none is left. It keeps its share of
 * the cores, so others cannot stop it from working. It preempts no thread when it wakes, and runs
 * in few long turns (these from Linux 6.12 on). */
void thread_class_upkeep(void);

/* For work that is not urgent: raises the thread's niceness by ten. */
void thread_class_background(void);

#ifdef __cplusplus
}
#endif
#endif
