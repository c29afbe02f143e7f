/* SPDX-License-Identifier: Apache-2.0 */
/* A radix sort from the lowest digit up. Each pass deals the pairs out by one digit, in order, and
 * so is stable. One scan of all ids finds the bits that differ, and only those are cut into digits.
 * So the ids of a table of a million rows take two passes, not six. One more scan counts the digits
 * of all passes. */
#include "kernels/cpu/cast/cast.h"

#include <stddef.h>
#include <string.h>

#include "base/macros.h"

/* The most bits of a digit: the first-level cache bears 2,048 places to write to. For few pairs,
 * clearing and adding up the counts would cost more than the passes saved. */
#define DIGIT_BITS     11
#define DIGIT_BITS_FEW 8
#define FEW            1024
#define DIGITS_MAX     8 /* of 8 bits; or 6 of 11 */
#define COUNTS_MAX     (6 << DIGIT_BITS)

/* Up to this many pairs are sorted by insertion. */
#define INSERTION_MAX 32

struct digit {
    uint32_t shift;
    uint32_t mask;
    uint32_t *counts; /* number of pairs with each value; later the place of the next one */
};

static void sort_few(struct cast_pair *pairs, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const struct cast_pair pair = pairs[i];
        uint32_t j = i;

        for (; j > 0 && pairs[j - 1].row > pair.row; j--)
            pairs[j] = pairs[j - 1];
        pairs[j] = pair;
    }
}

/* Cuts the bits set in @differing into digits, lowest first. No digit begins with bits that are
 * equal in all ids. Returns the number of digits. */
static uint32_t make_digits(uint64_t differing, uint32_t bits, uint32_t *counts,
                            struct digit ret_digits[DIGITS_MAX])
{
    uint32_t digit_count = 0;
    uint32_t shift = 0;

    while (shift < 64 && differing >> shift != 0) {
        shift += (uint32_t)__builtin_ctzll(differing >> shift);
        ret_digits[digit_count] = (struct digit){
            .shift = shift,
            .mask = (1u << bits) - 1,
            .counts = counts + ((size_t)digit_count << bits),
        };
        digit_count++;
        shift += bits;
    }
    return digit_count;
}

/* Turns counts into places: how many pairs come before the first with that value. */
static void add_up(struct digit *digit)
{
    uint32_t before = 0;

    for (uint32_t value = 0; value <= digit->mask; value++) {
        const uint32_t n = digit->counts[value];

        digit->counts[value] = before;
        before += n;
    }
}

static void deal_out(const struct digit *digit, const struct cast_pair *from, uint32_t count,
                     struct cast_pair *to)
{
    for (uint32_t i = 0; i < count; i++)
        to[digit->counts[(from[i].row >> digit->shift) & digit->mask]++] = from[i];
}

struct cast_pair *cast_sort(struct cast_pair *pairs, struct cast_pair *scratch, uint32_t count)
{
    const uint32_t bits = count <= FEW ? DIGIT_BITS_FEW : DIGIT_BITS;
    uint32_t counts[COUNTS_MAX];
    struct digit digits[DIGITS_MAX];
    uint32_t digit_count;
    uint64_t differing = 0;

    if (count <= INSERTION_MAX) {
        sort_few(pairs, count);
        return pairs;
    }
    for (uint32_t i = 1; i < count; i++)
        differing |= pairs[i].row ^ pairs[0].row;
    digit_count = make_digits(differing, bits, counts, digits);
    memset(counts, 0, ((size_t)digit_count << bits) * sizeof(*counts));
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t d = 0; d < digit_count; d++)
            digits[d].counts[(pairs[i].row >> digits[d].shift) & digits[d].mask]++;
    for (uint32_t d = 0; d < digit_count; d++) {
        struct cast_pair *const sorted = scratch;

        add_up(&digits[d]);
        deal_out(&digits[d], pairs, count, sorted);
        scratch = pairs;
        pairs = sorted;
    }
    return pairs;
}

uint32_t cast_runs(const struct cast_pair *pairs, uint32_t count, uint32_t *ret_starts)
{
    uint32_t run_count = 0;

    /* Has no branch, because the processor cannot predict the length of a run. */
    for (uint32_t i = 0; i + 1 < count; i++) {
        ret_starts[run_count + 1] = i + 1;
        run_count += pairs[i].row != pairs[i + 1].row;
    }
    run_count += count > 0;
    ret_starts[0] = 0;
    ret_starts[run_count] = count;
    return run_count;
}
