/* SPDX-License-Identifier: Apache-2.0 */
/* pooled.h: a pooled lookup under way: rows of embedding bags become one vector per bag (MTrainS,
 * section 2; Kwon et al., "Tensor Casting", section II: gather-reduce).
 *
 * It is worked off in waves of some thousand ids, so that what it needs at a time is bounded,
 * whatever it asks for: its rows could be more than all memory. A wave is a run of the lookup's
 * ids, cut anywhere, also within a bag. Its rows are found, or read, and then added up: the order
 * of addition is that of the ids, and waves that share a bag are added up in their order, so
 * neither lanes nor waves show in the result. Beside other sessions a wave is no larger than may be
 * taken in a turn, and is added up in as many turns as that needs.
 *
 * Where rows are added up. With one lane, if all rows of a wave are cached, straight from where
 * they lie: nothing else happens on the lane between finding and adding. As long as this goes well
 * waves are small, so that rows that were asked for while they were found are still in the
 * processor's cache when they are added up, and a turn takes many. Else the wave is looked up
 * as a GET would be, into the wave's own staging memory (at most 1 MiB, so that it stays in the
 * processor's cache), and added up from there when it is complete: a lane may not look at another
 * one's rows, which may change or move at any time, and a row that was read from SSD has no place
 * yet. Which of the lanes adds up changes from wave to wave.
 *
 *   struct pooled | segments[] | its first wave: struct wave | … as in request.h | slices[] |
 * rows[] | ids[] | weights[] | offsets[] | staging
 *
 * The first wave lies in the same block of request memory as the lookup, so it can always go on
 * (waves.h). The life of a wave:
 *
 *   FREE -- ids taken --> LOOKED_UP -- last row there --> READY -- given to a lane --> GIVEN_OUT
 *     ^                                                                       added up      |
 *     `-------------------------------------------------------------------------------------'
 *
 * pooled.c takes the ids and adds up. What it reads of the client's memory is checked each time it
 * is read: segments and ids once, the offset behind a bag again when the bag did not fit in any
 * more; pooled_turns.c has the rest. Thread: the home lane, but for wave_add_up(). */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/row_spot.h"
#include "daemon/engine/ops/waves.h"
#include "daemon/engine/rows/request.h"

/* Of one wave, at most. */
#define WAVE_IDS    4096
#define WAVE_BAGS   4096
#define WAVE_SLICES 64
#define WAVE_BYTES  (UINT32_C(1) << 20) /* of rows */
/* Of one that is likely to be added up where its rows lie. */
#define WAVE_HOT_IDS   512
#define WAVE_HOT_BYTES (UINT32_C(128) << 10)
/* And of one whose rows are found meanwhile. */
#define WAVE_SEARCH_IDS   2048
#define WAVE_SEARCH_BYTES (UINT32_C(512) << 10)
/* Waves until the next search, when one has not found all rows. */
#define WAVE_SEARCH_PAUSE 16
/* … and of bags, which may be many and empty; segments looked at, which may have none. */
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

/* A wave's share of a segment: bags first_bag … of which the first may have begun, and the last may
 * go on, in another wave. */
struct slice {
    uint32_t segment;
    uint32_t first_bag;
    uint32_t bag_count;
    uint32_t begun; /* rows of the first bag in earlier waves */
    uint32_t first; /* of the wave's ids */
    uint32_t id_count;
    bool goes_on;
    uint64_t ids_offset; /* in the client's arena */
    uint32_t *offsets; /* bag_count + 1, of the slice. What has been added up is cut off in front */
};

enum wave_state { WAVE_FREE, WAVE_LOOKED_UP, WAVE_READY, WAVE_GIVEN_OUT };

struct wave {
    struct request request; /* its segments are the slices, its rows go to staging */
    struct pooled *pooled;
    enum wave_state state;  /* home lane */
    uint64_t number;        /* of the lookup's waves */
    uint32_t segments_seen; /* while it was taken */
    uint32_t slice_count;
    uint32_t added_slices; /* of those in staging, as far as they are whole */
    struct slice *slices;
    const void **rows; /* by id of the wave */
    uint64_t *ids;     /* of a wave that is searched, WAVE_SEARCH_IDS at most; the others have them
                          in the request */
    float *weights;    /* by id; or NULL: the lookup has none */
    uint32_t *offsets;
    uint8_t *staging;
};

/* How large a lookup's waves are. */
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

    /* Where taking ids stands. */
    uint32_t segment;
    uint32_t bag;         /* of that segment */
    uint32_t id;          /* the next; of that segment */
    uint32_t begun;       /* rows of that bag that were taken */
    uint32_t bag_end;     /* where that bag ends, if begun > 0 */
    bool is_taken;        /* nothing is left to be taken, or will be */
    bool is_hot;          /* the last wave was added up where its rows lie */
    bool is_cached;       /* one lane: all rows were, of the last wave that was looked up */
    bool searches;        /* the next one is to be searched, it seems; set by the lane */
    uint64_t search_from; /* the number of the first wave that may be */

    struct waves waves;
    uint64_t next_number;
    struct ticket *ticket; /* that the client asked for, or NULL */
    uint64_t hit_rows;
    struct refusal refusal; /* the first error */
};

/* As begin() of struct op, which calls it. */
MUST_CHECK enum embtier_err pooled_begin(const struct request_rules *rules, struct session *session,
                                         uint32_t number, const struct shm_submission *submission,
                                         struct pooled **ret_pooled, struct refusal *ret_refusal);
/* A wave that is free, or NULL: there is none now. */
struct wave *pooled_free_wave(const struct request_rules *rules, struct pooled *pooled);
/* The wave is done with: free, or given back if no more are to come. */
void pooled_end_wave(const struct request_rules *rules, struct pooled *pooled, struct wave *wave);
/* Takes the next bags into a free wave, but for their ids: as many as cost about @most
 * (cost.h), to take, and of a lookup that is hot to add up as well. Any error: the lookup is
 * refused. Sets is_taken with the last ids; a wave without ids and bags is possible then. */
MUST_CHECK enum embtier_err pooled_take(struct pooled *pooled, struct wave *wave, uint64_t most,
                                        struct refusal *ret_refusal);
/* Makes a request of the wave that looks its rows up. Any error: as above. */
MUST_CHECK enum embtier_err pooled_take_ids(const struct request_rules *rules,
                                            struct pooled *pooled, struct wave *wave,
                                            struct refusal *ret_refusal);
/* Or, first, copies and checks all its ids; false: one is none of its table's, or the wave's first
 * bag began in an earlier one. */
MUST_CHECK bool pooled_copy_ids(const struct pooled *pooled, struct wave *wave);
/* And adds up the rows of slice @index while they are found by @where; false: not all are there.
 * Its bags, and winners, are then of no use and are written again: that is why none began before.
 */
MUST_CHECK bool pooled_search(struct pooled *pooled, struct wave *wave, uint32_t index,
                              const struct row_spots *where);
/* All slices were, so the ticket is told of them. */
void pooled_searched(struct pooled *pooled, const struct wave *wave);
/* The cost of taking a wave's bags and ids, and of adding its rows up. */
uint64_t pooled_taking_cost(const struct pooled *pooled, const struct wave *wave);
uint64_t pooled_adding_cost(const struct pooled *pooled, const struct wave *wave);
/* Whether @wave goes on with a bag that one before it has not added up yet. */
bool pooled_must_wait(const struct pooled *pooled, const struct wave *wave);
/* Answers the client, unless it is gone, and frees the lookup, but not its ticket; no wave is under
 * way. */
void pooled_free(const struct request_rules *rules, struct pooled *pooled);

/* ---- Any lane ---- */

/* Adds the wave's rows, which have been found, up into the client's bags. */
void wave_add_up(struct wave *wave);
/* The same of rows in staging: the next ones, for about @most, which *@ret_cost says. False: some
 * are left. */
bool wave_add_up_staged(struct wave *wave, uint64_t most, uint64_t *ret_cost);

#endif
