/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/cache/row_index.h"

#include <assert.h>
#include <string.h>

#define NOT_RESIZING (UINT64_C(1) << 32)

void row_index_init(struct row_index *index, void *memory, uint32_t set_count)
{
    *index = (struct row_index){
        .sets = memory,
        .set_count = set_count,
        .large_count = set_count,
        .boundary = NOT_RESIZING,
        .zeroed_from = set_count,
    };
    memset(index->sets, 0, set_count * sizeof(*index->sets));
}

static uint32_t find_in(const struct row_set *set, uint16_t table, uint64_t hash, uint64_t id)
{
    uint32_t mask = row_set_match(set, row_index_tag(hash));

    for (; mask; mask &= mask - 1) {
        uint32_t way = (uint32_t)__builtin_ctz(mask);

        if (row_entry_is(&set->entries[way], table, id))
            return way;
    }
    return ROW_WAY_NONE;
}

uint32_t row_index_find(const struct row_index *index, uint16_t table, uint64_t hash, uint64_t id,
                        struct row_set **ret_set)
{
    struct row_set *set = row_index_first_set(index, hash);
    uint32_t way = find_in(set, table, hash, id);

    if (way == ROW_WAY_NONE && (set->pinned & ROW_SET_AWAY)) {
        set = row_index_second_set(index, hash);
        way = find_in(set, table, hash, id);
    }
    *ret_set = set;
    return way;
}

static void add_away(struct row_set *set, uint32_t count)
{
    if (!count)
        return;
    set->away = (uint16_t)MIN(set->away + count, UINT16_MAX);
    set->pinned |= ROW_SET_AWAY;
}

void row_index_fill(struct row_index *index, struct row_set *set, uint32_t way, uint16_t table,
                    uint64_t hash, uint64_t id, uint32_t slot, uint16_t stamp, bool second)
{
    assert(set->tags[way] == 0);
    set->tags[way] = row_index_tag(hash);
    set->stamps[way] = stamp;
    set->entries[way] = (struct row_entry){
        .id = id, .slot = slot, .table = table, .flags = second ? ROW_ENTRY_SECOND : 0
    };
    if (second)
        add_away(row_index_first_set(index, hash), 1);
}

void row_index_clear(struct row_index *index, struct row_set *set, uint32_t way, uint64_t hash)
{
    assert(set->tags[way] != 0);
    set->tags[way] = 0;
    set->dirty &= (uint16_t) ~(1u << way);
    set->pinned &= (uint16_t) ~(1u << way);
    if (set->entries[way].flags & ROW_ENTRY_SECOND) {
        struct row_set *first = row_index_first_set(index, hash);

        assert(first->away);
        if (first->away != UINT16_MAX && --first->away == 0)
            first->pinned &= (uint16_t)~ROW_SET_AWAY;
    }
}

void row_index_start_resize(struct row_index *index, uint32_t set_count)
{
    assert(!row_index_is_resizing(index) && set_count != index->set_count);
    index->has_resized = true;
    index->is_shrinking = set_count < index->set_count;
    if (index->is_shrinking) {
        index->set_count = set_count;
        index->zeroed_from = set_count;
        index->boundary = 0;
    } else {
        index->large_count = set_count;
        index->zeroed_from = set_count;
    }
}

/* Returns the lowest hash that @count sets map to @set. */
static uint64_t lowest_hash(uint32_t set, uint32_t count)
{
    return div_round_up((uint64_t)set << 32, count);
}

static uint32_t old_count(const struct row_index *index)
{
    return index->is_shrinking ? index->large_count : index->set_count;
}

/* Sets that never held a row are uninitialised memory. */
static void zero_from(struct row_index *index, uint32_t from)
{
    if (from >= index->zeroed_from)
        return;
    memset(&index->sets[from], 0, (index->zeroed_from - from) * sizeof(*index->sets));
    index->zeroed_from = from;
}

uint32_t row_index_prepare_set(struct row_index *index)
{
    const uint32_t count = old_count(index);
    const uint64_t next = index->is_shrinking ? index->boundary : index->boundary - 1;
    const uint32_t set = (uint32_t)((next * count) >> 32);
    const uint32_t lowest = row_index_new_set(index, lowest_hash(set, count));
    const uint32_t highest = row_index_new_set(index, lowest_hash(set + 1, count) - 1);
    uint16_t away;

    assert(row_index_is_resizing(index));
    if (!index->is_shrinking)
        zero_from(index, MAX(lowest, index->set_count));
    /* Finding each row's target set would need a lookup, so all heirs inherit the whole count. If
     * the set could not be emptied at once, they now get the count added since. */
    away = index->sets[set].away;
    if (away > index->inherited) {
        for (uint32_t i = lowest; i <= highest; i++)
            if (i != set)
                add_away(&index->sets[i], (uint32_t)away - index->inherited);
        index->inherited = away;
    }
    return set;
}

void row_index_pass_hash(struct row_index *index, uint32_t hash)
{
    index->boundary = index->is_shrinking ? (uint64_t)hash + 1 : hash;
}

static void end_resize(struct row_index *index)
{
    if (index->is_shrinking)
        index->large_count = index->set_count;
    else
        index->set_count = index->large_count;
    index->is_shrinking = false;
    index->zeroed_from = index->set_count;
    index->boundary = NOT_RESIZING;
}

void row_index_finish_set(struct row_index *index, uint32_t set)
{
    const uint32_t count = old_count(index);
    const uint64_t lowest = lowest_hash(set, count);
    const uint64_t end = lowest_hash(set + 1, count);
    /* The new mapping gives this set none of its hashes. */
    const bool is_left = index->is_shrinking ? row_index_new_set(index, end - 1) < set
                                             : row_index_new_set(index, lowest) > set;

    index->boundary = index->is_shrinking ? end : lowest;
    index->inherited = 0;
    if (is_left) {
        index->sets[set].away = 0;
        index->sets[set].pinned &= (uint16_t)~ROW_SET_AWAY;
    }
    if (set == (index->is_shrinking ? count - 1 : 0))
        end_resize(index);
}

void row_index_clamp_stamps(struct row_index *index, uint32_t first_set, uint32_t end_set,
                            uint16_t now)
{
    for (uint32_t s = first_set; row_index_next_set(index, &s) && s < end_set; s++) {
        struct row_set *set = &index->sets[s];

        for (uint32_t way = 0; way < ROW_SET_WAYS; way++)
            if ((uint16_t)(now - set->stamps[way]) > 0x8000)
                set->stamps[way] = (uint16_t)(now - 0x8000);
    }
}
