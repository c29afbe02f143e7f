/* SPDX-License-Identifier: Apache-2.0 */
/* write_queue.h: the rows of one lane on their way to SSD. They are dirty rows that leave the
 * cache, and rows of logged tables as soon as they have changed.
 *
 * The queue is a ring of bytes. The lane puts copies of rows in at the tail. The lane's writer
 * thread takes them from the front in order, many at a time, and gives them to the store. It then
 * tells the lane, which frees them. Until then the lane finds and reads them here, so a row that
 * leaves the cache can always be found. One writer and one order mean that the later of two
 * versions of a row is written later. A separate thread, the syncer, syncs the logs of `sync`
 * tables while the writer writes the next rows. Rows that come together during one sync are synced
 * by the next.
 *
 * When the store refuses (stalled, disk full, I/O error), the writer retries less and less often.
 * It does so for as long as the daemon lives: a row in the queue is never given up. The queue then
 * fills, and write_queue_put() refuses. Dirty rows stay in the cache, and rows of logged tables
 * stay unchanged.
 *
 * Thread: the lane, except inside writer and syncer. The ring is shared without a lock: the lane
 * only writes behind `tail`, the writer only reads before it. */
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

/* @ring_bytes is rounded down to a power of two, but to no less than two of the longest rows. The
 * index takes a thirty-second of it on top. */
MUST_CHECK enum embtier_err write_queue_new(struct mailbox *lane, struct store *store,
                                            const struct row_routes *routes, uint64_t ring_bytes,
                                            struct write_queue **ret_queue, struct err_msg *msg);
/* Ends the threads after their current work. Rows still queued are lost, which the caller has ruled
 * out or logged. */
void write_queue_free(struct write_queue *queue);
DEFINE_CLEANUP(struct write_queue, write_queue_free)

/* Copies a row of table->row_bytes into the queue. False: full. The table must stay until the queue
 * has drained (write_queue_mark). */
bool write_queue_put(struct write_queue *queue, struct table *table, uint64_t hash, uint64_t id,
                     const void *row);

/* Returns the store's error if write_queue_put() would refuse a row of @table and go on doing so.
 * OK: there is room, or will be as soon as the writer has come that far. */
enum embtier_err write_queue_refusal(const struct write_queue *queue, const struct table *table);

/* Returns how many rows of @table there is room for. */
uint32_t write_queue_room(const struct write_queue *queue, const struct table *table);
/* Returns the failure that the writer or the syncer is in and retries. Rows already put may still
 * be written. */
enum embtier_err write_queue_failure(const struct write_queue *queue);

/* Returns the newest queued version of a row, borrowed until the next call, or NULL. */
const void *write_queue_find(const struct write_queue *queue, uint16_t table, uint64_t hash,
                             uint64_t id);

/* Rows have reached the store, or it takes none. row_reads.c */
extern const struct message_kind message_written;

/* Frees rows that have been written, and returns how many. The lane calls it on message_written. */
uint64_t write_queue_reap(struct write_queue *queue);
/* True if the lane can expect another message_written: rows are queued and the store takes them. */
bool write_queue_goes_on(const struct write_queue *queue);

/* mark() returns the position of the tail. passed() is true if everything before @mark has been
 * written and freed. */
uint64_t write_queue_mark(const struct write_queue *queue);
bool write_queue_passed(const struct write_queue *queue, uint64_t mark);

struct write_queue_stats {
    uint64_t rows; /* queued now */
    uint64_t bytes;
    uint64_t capacity_bytes;
    uint64_t rows_written;
    uint64_t retries; /* failed calls of the store, because it was stalled or broken */
    uint32_t err; /* enum embtier_err of the failure that the writer or the syncer is in, or 0 */
};
/* Any thread may call it. */
void write_queue_stats(const struct write_queue *queue, struct write_queue_stats *ret_stats);

#endif
