/* SPDX-License-Identifier: Apache-2.0 */
/* thread_class.h: which of the server's threads the system lets run first when cores are few.
 *
 * Each is called by a thread for itself, once, and is a wish: the system may refuse. The first two
 * leave a thread alone whose policy is not the usual one, as the user has chosen it then. */
#ifndef EMBTIER_BASE_SYSTEM_THREAD_CLASS_H
#define EMBTIER_BASE_SYSTEM_THREAD_CLASS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Requests wait for this thread: it asks for short turns, and so gets one soon after it wakes (from
 * Linux 6.12 on, no privilege needed). */
void thread_class_answering(void);

/* Makes space that requests wait for when there is none left: it has its share of the cores, so
 * that others cannot keep it from working, but takes it from nobody when it wakes, and has it in
 * few long turns (these from Linux 6.12 on). */
void thread_class_upkeep(void);

/* Work that nobody waits for in a hurry: it is niced by ten. */
void thread_class_background(void);

#ifdef __cplusplus
}
#endif
#endif
