/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h: the instruction sets that inner loops are compiled for.
 *
 * A file NAME_loops.c holds the inner loops of one noun, in plain C or GNU vector types.
 * meson.build compiles it once per instruction set, with KERNELS_ISA set to the set's name. Each
 * time it defines one struct of functions, KERNELS_ISA_SYMBOL(NAME_loops), and maybe a function
 * that other loops of the same set call. NAME_loops.h declares all these structs and NAME.c has an
 * array of them by number, both made from KERNELS_ISA_TABLE. NAME.c calls the loops of this
 * processor's best set.
 *
 * All sets give the same bits: the order of additions is part of each function's contract, and
 * nothing is contracted to a fused multiply-add. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_ISA_H
#define EMBTIER_KERNELS_CPU_ISA_H

#include <stdbool.h>

/* X(name); the best comes first, the last runs everywhere. kernels/cpu/meson.build has each set's
 * flags. */
#ifdef __x86_64__
#define KERNELS_ISA_TABLE(X) X(avx512) X(avx2) X(baseline)
#else
#define KERNELS_ISA_TABLE(X) X(baseline)
#endif

enum kernels_isa {
#define X(name) KERNELS_ISA_##name,
    KERNELS_ISA_TABLE(X)
#undef X
        KERNELS_ISA_COUNT
};

const char *kernels_isa_name(enum kernels_isa isa);
/* True if this processor has the instruction set. */
bool kernels_isa_is_there(enum kernels_isa isa);
/* Returns the best set that this processor has. */
enum kernels_isa kernels_isa_best(void);

#define KERNELS_PASTE_(a, b) a##_##b
#define KERNELS_PASTE(a, b)  KERNELS_PASTE_(a, b)
/* Names the struct that a NAME_loops.c defines: NAME_loops_avx2 and so on. */
#define KERNELS_ISA_SYMBOL(name) KERNELS_PASTE(name, KERNELS_ISA)

#endif
