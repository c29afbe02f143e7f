/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/rows/write_queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/log/log.h"
#include "base/row_hash.h"
#include "base/system/thread_class.h"
#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/reserved.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/table.h"
#include "store/database/row_format.h"
#include "store/store.h"

#define ENTRY_ALIGN      16
#define BATCH_ROWS_MAX   1024
#define RETRY_FIRST_NS   (1000L * 1000)
#define RETRY_LONGEST_NS (500L * 1000 * 1000)
#define RING_BYTES_MIN   (256 * KIB)
#define RING_SLACK       CACHE_LINE /* behind the ring: a filler's head may be longer than the filler */
#define ROW_BYTES_TYPICAL                                                                          \
    256 /* sizes the buckets; smaller rows make chains longer, which is no error */

/* An entry in the ring, followed by its row. An entry never wraps: a filler (table NULL) takes the
 * rest of the ring. */
struct entry {
    struct table *table;
    uint64_t hash;
    uint64_t id;
    uint64_t older; /* position + 1 of the next entry of the bucket, 0: none */
    uint64_t bytes; /* of this entry in the ring, head and padding included */
};

/* The batch that the writer is working on. */
struct write_batch {
    struct store_row rows[BATCH_ROWS_MAX];
    uint32_t shards[BATCH_ROWS_MAX];
    bool synced[BATCH_ROWS_MAX];    /* the row's table is a `sync` table */
    uint32_t order[BATCH_ROWS_MAX]; /* row indexes in the order of writing */
    struct store_row sorted[BATCH_ROWS_MAX];
    uint32_t count;
    uint32_t to_sync[BATCH_ROWS_MAX]; /* shards whose logs have rows of `sync` tables */
    uint32_t sync_count;
};

/* A thread of the queue. */
struct stage {
    struct write_queue *queue;
    sem_t wake;
    pthread_t thread;
    bool has_wake;
    bool has_thread;
    _Atomic uint32_t err; /* of the failure that it is in and retries, or OK */
};

/* The rows that the writer has written and the syncer has yet to sync. */
struct unsynced {
    pthread_mutex_t lock;
    uint64_t end;     /* all rows before this position are written; 0: nothing to sync */
    uint32_t *shards; /* shards whose logs have some of these rows */
    uint32_t count;
    bool is_syncing; /* the syncer is busy with older rows */
};

struct write_queue {
    struct mailbox *lane;
    struct store *store;
    const struct row_routes *routes;
    uint8_t *ring;
    uint64_t ring_bytes; /* power of two */
    uint64_t *buckets;   /* position + 1 of the newest entry */
    uint64_t bucket_mask;
    struct write_batch *batch; /* writer */
    struct unsynced unsynced;
    uint32_t *syncing; /* syncer: shards */
    bool *unmarked;    /* syncer: synced shards whose logs do not say so yet */
    struct stage writer;
    struct stage syncer;

    /* The lane writes these. Positions count bytes since the beginning and never wrap. */
    _Alignas(CACHE_LINE) uint64_t head; /* the oldest entry not freed */
    _Atomic uint64_t tail;
    uint64_t rows; /* a counter */

    /* The writer and the syncer write these. */
    _Alignas(CACHE_LINE) _Atomic uint64_t written; /* rows before this are in RocksDB, and synced */
    uint64_t rows_written;                         /* a counter, of the writer */
    _Atomic uint64_t retries;

    /* All three threads write these, seldom. */
    _Alignas(CACHE_LINE) struct message message; /* message_written */
    _Atomic bool told;                           /* the message is in the lane's inbox */
    _Atomic bool writer_idle;
    _Atomic bool stopping;
};

_Static_assert(sizeof(struct write_batch) + RING_SLACK <= LANE_QUEUE_BYTES &&
                   RING_BYTES_MIN <= LANE_QUEUE_LEAST &&
                   sizeof(uint64_t) * LANE_QUEUE_INDEX <= ROW_BYTES_TYPICAL,
               "the configuration counts it");
_Static_assert(sizeof(struct entry) <= RING_SLACK, "a filler's head fits behind the ring");
/* Otherwise a long row might find no room in an empty ring, behind the filler that it needs, and
 * its session would wait forever. */
_Static_assert(2 * (sizeof(struct entry) + STORED_ROW_BYTES_MAX + ENTRY_ALIGN) <= RING_BYTES_MIN,
               "two of the longest rows fit into the shortest ring");

static struct entry *entry_at(const struct write_queue *queue, uint64_t position)
{
    return (struct entry *)(queue->ring + (position & (queue->ring_bytes - 1)));
}

/* ---- Both threads ---- */

static void stage_sleep(struct stage *stage, long ns)
{
    const struct timespec until = clock_until((uint64_t)ns);

    while (!atomic_load(&stage->queue->stopping) &&
           sem_clockwait(&stage->wake, CLOCK_MONOTONIC, &until) == 0)
        continue; /* new rows do not make a stalled store faster */
}

static void stage_wait(struct stage *stage)
{
    while (sem_wait(&stage->wake) != 0 && errno == EINTR)
        continue;
}

static void tell_lane(struct write_queue *queue)
{
    if (!atomic_exchange(&queue->told, true))
        mailbox_send(queue->lane, &queue->message);
}

/* Tells the lane that all rows before @position are written and, where needed, synced. */
static void publish(struct write_queue *queue, uint64_t position)
{
    assert(position > atomic_load_explicit(&queue->written, memory_order_relaxed));
    atomic_store_explicit(&queue->written, position, memory_order_release);
    tell_lane(queue);
}

/* A task for the store: to write rows of one shard, or to sync the logs of shards. */
struct task {
    const uint32_t *shards;
    const struct store_row *rows; /* NULL: sync */
    uint32_t count;               /* of rows, or of shards */
};

static enum embtier_err attempt(struct write_queue *queue, const struct task *task,
                                struct err_msg *msg)
{
    return task->rows
               ? store_write_back(queue->store, task->shards[0], task->rows, task->count, msg)
               : store_sync_logs(queue->store, task->shards, task->count, msg);
}

/* Retries the task until the store does it. False: the daemon ends first. */
static bool carry_out(struct stage *stage, const struct task *task)
{
    struct write_queue *const queue = stage->queue;
    const char *const what = task->rows ? "shard" : "shards";
    const uint32_t which = task->rows ? task->shards[0] : task->count;
    long pause_ns = RETRY_FIRST_NS;
    uint32_t logged = EMBTIER_OK;

    for (;;) {
        struct err_msg msg = { { 0 } };
        enum embtier_err err = attempt(queue, task, &msg);

        if (err == EMBTIER_OK) {
            if (logged)
                log_info("writes succeed again", "%s=%u", what, which);
            atomic_store_explicit(&stage->err, EMBTIER_OK, memory_order_relaxed);
            return true;
        }
        if (err != EMBTIER_BUSY && err != logged) {
            log_error(task->rows ? "rows cannot be written; they are kept, and the write is retried"
                                 : "logs cannot be synced; the sync is retried",
                      "%s=%u err=%s why=%s", what, which, err_name(err), LOG_QUOTED(msg.text));
            logged = err;
        }
        /* A stalled store may have a full disk, so only a successful write clears the error.
         * Sessions that wait on the lane for room must hear of it, since there will be none. */
        if (err != EMBTIER_BUSY && atomic_exchange(&stage->err, (uint32_t)err) != (uint32_t)err)
            tell_lane(queue);
        atomic_fetch_add_explicit(&queue->retries, 1, memory_order_relaxed);
        if (atomic_load(&queue->stopping))
            return false;
        stage_sleep(stage, pause_ns);
        pause_ns = MIN(pause_ns * 2, RETRY_LONGEST_NS);
    }
}

/* ---- Syncer thread ---- */

/* Takes over the rows to sync. False: there are none. */
static bool unsynced_take(struct write_queue *queue, uint64_t *ret_end, uint32_t *ret_count)
{
    struct unsynced *const unsynced = &queue->unsynced;

    pthread_mutex_lock(&unsynced->lock);
    *ret_end = unsynced->end;
    *ret_count = unsynced->count;
    unsynced->is_syncing = unsynced->end > 0;
    memcpy(queue->syncing, unsynced->shards, unsynced->count * sizeof(*unsynced->shards));
    unsynced->end = 0;
    unsynced->count = 0;
    pthread_mutex_unlock(&unsynced->lock);
    return *ret_end > 0;
}

/* Marks synced logs when there is nothing else to do. Under load, the writer's next batch marks
 * them. */
static void mark_synced(struct write_queue *queue)
{
    for (uint32_t shard = 0; shard < queue->routes->shard_count; shard++)
        if (queue->unmarked[shard]) {
            store_mark_log(queue->store, shard);
            queue->unmarked[shard] = false;
        }
}

/* Each sync covers all rows that came together during the one before: a group commit for all
 * clients of the lane. */
static void *syncer_main(void *context)
{
    struct stage *const stage = context;
    struct write_queue *const queue = stage->queue;
    uint64_t end;
    uint32_t count;

    thread_class_answering();
    while (!atomic_load(&queue->stopping)) {
        if (!unsynced_take(queue, &end, &count)) {
            mark_synced(queue);
            stage_wait(stage);
            continue;
        }
        if (count > 0 && !carry_out(stage, &(struct task){ queue->syncing, NULL, count }))
            break;
        publish(queue, end);
        for (uint32_t i = 0; i < count; i++)
            queue->unmarked[queue->syncing[i]] = true;
    }
    return NULL;
}

static void unsynced_add_shard(struct unsynced *unsynced, uint32_t shard)
{
    for (uint32_t i = 0; i < unsynced->count; i++)
        if (unsynced->shards[i] == shard)
            return;
    unsynced->shards[unsynced->count++] = shard;
}

/* True if the syncer must report the rows before @end as written. It must if the logs of @shards
 * need a sync first, or if something older does. */
static bool leave_to_syncer(struct write_queue *queue, const uint32_t *shards, uint32_t count,
                            uint64_t end)
{
    struct unsynced *const unsynced = &queue->unsynced;
    bool leaves, waits;

    pthread_mutex_lock(&unsynced->lock);
    assert(end > unsynced->end);
    waits = unsynced->end == 0 && !unsynced->is_syncing;
    leaves = count > 0 || !waits;
    for (uint32_t i = 0; i < count; i++)
        unsynced_add_shard(unsynced, shards[i]);
    if (leaves)
        unsynced->end = end;
    pthread_mutex_unlock(&unsynced->lock);
    if (leaves && waits)
        sem_post(&queue->syncer.wake);
    return leaves;
}

/* ---- Writer thread ---- */

/* Collects entries from @position on. Returns the position behind the last one. */
static uint64_t batch_collect(struct write_queue *queue, struct write_batch *batch,
                              uint64_t position)
{
    const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_acquire);

    batch->count = 0;
    while (position < tail && batch->count < BATCH_ROWS_MAX) {
        struct entry *entry = entry_at(queue, position);

        if (entry->table) {
            batch->shards[batch->count] = row_routes_shard(queue->routes, entry->hash);
            batch->synced[batch->count] = entry->table->spec.durability == EMBTIER_DURABILITY_SYNC;
            batch->rows[batch->count++] = (struct store_row){
                .table_id = atomic_load_explicit(&entry->table->table_id, memory_order_relaxed),
                .weight_bytes = entry->table->weight_bytes,
                .state_bytes = entry->table->state_bytes,
                .logged = entry->table->logged,
                .table_step = atomic_load_explicit(&entry->table->step, memory_order_relaxed),
                .id = entry->id,
                .bytes = entry + 1,
            };
        }
        assert(entry->bytes > 0);
        position += entry->bytes;
    }
    return position;
}

/* Orders the rows of a batch for writing. Rows of one database come together, in the order of their
 * keys, as in its memtable. The older of two versions of a row comes first. */
static int compare_rows(const void *a, const void *b, void *context)
{
    const struct write_batch *const batch = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct store_row *const x = &batch->rows[i], *const y = &batch->rows[j];

    if (batch->shards[i] != batch->shards[j])
        return batch->shards[i] < batch->shards[j] ? -1 : 1;
    if (x->logged != y->logged)
        return x->logged < y->logged ? -1 : 1;
    if (x->table_id != y->table_id)
        return x->table_id < y->table_id ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Writes the batch with one store_write() per shard and database. False: the daemon ends first. */
static bool batch_write(struct write_queue *queue, struct write_batch *batch)
{
    uint32_t end;

    batch->sync_count = 0;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->order[i] = i;
    qsort_r(batch->order, batch->count, sizeof(batch->order[0]), compare_rows, batch);
    for (uint32_t first = 0; first < batch->count; first = end) {
        const uint32_t shard = batch->shards[batch->order[first]];
        const bool logged = batch->rows[batch->order[first]].logged;
        bool synced = false;

        for (end = first; end < batch->count; end++) {
            const uint32_t i = batch->order[end];

            if (batch->shards[i] != shard || batch->rows[i].logged != logged)
                break;
            synced |= batch->synced[i];
            batch->sorted[end - first] = batch->rows[i];
        }
        if (!carry_out(&queue->writer, &(struct task){ &shard, batch->sorted, end - first }))
            return false;
        counter_add(&queue->rows_written, end - first);
        if (synced)
            batch->to_sync[batch->sync_count++] = shard;
    }
    return true;
}

static void *writer_main(void *context)
{
    struct stage *const stage = context;
    struct write_queue *const queue = stage->queue;
    struct write_batch *const batch = queue->batch;
    uint64_t position = 0;

    thread_class_answering();
    while (!atomic_load(&queue->stopping)) {
        const uint64_t next = batch_collect(queue, batch, position);

        if (next == position) {
            atomic_store(&queue->writer_idle, true);
            if (atomic_load(&queue->tail) == position)
                stage_wait(stage);
            atomic_store(&queue->writer_idle, false);
            continue;
        }
        if (!batch_write(queue, batch))
            break;
        position = next;
        if (!leave_to_syncer(queue, batch->to_sync, batch->sync_count, position))
            publish(queue, position);
    }
    return NULL;
}

/* ---- Lane ---- */

static uint64_t *bucket_of(const struct write_queue *queue, uint64_t hash)
{
    return &queue->buckets[hash & queue->bucket_mask];
}

static uint64_t power_of_two_down(uint64_t value)
{
    return UINT64_C(1) << (63 - __builtin_clzll(value));
}

static enum embtier_err stage_start(struct stage *stage, struct write_queue *queue,
                                    const char *name, void *(*run)(void *), struct err_msg *msg)
{
    int rc;

    stage->queue = queue;
    if (sem_init(&stage->wake, 0, 0) != 0)
        return err_set_errno(msg, errno, "write queue: semaphore");
    stage->has_wake = true;
    rc = pthread_create(&stage->thread, NULL, run, stage);
    if (rc != 0)
        return err_set_errno(msg, rc, "cannot start a thread of a write queue");
    pthread_setname_np(stage->thread, name);
    stage->has_thread = true;
    return EMBTIER_OK;
}

/* Ends the thread of a queue that is stopping. */
static void stage_end(struct stage *stage)
{
    if (stage->has_thread) {
        sem_post(&stage->wake);
        pthread_join(stage->thread, NULL);
    }
    if (stage->has_wake)
        sem_destroy(&stage->wake);
}

enum embtier_err write_queue_new(struct mailbox *lane, struct store *store,
                                 const struct row_routes *routes, uint64_t ring_bytes,
                                 struct write_queue **ret_queue, struct err_msg *msg)
{
    _cleanup_(write_queue_freep) struct write_queue *queue =
        aligned_alloc(CACHE_LINE, sizeof(*queue));
    const uint32_t shard_count = routes->shard_count;

    if (!queue)
        return err_set(msg, EMBTIER_NO_MEMORY, "write queue: out of memory");
    memset(queue, 0, sizeof(*queue));
    pthread_mutex_init(&queue->unsynced.lock, NULL);
    queue->lane = lane;
    queue->store = store;
    queue->routes = routes;
    queue->message.kind = &message_written;
    queue->ring_bytes = power_of_two_down(MAX(ring_bytes, RING_BYTES_MIN));
    queue->bucket_mask = queue->ring_bytes / ROW_BYTES_TYPICAL - 1;
    queue->ring = reserved_new(queue->ring_bytes + RING_SLACK);
    queue->buckets = reserved_new((queue->bucket_mask + 1) * sizeof(*queue->buckets));
    queue->batch = reserved_new(sizeof(*queue->batch));
    queue->unsynced.shards = calloc(shard_count, sizeof(*queue->unsynced.shards));
    queue->syncing = calloc(shard_count, sizeof(*queue->syncing));
    queue->unmarked = calloc(shard_count, sizeof(*queue->unmarked));
    if (!queue->ring || !queue->buckets || !queue->batch || !queue->unsynced.shards ||
        !queue->syncing || !queue->unmarked)
        return err_set(msg, EMBTIER_NO_MEMORY, "write queue: cannot reserve %llu bytes",
                       (unsigned long long)queue->ring_bytes);
    TRY(stage_start(&queue->writer, queue, "writer", writer_main, msg));
    TRY(stage_start(&queue->syncer, queue, "syncer", syncer_main, msg));
    *ret_queue = TAKE(queue);
    return EMBTIER_OK;
}

void write_queue_free(struct write_queue *queue)
{
    if (!queue)
        return;
    atomic_store(&queue->stopping, true);
    stage_end(&queue->writer); /* first, since it wakes the syncer */
    stage_end(&queue->syncer);
    reserved_free(queue->ring, queue->ring_bytes + RING_SLACK);
    reserved_free(queue->buckets, (queue->bucket_mask + 1) * sizeof(*queue->buckets));
    reserved_free(queue->batch, sizeof(*queue->batch));
    pthread_mutex_destroy(&queue->unsynced.lock);
    free(queue->unsynced.shards);
    free(queue->syncing);
    free(queue->unmarked);
    free(queue);
}

static uint64_t entry_bytes(const struct table *table)
{
    return align_up(sizeof(struct entry) + table->row_bytes, ENTRY_ALIGN);
}

/* True if there is room for @bytes in one piece at the tail, behind a filler of *@ret_filler if
 * need be. */
static bool has_room(const struct write_queue *queue, uint64_t bytes, uint64_t *ret_filler)
{
    const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    const uint64_t to_end = queue->ring_bytes - (tail & (queue->ring_bytes - 1));

    *ret_filler = to_end < bytes ? to_end : 0;
    return tail + *ret_filler + bytes - queue->head <= queue->ring_bytes;
}

/* Finds the place of an entry: in one piece, and behind all that the writer may be reading. */
static bool make_room(struct write_queue *queue, uint64_t bytes, uint64_t *ret_position)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    uint64_t filler;

    if (!has_room(queue, bytes, &filler))
        return false;
    if (filler) {
        struct entry *entry = entry_at(queue, tail); /* may reach into RING_SLACK */

        entry->table = NULL;
        entry->bytes = filler;
        tail += filler;
    }
    *ret_position = tail;
    return true;
}

bool write_queue_put(struct write_queue *queue, struct table *table, uint64_t hash, uint64_t id,
                     const void *row)
{
    const uint64_t bytes = entry_bytes(table);
    uint64_t *const bucket = bucket_of(queue, hash);
    uint64_t position;
    struct entry *entry;

    if (!make_room(queue, bytes, &position))
        return false;
    entry = entry_at(queue, position);
    *entry = (struct entry){
        .table = table,
        .hash = hash,
        .id = id,
        .older = *bucket,
        .bytes = bytes,
    };
    memcpy(entry + 1, row, table->row_bytes);
    *bucket = position + 1;
    counter_add(&queue->rows, 1);
    atomic_store(&queue->tail, position + bytes); /* seq_cst: stored before the idle flag is read */
    if (atomic_load(&queue->writer_idle) && atomic_exchange(&queue->writer_idle, false))
        sem_post(&queue->writer.wake);
    return true;
}

enum embtier_err write_queue_refusal(const struct write_queue *queue, const struct table *table)
{
    uint64_t filler;

    if (has_room(queue, entry_bytes(table), &filler))
        return EMBTIER_OK;
    return write_queue_failure(queue);
}

uint32_t write_queue_room(const struct write_queue *queue, const struct table *table)
{
    const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    const uint64_t free_bytes = queue->ring_bytes - (tail - queue->head);
    const uint64_t to_end = queue->ring_bytes - (tail & (queue->ring_bytes - 1));
    const uint64_t bytes = entry_bytes(table);
    const uint64_t rows =
        free_bytes <= to_end ? free_bytes / bytes : to_end / bytes + (free_bytes - to_end) / bytes;

    return (uint32_t)MIN(rows, (uint64_t)UINT32_MAX);
}

enum embtier_err write_queue_failure(const struct write_queue *queue)
{
    const uint32_t err = atomic_load_explicit(&queue->writer.err, memory_order_relaxed);

    return (enum embtier_err)(err ? err
                                  : atomic_load_explicit(&queue->syncer.err, memory_order_relaxed));
}

/* Entries are never unlinked: a chain ends at the first link to a position before the head. */
const void *write_queue_find(const struct write_queue *queue, uint16_t table, uint64_t hash,
                             uint64_t id)
{
    uint64_t link = *bucket_of(queue, hash);

    while (link > queue->head) {
        const struct entry *entry = entry_at(queue, link - 1);

        if (entry->hash == hash && entry->id == id && entry->table->index == table)
            return entry + 1;
        link = entry->older;
    }
    return NULL;
}

uint64_t write_queue_reap(struct write_queue *queue)
{
    uint64_t written;
    uint64_t rows = 0;

    /* Clears `told` before it reads `written`, so that a later advance sends again. This is an
     * exchange, not a store: it reads the value of the writer's exchange, and so sees everything
     * written before that. */
    (void)atomic_exchange(&queue->told, false);
    written = atomic_load_explicit(&queue->written, memory_order_acquire);
    while (queue->head < written) {
        const struct entry *entry = entry_at(queue, queue->head);

        assert(entry->bytes > 0);
        rows += entry->table != NULL;
        queue->head += entry->bytes;
    }
    assert(queue->head == written);
    counter_sub(&queue->rows, rows);
    return rows;
}

bool write_queue_goes_on(const struct write_queue *queue)
{
    return queue->head < atomic_load_explicit(&queue->tail, memory_order_relaxed) &&
           write_queue_failure(queue) == EMBTIER_OK;
}

uint64_t write_queue_mark(const struct write_queue *queue)
{
    return atomic_load_explicit(&queue->tail, memory_order_relaxed);
}

bool write_queue_passed(const struct write_queue *queue, uint64_t mark)
{
    return queue->head >= mark;
}

void write_queue_stats(const struct write_queue *queue, struct write_queue_stats *ret_stats)
{
    const uint64_t written = atomic_load_explicit(&queue->written, memory_order_relaxed);
    const uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);

    *ret_stats = (struct write_queue_stats){
        .rows = counter_get(&queue->rows),
        .bytes = tail > written ? tail - written : 0,
        .capacity_bytes = queue->ring_bytes,
        .rows_written = counter_get(&queue->rows_written),
        .retries = atomic_load_explicit(&queue->retries, memory_order_relaxed),
        .err = (uint32_t)write_queue_failure(queue),
    };
}
