/* SPDX-License-Identifier: Apache-2.0 */
/* pooled.h: a pooled lookup under way. Rows of embedding bags become one vector per bag (MTrainS,
 * section 2; Kwon et al., "Tensor Casting", section II: gather-reduce).
 *
 * A lookup is worked off in waves of some thousand ids, so that the memory it needs at a time is
 * bounded. Its rows could be more than all memory. A wave is a run of the lookup's ids, cut
 * anywhere, also within a bag. Its rows are found or read, and then added up in the order of the
 * ids. Waves that share a bag are added up in their order, so neither lanes nor waves show in the
 * result. While other sessions ask, a wave is no larger than a turn. It is added up in
 * as many turns as that needs.
 *
 * Rows are added up in one of two places. With one lane, if all rows of a wave are cached, they are
 * added up straight from where they lie. Nothing else happens on the lane between finding and
 * adding. As long as this goes well, waves are small and a turn takes many. So rows asked of memory
 * while they were found are still in the processor's cache when they are added up.
 *
 * Otherwise the wave is looked up as a GET would be, into the wave's own staging memory. That is at
 * most 1 MiB, so that it stays in the processor's cache. The rows are added up from there when the
 * wave is complete. Staging is needed because a lane may not look at another lane's rows, which may
 * change or move at any time. Also, a row that was read from SSD has no place yet. The lane that
 * adds up changes from wave to wave.
 *
 *   struct pooled | segments[] | its first wave: struct wave | … as in request.h | slices[] |
 *   rows[] | ids[] | weights[] | offsets[] | staging
 *
 * The first wave lies in the same block of request memory as the lookup, so the lookup can always
 * go on (waves.h). The life of a wave:
 *
 *   FREE -- ids taken --> LOOKED_UP -- last row there --> READY -- given to a lane --> GIVEN_OUT
 *     ^                                                                       added up      |
 *     `-------------------------------------------------------------------------------------'
 *
 * pooled.c takes the ids and adds up; pooled_turns.c has the rest. Everything read of the client's
 * memory is checked each time it is read. Segments are read once. Ids are read once, or once more
 * if the search for their rows failed. The offset behind a bag is read again when the bag did not
 * fit in. Thread: the home lane, except for wave_add_up() and wave_add_up_staged(). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "daemon/engine/ops/waves.h"
#include "daemon/engine/rows/request.h"
#include "tiers/spots/row_spot.h"

/* The most in one wave. */
#define WAVE_IDS    4096
#define WAVE_BAGS   4096
#define WAVE_SLICES 64
#define WAVE_BYTES  (UINT32_C(1) << 20) /* of rows */
/* The same for a wave that is likely to be added up where its rows lie. */
#define WAVE_HOT_IDS   512
#define WAVE_HOT_BYTES (UINT32_C(128) << 10)
/* The same for a wave whose rows are found while they are added up. */
#define WAVE_SEARCH_IDS   2048
#define WAVE_SEARCH_BYTES (UINT32_C(512) << 10)
/* Waves until the next search, after one that has not found all rows. */
#define WAVE_SEARCH_PAUSE 16
/* Further limits of a wave: bags may be many and empty, and segments may have none. */
#define WAVE_BAG_BYTES (UINT32_C(2) << 20)
#define WAVE_SEGMENTS  256

struct pooled_segment {
    struct table *table;
    enum embtier_pool mode;
    uint32_t id_count;
    uint32_t bag_count;
    uint64_t ids_offset;
    uint64_t offsets_offset;
    uint64_t weights_offset; /* 0: none */
    float *bags;             /* in the client's arena */
};

/* A wave's share of a segment: bags from first_bag on. The first may have begun in an earlier wave,
 * and the last may go on in a later one. */
struct slice {
    uint32_t segment;
    uint32_t first_bag;
    uint32_t bag_count;
    uint32_t begun; /* rows of the first bag that are in earlier waves */
    uint32_t first; /* index of its first id among the wave's */
    uint32_t id_count;
    bool goes_on;
    uint64_t ids_offset; /* in the client's arena */
    uint32_t *offsets;   /* bag_count + 1, within the slice. Those added up are cut off in front */
};

enum wave_state { WAVE_FREE, WAVE_LOOKED_UP, WAVE_READY, WAVE_GIVEN_OUT };

struct wave {
    struct request request; /* its segments are the slices; its rows go to staging */
    struct pooled *pooled;
    enum wave_state state;  /* home lane */
    uint64_t number;        /* counts the lookup's waves */
    uint32_t segments_seen; /* segments looked at while it was taken */
    uint32_t slice_count;
    uint32_t added_slices; /* slices of staging that have been added up whole */
    struct slice *slices;
    const void **rows; /* by id of the wave */
    uint64_t *ids;  /* for a search, WAVE_SEARCH_IDS at most; others have theirs in the request */
    float *weights; /* by id; NULL: the lookup has none */
    uint32_t *offsets;
    uint8_t *staging;
};

/* The size of a lookup's waves. */
struct wave_shape {
    uint32_t ids;
    uint32_t bags;
    uint32_t slices;
    uint32_t staging_bytes;
    bool weights;
};

struct pooled {
    struct session *session;
    uint32_t number;
    uint32_t segment_count;
    struct pooled_segment *segments;
    uint64_t id_count;
    struct wave_shape shape;

    /* The cursor of taking ids. */
    uint32_t segment;
    uint32_t bag;         /* in that segment */
    uint32_t id;          /* the next one, in that segment */
    uint32_t begun;       /* rows of that bag that have been taken */
    uint32_t bag_end;     /* end of that bag, if begun > 0 */
    bool is_taken;        /* nothing is left to be taken, or will be */
    bool is_hot;          /* the last wave was added up where its rows lie */
    bool is_cached;       /* one lane: all rows of the last wave that was looked up were cached */
    bool searches;        /* the next wave should be searched; set by the lane */
    uint64_t search_from; /* number of the first wave that may be searched */

    struct waves waves;
    uint64_t next_number;
    struct ticket *ticket;  /* asked for by the client, or NULL */
    uint32_t sampled_batch; /* its number in a profile (sampler.h), or 0 */
    uint64_t hit_rows;
    struct refusal refusal; /* the first error */
};

/* Begins a lookup for begin() of struct op; same contract. */
MUST_CHECK enum embtier_err pooled_begin(const struct request_rules *rules, struct session *session,
                                         uint32_t number, const struct op_submission *submission,
                                         struct pooled **ret_pooled, struct refusal *ret_refusal);
/* Returns a free wave, or NULL if there is none now. */
struct wave *pooled_free_wave(const struct request_rules *rules, struct pooled *pooled);
/* Ends a wave: it is free, or given back if no more are to come. */
void pooled_end_wave(const struct request_rules *rules, struct pooled *pooled, struct wave *wave);
/* Takes the next bags, without their ids, into a free wave, for a cost of about @most (cost.h).
 * That is the cost of taking; if the lookup is hot, of adding up as well. Any error: the lookup is
 * refused. Sets is_taken with the last ids; the wave may then be without ids and bags. */
MUST_CHECK enum embtier_err pooled_take(struct pooled *pooled, struct wave *wave, uint64_t most,
                                        struct refusal *ret_refusal);
/* Makes the wave's request, which looks its rows up. Errors are as above. */
MUST_CHECK enum embtier_err pooled_take_ids(const struct request_rules *rules,
                                            struct pooled *pooled, struct wave *wave,
                                            struct refusal *ret_refusal);
/* Tries a search first: copies and checks all ids of the wave. False: an id is not in its table, or
 * the wave's first bag began in an earlier wave. */
MUST_CHECK bool pooled_copy_ids(const struct pooled *pooled, struct wave *wave);
/* Then adds up the rows of slice @index while @where finds them. False: not all are there. Its bags
 * and winners are then useless and are written again, which is why no bag may have begun before. */
MUST_CHECK bool pooled_search(struct pooled *pooled, struct wave *wave, uint32_t index,
                              const struct row_spots *where);
/* Tells the ticket, and a profile, of the wave, all of whose slices have been added up by a
 * search. */
void pooled_searched(const struct request_rules *rules, struct pooled *pooled,
                     const struct wave *wave);
/* Return the costs of taking a wave's bags and ids, and of adding its rows up. */
uint64_t pooled_taking_cost(const struct pooled *pooled, const struct wave *wave);
uint64_t pooled_adding_cost(const struct pooled *pooled, const struct wave *wave);
/* True if @wave goes on with a bag that an earlier wave has not added up yet. */
bool pooled_must_wait(const struct pooled *pooled, const struct wave *wave);
/* Answers the client, unless it is gone. Frees the lookup, but not its ticket. No wave is under
 * way. */
void pooled_free(const struct request_rules *rules, struct pooled *pooled);

/* ---- Any lane ---- */

/* Adds the wave's rows, which have been found, up into the client's bags. */
void wave_add_up(struct wave *wave);
/* Adds up the next rows in staging for a cost of about @most, and sets *@ret_cost to the actual
 * cost. False: some are left. */
bool wave_add_up_staged(struct wave *wave, uint64_t most, uint64_t *ret_cost);

#endif
