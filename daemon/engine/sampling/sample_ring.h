/* SPDX-License-Identifier: Apache-2.0 */
/* sample_ring.h: a bounded ring of sampled lookups, from one lane to the profiling thread.
 *
 * It holds records: a head, then its samples. The lane never waits: a record that finds no room is
 * refused. Threads: one puts, one takes. */
#ifndef EMBTIER_DAEMON_ENGINE_SAMPLING_SAMPLE_RING_H
#define EMBTIER_DAEMON_ENGINE_SAMPLING_SAMPLE_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A row's lookups within a record, or one random lookup. */
struct sample {
    uint64_t hash;
    uint16_t first; /* place of the first lookup, from the record's time on */
    uint16_t last;
    uint32_t lookups; /* 0: a random lookup, at `first` */
};

/* The head of a record. */
struct sample_head {
    uint64_t time; /* of the first of the lookups that were looked through */
    uint32_t slot; /* of the table (sampler.h) */
    uint32_t batch;
    uint32_t count;        /* of samples */
    uint32_t pick_lookups; /* that a random lookup stands for */
    uint64_t unused;
};
static_assert(sizeof(struct sample) == 16 && sizeof(struct sample_head) == 32,
              "a head takes the room of two samples");

struct sample_ring;

/* @bytes: a power of two, 4 KiB at least; touched. */
MUST_CHECK enum embtier_err sample_ring_new(uint64_t bytes, struct sample_ring **ret_ring);
void sample_ring_free(struct sample_ring *ring);
DEFINE_CLEANUP(struct sample_ring, sample_ring_free)

/* ---- The lane ---- */

/* Returns which eighths of the ring are used, 0 to 8. */
uint32_t sample_ring_used_eighths(struct sample_ring *ring);
/* Puts a record. False: there is no room. */
bool sample_ring_put(struct sample_ring *ring, const struct sample_head *head,
                     const struct sample *samples);

/* ---- The profiling thread ---- */

/* Reads the oldest record's head. False: there is none. */
bool sample_ring_peek(struct sample_ring *ring, struct sample_head *ret_head);
/* Takes that record; @ret_samples has room for all of its samples. */
void sample_ring_take(struct sample_ring *ring, struct sample *ret_samples);

#endif
