/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_fixture.h: random numbers and instruction sets for the tests of kernels. */
#ifndef EMBTIER_TESTS_UNIT_KERNELS_KERNELS_FIXTURE_H
#define EMBTIER_TESTS_UNIT_KERNELS_KERNELS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/spec/table_spec.h"
#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/isa.h"
#include "tests/seed.h"

/* Optimizers are numbered without gaps: EMBTIER_OPTIMIZER_NONE is 0. */
enum {
#define X(name, ...) OPTIMIZER_PLACE_##name,
    EMBTIER_OPTIMIZER_TABLE(X)
#undef X
        OPTIMIZERS_AND_NONE
};
#define X(name, number, ...) static_assert(OPTIMIZER_PLACE_##name == (number), "no gaps");
EMBTIER_OPTIMIZER_TABLE(X)
#undef X
#define OPTIMIZER_COUNT ((uint32_t)OPTIMIZERS_AND_NONE - 1)
#define LAST_OPTIMIZER  ((enum embtier_optimizer)OPTIMIZER_COUNT)

/* All instruction sets of this processor. */
#define FOR_EACH_ISA(isa)                                                                          \
    for (enum kernels_isa isa = 0; isa < KERNELS_ISA_COUNT; isa++)                                 \
        if (kernels_isa_is_there(isa))

/* xorshift64*: the same on every machine. */
static inline uint64_t fixture_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static inline uint32_t fixture_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((fixture_random(state) >> 32) * limit >> 32);
}

/* Returns a number of either sign, from 2^-8 to 2^7. Sums of such numbers are rounded, so their
 * order shows. */
static inline float fixture_float(uint64_t *state)
{
    const uint64_t random = fixture_random(state);
    const float mantissa = 1.0f + (float)(int32_t)(random >> 41) * 0x1p-23f;
    const float value = ldexpf(mantissa, (int)(random & 15) - 8);

    return random & 16 ? -value : value;
}

static inline void *fixture_alloc(size_t count, size_t bytes)
{
    void *const memory = calloc(MAX(count, (size_t)1), bytes);

    assert_non_null(memory);
    return memory;
}

/* Memory that ends right before an unmapped page, so that reading past its end faults. */
struct fixture_guarded {
    char *memory;
    size_t memory_bytes;
    char *end;
};

static inline struct fixture_guarded fixture_guarded(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct fixture_guarded guarded = { .memory_bytes = align_up(bytes, page) + page };

    guarded.memory = mmap(NULL, guarded.memory_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guarded.memory != MAP_FAILED);
    guarded.end = guarded.memory + guarded.memory_bytes - page;
    assert_int_equal(mprotect(guarded.end, page, PROT_NONE), 0);
    return guarded;
}

static inline void fixture_guarded_free(struct fixture_guarded *guarded)
{
    assert_int_equal(munmap(guarded->memory, guarded->memory_bytes), 0);
}

/* Numbers of a dtype, one at a time, wherever they lie. */
static inline float fixture_get(enum embtier_dtype dtype, const void *numbers, uint32_t index)
{
    const char *const place = (const char *)numbers + (size_t)index * dtype_bytes(dtype);
    uint16_t half;
    float value;

    if (dtype == EMBTIER_DTYPE_F32) {
        memcpy(&value, place, sizeof(value));
        return value;
    }
    memcpy(&half, place, sizeof(half));
    return dtype == EMBTIER_DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static inline void fixture_set(enum embtier_dtype dtype, void *numbers, uint32_t index, float value)
{
    char *const place = (char *)numbers + (size_t)index * dtype_bytes(dtype);
    const uint16_t half = dtype == EMBTIER_DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);

    if (dtype == EMBTIER_DTYPE_F32)
        memcpy(place, &value, sizeof(value));
    else
        memcpy(place, &half, sizeof(half));
}

#endif
