/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: code that depends on the processor, except the kernels. Thread: any. */
#ifndef EMBTIER_BASE_CPU_H
#define EMBTIER_BASE_CPU_H

/* For loops that wait for another thread's store: leaves the core's resources to its other hardware
 * thread for some ten cycles. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
