/* SPDX-License-Identifier: Apache-2.0 */
/* write_queue.h: rows of one lane on their way to SSD: dirty ones that leave the cache, and those
 * of logged tables as soon as they have changed.
 *
 * A ring of bytes. The lane puts copies of rows in at the tail; the lane's writer thread takes them
 * from the front in order, many at a time, gives them to the store, and tells the lane, which then
 * frees them. Until then the lane finds and reads them here: a row that leaves the cache is never
 * nowhere. One writer and one order mean that of two versions of a row the later one is written
 * later. The logs of `sync` tables are synced by a thread of its own, the syncer, while the writer
 * writes the next rows: what has come together during one sync is synced by the next.
 *
 * When the store refuses (stalled, disk full, I/O error) the writer tries again, less and less
 * often, for as long as the daemon lives: a row in the queue is never given up. The queue then
 * fills, write_queue_put() refuses, dirty rows stay in the cache, and rows of logged tables as they
 * were.
 *
 * Thread: the lane, but for what writer and syncer do inside. The ring is shared without a lock:
 * the lane only writes behind `tail`, the writer only reads before it. */
#ifndef EMBTIER_DAEMON_ENGINE_ROWS_WRITE_QUEUE_H
#define EMBTIER_DAEMON_ENGINE_ROWS_WRITE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mailbox;
struct row_routes;
struct store;
struct table;
struct write_queue;

/* @ring_bytes is rounded down to a power of two, but never to less than two of the longest rows;
 * the index takes a thirty-second of it on top. */
MUST_CHECK enum embtier_err write_queue_new(struct mailbox *lane, struct store *store,
                                            const struct row_routes *routes, uint64_t ring_bytes,
                                            struct write_queue **ret_queue, struct err_msg *msg);
/* Ends the threads after what they are doing; rows still queued are lost, which the caller has
 * ruled out or logged. */
void write_queue_free(struct write_queue *queue);
DEFINE_CLEANUP(struct write_queue, write_queue_free)

/* Copies a row of table->row_bytes. False: full. The table stays until the queue has drained
 * (write_queue_mark). */
bool write_queue_put(struct write_queue *queue, struct table *table, uint64_t hash, uint64_t id,
                     const void *row);

/* Why write_queue_put() would refuse a row of @table and go on doing so: the store's error. OK if
 * there is room, or will be as soon as the writer has come that far. */
enum embtier_err write_queue_refusal(const struct write_queue *queue, const struct table *table);

/* How many rows of @table there is room for. */
uint32_t write_queue_room(const struct write_queue *queue, const struct table *table);
/* The failure that writer or syncer is in: it tries again and again. Rows that were put may be
 * written. */
enum embtier_err write_queue_failure(const struct write_queue *queue);

/* The newest queued version of a row, borrowed until the next call, or NULL. */
const void *write_queue_find(const struct write_queue *queue, uint16_t table, uint64_t hash,
                             uint64_t id);

/* The lane, on MESSAGE_WRITTEN: frees what has been written; returns how many rows that were. */
uint64_t write_queue_reap(struct write_queue *queue);
/* Whether the lane will hear of a MESSAGE_WRITTEN yet: rows are queued and the store takes them. */
bool write_queue_goes_on(const struct write_queue *queue);

/* Where the tail is now, and whether everything before that has been written. */
uint64_t write_queue_mark(const struct write_queue *queue);
bool write_queue_passed(const struct write_queue *queue, uint64_t mark);

struct write_queue_stats {
    uint64_t rows; /* queued now */
    uint64_t bytes;
    uint64_t capacity_bytes;
    uint64_t rows_written;
    uint64_t retries; /* of the store, because it was stalled or failed */
    uint32_t err; /* enum embtier_err of the failure that the writer or the syncer is in, or 0 */
};
/* Any thread. */
void write_queue_stats(const struct write_queue *queue, struct write_queue_stats *ret_stats);

#endif
