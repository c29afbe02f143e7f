/* SPDX-License-Identifier: Apache-2.0 */
/* The processor is asked only here. A NAME_loops.c may itself be compiled to need the instructions
 * that it would ask for. */
#include "kernels/cpu/isa.h"

#include <stdatomic.h>
#include <stdint.h>

#ifdef __x86_64__
#include <cpuid.h>

/* Clang has no name for it in __builtin_cpu_supports(). The test for AVX2 covers the system's
 * saving of the registers. */
static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

const char *kernels_isa_name(enum kernels_isa isa)
{
    static const char *const names[] = {
#define X(name) [KERNELS_ISA_##name] = #name,
        KERNELS_ISA_TABLE(X)
#undef X
    };

    return names[isa];
}

bool kernels_isa_is_there(enum kernels_isa isa)
{
    switch (isa) {
#ifdef __x86_64__
    case KERNELS_ISA_avx512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && kernels_isa_is_there(KERNELS_ISA_avx2);
    case KERNELS_ISA_avx2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && has_f16c();
#endif
    case KERNELS_ISA_baseline:
        return true;
    case KERNELS_ISA_COUNT:
        break;
    }
    return false;
}

enum kernels_isa kernels_isa_best(void)
{
    /* The set plus 1; 0 until it is known. It is kept because cpuid takes microseconds in a virtual
     * machine. It orders nothing: threads that ask at the same time find the same set. */
    static _Atomic uint32_t known;
    const uint32_t found = atomic_load_explicit(&known, memory_order_relaxed);
    enum kernels_isa isa = 0;

    if (found > 0)
        return (enum kernels_isa)(found - 1);
    while (!kernels_isa_is_there(isa))
        isa++;
    atomic_store_explicit(&known, (uint32_t)isa + 1, memory_order_relaxed);
    return isa;
}
