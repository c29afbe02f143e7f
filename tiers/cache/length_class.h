/* SPDX-License-Identifier: Apache-2.0 */
/* length_class.h: the row lengths that slots come in: geometric, with eight steps per doubling,
 * including the powers of two.
 *
 * Lengths are counted in granules (16 bytes, or more in very large caches). The first eight classes
 * are 1 to 8 granules; after that a slot wastes at most a ninth. Pure functions; any thread. */
#ifndef EMBTIER_TIERS_CACHE_LENGTH_CLASS_H
#define EMBTIER_TIERS_CACHE_LENGTH_CLASS_H

#include <stdint.h>

#define LENGTH_CLASS_ROW_BYTES_MAX 102400
#define LENGTH_CLASS_COUNT         85 /* with the smallest granule, 16 bytes */
#define LENGTH_CLASS_NONE          255

/* Returns the smallest class whose slots hold @bytes (1 to LENGTH_CLASS_ROW_BYTES_MAX). */
static inline uint32_t length_class_of(uint32_t bytes, uint32_t granule_shift)
{
    uint32_t last = (bytes - 1) >> granule_shift;
    uint32_t shift;

    if (last < 8)
        return last;
    shift = 28 - (uint32_t)__builtin_clz(last); /* leaves four significant bits */
    return (shift << 3) + (last >> shift);
}

static inline uint32_t length_class_bytes(uint32_t class_index, uint32_t granule_shift)
{
    uint32_t shift;

    if (class_index < 8)
        return (class_index + 1) << granule_shift;
    shift = (class_index - 8) >> 3;
    return ((class_index - (shift << 3) + 1) << shift) << granule_shift;
}

#endif
