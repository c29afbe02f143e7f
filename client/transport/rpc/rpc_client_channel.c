/* SPDX-License-Identifier: Apache-2.0 */
/* The channel of a session over a connection: a region of the client's own memory. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "client/transport/rpc/rpc_connection.h"

#define NS_PER_MS UINT64_C(1000000)
/* The client's bytes begin behind it, as in the server's half. */
#define PAYLOAD_OFFSET OP_ALIGN

/* The spans that the answer to a request, or to a READ, brings. */
struct wanted {
    uint64_t *spans;
    size_t numbers, room;
};

/* A connection of the session. */
struct stream {
    struct rpc_sink sink;
    struct rpc_client_channel *channel;
    struct rpc_connection *connection; /* NULL: it was closed */

    /* The answer whose payload is arriving. */
    uint32_t arriving;
    Embtier__RpcDone *done; /* NULL: it is DATA */
};

struct rpc_client_channel {
    struct client_channel base;
    struct stream streams[ADDRESS_CONNECTIONS_MAX]; /* the first is the control socket's, too */
    uint32_t stream_count;
    uint64_t timeout_ns; /* of get(); UINT64_MAX: none */
    struct op_completion *completions;
    struct wanted *wanted; /* of each slot */
    struct wanted data;    /* of the READ that is under way */
    bool has_data;
    struct span_list sent_list, wanted_list;
    uint32_t tail;
};

static struct rpc_client_channel *rpc_of(struct client_channel *channel)
{
    return CONTAINER_OF(channel, struct rpc_client_channel, base);
}

static struct stream *stream_of(struct rpc_sink *sink)
{
    return CONTAINER_OF(sink, struct stream, sink);
}

/* Calls, and bytes that these name, go over the first connection. */
static struct rpc_connection *first_of(const struct rpc_client_channel *rpc)
{
    return rpc->streams[0].connection;
}

/* A slot stays with one connection, so that the server has sent the last answer there when the next
 * request comes. */
static struct rpc_connection *connection_of(const struct rpc_client_channel *rpc, uint32_t number)
{
    return rpc->streams[number % rpc->base.slot_count % rpc->stream_count].connection;
}

/* ---- Answers ---- */

static enum embtier_err begin_done(struct stream *stream, const struct rpc_head *head,
                                   const uint8_t *message, const uint64_t **ret_spans,
                                   size_t *ret_numbers, struct err_msg *msg)
{
    struct rpc_client_channel *const rpc = stream->channel;
    const struct wanted *const wanted = &rpc->wanted[head->number % rpc->base.slot_count];
    const struct op_completion *const before = client_channel_completion(&rpc->base, head->number);

    if (rpc->tail - head->number - 1 >= rpc->base.slot_count ||
        client_channel_sequence(before) == head->number + 1)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "the server answered request %" PRIu32 ", which is not under way",
                       head->number);
    /* An answer that came over two connections at a time would end twice. */
    if (connection_of(rpc, head->number) != stream->connection)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "the server answered request %" PRIu32 " over another connection",
                       head->number);
    TRY(rpc_decode_done(message, head->message_bytes, &stream->done, msg));
    stream->arriving = head->number;
    *ret_spans = wanted->spans;
    *ret_numbers = stream->done->err == EMBTIER_OK ? wanted->numbers : 0;
    return EMBTIER_OK;
}

static enum embtier_err begin_data(const struct stream *stream, const uint64_t **ret_spans,
                                   size_t *ret_numbers, struct err_msg *msg)
{
    const struct rpc_client_channel *const rpc = stream->channel;

    if (rpc->data.numbers == 0 || rpc->has_data || stream != rpc->streams)
        return err_set(msg, EMBTIER_PROTOCOL, "the server sent bytes that nobody asked for");
    *ret_spans = rpc->data.spans;
    *ret_numbers = rpc->data.numbers;
    return EMBTIER_OK;
}

static enum embtier_err begin_answer(struct rpc_sink *sink, const struct rpc_head *head,
                                     const uint8_t *message, const uint64_t **ret_spans,
                                     size_t *ret_numbers, struct err_msg *msg)
{
    struct stream *const stream = stream_of(sink);

    if (head->kind == RPC_DONE)
        TRY(begin_done(stream, head, message, ret_spans, ret_numbers, msg));
    else
        TRY(begin_data(stream, ret_spans, ret_numbers, msg));
    if (rpc_spans_bytes(*ret_spans, *ret_numbers) == head->payload_bytes)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PROTOCOL,
                   "the server sent %" PRIu64 " bytes with an answer, expected %" PRIu64,
                   head->payload_bytes, rpc_spans_bytes(*ret_spans, *ret_numbers));
}

static void end_answer(struct rpc_sink *sink)
{
    struct stream *const stream = stream_of(sink);
    struct rpc_client_channel *const rpc = stream->channel;
    struct op_completion *const completion =
        &rpc->completions[stream->arriving % rpc->base.slot_count];
    Embtier__RpcDone *const done = TAKE(stream->done);

    if (!done) {
        rpc->has_data = true;
        return;
    }
    completion->err = done->err;
    completion->segment = done->segment - 1;
    completion->field = done->field;
    completion->value = done->value;
    completion->limit = done->limit;
    completion->hit_rows = done->hit_rows;
    completion->ticket = done->ticket;
    embtier__rpc_done__free_unpacked(done, NULL);
    atomic_store_explicit(&completion->sequence, stream->arriving + 1, memory_order_release);
}

/* ---- The channel's functions ---- */

static uint64_t deadline_of(const struct rpc_client_channel *rpc)
{
    return rpc->timeout_ns == UINT64_MAX ? UINT64_MAX
                                         : clock_now_ns(&clock_monotonic) + rpc->timeout_ns;
}

static bool keep(struct wanted *wanted, const struct span_list *list)
{
    if (list->count > wanted->room) {
        uint64_t *const larger = realloc(wanted->spans, list->count * sizeof(uint64_t));

        if (!larger)
            return false;
        wanted->spans = larger;
        wanted->room = list->count;
    }
    if (list->count > 0)
        memcpy(wanted->spans, list->numbers, list->count * sizeof(uint64_t));
    wanted->numbers = list->count;
    return true;
}

/* Sends a frame with a message, and the bytes of @sent. */
static enum embtier_err send(struct rpc_connection *connection, enum rpc_kind kind, uint32_t number,
                             const ProtobufCMessage *message, const struct span_list *sent,
                             struct err_msg *msg)
{
    const size_t count = protobuf_c_message_get_packed_size(message);
    _cleanup_(freep) uint8_t *bytes = malloc(RPC_HEAD_BYTES + count);
    const struct rpc_head head = { .kind = (uint8_t)kind,
                                   .number = number,
                                   .message_bytes = (uint32_t)count,
                                   .payload_bytes = narrow_spans_payload(
                                       &sent->narrow, sent->numbers, sent->count) };

    if (!connection)
        return err_set(msg, EMBTIER_DISCONNECTED, "the connection is closed");
    if (!bytes)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    protobuf_c_message_pack(message, bytes + RPC_HEAD_BYTES);
    return rpc_connection_send(connection, &head, bytes, sent, msg);
}

static enum embtier_err submit(struct client_channel *channel, uint32_t number,
                               const struct op_submission *submission, struct err_msg *msg)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);
    Embtier__RpcSubmit message = EMBTIER__RPC_SUBMIT__INIT;
    uint32_t narrow[RPC_SPANS_MAX];

    if (!keep(&rpc->wanted[number % channel->slot_count], &rpc->wanted_list))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    message.op = submission->op;
    message.flags = submission->flags;
    message.segment_count = submission->segment_count;
    message.segments_offset = submission->segments_offset;
    message.step = submission->step;
    message.ticket = submission->ticket;
    message.prefetch = submission->prefetch;
    message.group = submission->group;
    message.sent = rpc->sent_list.numbers;
    message.n_sent = rpc->sent_list.count;
    message.narrow = narrow;
    message.n_narrow = narrow_spans_write(&rpc->sent_list.narrow, rpc->sent_list.count / 2, narrow);
    message.wanted = rpc->wanted_list.numbers;
    message.n_wanted = rpc->wanted_list.count;
    rpc->tail = number + 1;
    return send(connection_of(rpc, number), RPC_SUBMIT, number, &message.base, &rpc->sent_list,
                msg);
}

/* ---- Waiting ---- */

/* Sends what has waited, and receives all that has come. The next check of the channel tells of
 * the connection's end. */
static void serve(const struct stream *stream)
{
    struct err_msg ignored;

    while (stream->connection && rpc_connection_receive(stream->connection, &ignored) == EMBTIER_OK)
        continue;
}

static void look(struct client_channel *channel)
{
    const struct rpc_client_channel *const rpc = rpc_of(channel);

    for (uint32_t i = 0; i < rpc->stream_count; i++)
        serve(&rpc->streams[i]);
}

/* A connection that is over would end each poll at once. */
static struct pollfd poll_of(const struct stream *stream)
{
    const struct rpc_connection *const connection = stream->connection;

    if (!connection || rpc_connection_is_over(connection))
        return (struct pollfd){ .fd = -1 };
    return (struct pollfd){ .fd = rpc_connection_fd(connection),
                            .events = rpc_connection_events(connection) };
}

/* Polls all connections, and tells of each in @ret_at. */
static int poll_all(const struct rpc_client_channel *rpc, int wait_ms, struct pollfd *ret_at)
{
    for (uint32_t i = 0; i < rpc->stream_count; i++)
        ret_at[i] = poll_of(&rpc->streams[i]);
    return poll(ret_at, rpc->stream_count, wait_ms);
}

static int wait_on(struct rpc_sink *sink, int wait_ms)
{
    const struct stream *const own = stream_of(sink);
    const struct rpc_client_channel *const rpc = own->channel;
    struct pollfd at[ADDRESS_CONNECTIONS_MAX];
    const int ready = poll_all(rpc, wait_ms, at);

    for (uint32_t i = 0; i < rpc->stream_count && ready > 0; i++)
        if (at[i].revents != 0 && &rpc->streams[i] != own)
            serve(&rpc->streams[i]);
    return ready;
}

static void sleep_on(struct client_channel *channel, const struct op_completion *completion,
                     uint32_t seen, uint64_t timeout_ns)
{
    const struct rpc_client_channel *const rpc = rpc_of(channel);
    struct pollfd at[ADDRESS_CONNECTIONS_MAX];

    if (client_channel_sequence(completion) != seen)
        return;
    (void)poll_all(rpc, (int)MIN(div_round_up(timeout_ns, NS_PER_MS), (uint64_t)INT32_MAX), at);
    look(channel);
}

/* All connections end together, and the server says why on one of them. */
static enum embtier_err ended(const struct client_channel *channel, struct err_msg *msg)
{
    const struct rpc_client_channel *const rpc =
        CONTAINER_OF(channel, const struct rpc_client_channel, base);
    enum embtier_err err = EMBTIER_OK;

    for (uint32_t i = 0; i < rpc->stream_count; i++)
        if (rpc->streams[i].connection && (err == EMBTIER_OK || err == EMBTIER_DISCONNECTED) &&
            rpc_connection_is_over(rpc->streams[i].connection))
            err = rpc_connection_ended(rpc->streams[i].connection, msg);
    return err;
}

/* Returns the bytes that each id of a WRITE has in its payload. */
static uint32_t width_of(const struct client_channel *channel, uint64_t offset, uint64_t bytes)
{
    const uint64_t *const ids = (const uint64_t *)(const void *)(channel->region + offset);

    return channel->takes_narrow_ids ? narrow_ids_width(ids, bytes / sizeof(*ids)) : ID_WIDTH;
}

static enum embtier_err put(struct client_channel *channel, uint64_t offset, uint64_t bytes,
                            bool are_ids, struct err_msg *msg)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);
    Embtier__RpcWrite message = EMBTIER__RPC_WRITE__INIT;
    struct span_list *const list = &rpc->sent_list;
    uint32_t narrow[RPC_SPANS_MAX];

    if (bytes == 0)
        return EMBTIER_OK;
    list->numbers[0] = offset;
    list->numbers[1] = bytes;
    list->count = 2;
    narrow_spans_set(&list->narrow, 0, are_ids ? width_of(channel, offset, bytes) : ID_WIDTH);
    message.sent = list->numbers;
    message.n_sent = list->count;
    message.narrow = narrow;
    message.n_narrow = narrow_spans_write(&list->narrow, 1, narrow);
    return send(first_of(rpc), RPC_WRITE, 0, &message.base, list, msg);
}

static enum embtier_err wait_for_data(struct rpc_client_channel *rpc, struct err_msg *msg)
{
    uint64_t deadline_ns = deadline_of(rpc);

    while (!rpc->has_data) {
        const enum embtier_err err = rpc_connection_receive(first_of(rpc), msg);
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);

        if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
            return err;
        if (err == EMBTIER_OK) /* something has come */
            deadline_ns = deadline_of(rpc);
        else if (now_ns >= deadline_ns)
            return err_set(msg, EMBTIER_TIMEOUT, "the server did not send the rows in time");
        if (err == EMBTIER_AGAIN && !rpc->has_data)
            (void)rpc_connection_wait(first_of(rpc), 100);
    }
    return EMBTIER_OK;
}

static enum embtier_err get(struct client_channel *channel, uint64_t offset, uint64_t bytes,
                            struct err_msg *msg)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);
    const struct span_list nothing = { .count = 0 };
    Embtier__RpcRead message = EMBTIER__RPC_READ__INIT;
    enum embtier_err err;

    if (bytes == 0)
        return EMBTIER_OK;
    rpc->wanted_list.numbers[0] = offset;
    rpc->wanted_list.numbers[1] = bytes;
    rpc->wanted_list.count = 2;
    if (!keep(&rpc->data, &rpc->wanted_list))
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    rpc->has_data = false;
    message.wanted = rpc->wanted_list.numbers;
    message.n_wanted = rpc->wanted_list.count;
    err = send(first_of(rpc), RPC_READ, 0, &message.base, &nothing, msg);
    if (err == EMBTIER_OK)
        err = wait_for_data(rpc, msg);
    if (err == EMBTIER_OK)
        rpc->data.numbers = 0;
    return err;
}

/* The control socket frees the first connection. */
static void leave_streams(struct rpc_client_channel *rpc)
{
    if (rpc->streams[0].connection)
        rpc_connection_set_sink(rpc->streams[0].connection, NULL);
    for (uint32_t i = 1; i < rpc->stream_count; i++)
        rpc_connection_free(rpc->streams[i].connection);
    for (uint32_t i = 0; i < rpc->stream_count; i++)
        embtier__rpc_done__free_unpacked(rpc->streams[i].done, NULL);
}

static void free_channel(struct client_channel *channel)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);

    leave_streams(rpc);
    for (uint32_t i = 0; rpc->wanted && i < channel->slot_count; i++)
        free(rpc->wanted[i].spans);
    free(rpc->wanted);
    free(rpc->data.spans);
    free(rpc->completions);
    free(rpc);
}

/* The session ends with its first connection. */
static void lose_connection(struct rpc_sink *sink)
{
    struct stream *const stream = stream_of(sink);
    struct rpc_client_channel *const rpc = stream->channel;

    stream->connection = NULL;
    for (uint32_t i = 1; i < rpc->stream_count && stream == rpc->streams; i++)
        rpc_connection_free(rpc->streams[i].connection);
}

/* The region has moved. */
static void moved(struct client_channel *channel)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);

    for (uint32_t i = 0; i < rpc->stream_count; i++)
        rpc->streams[i].sink.region = channel->region;
}

static const struct client_channel_ops rpc_channel_ops = {
    .submit = submit,
    .look = look,
    .sleep = sleep_on,
    .ended = ended,
    .put = put,
    .get = get,
    .moved = moved,
    .free = free_channel,
};

void rpc_channel_add(struct client_channel *channel, struct rpc_connection *connection)
{
    struct rpc_client_channel *const rpc = rpc_of(channel);
    struct stream *const stream = &rpc->streams[rpc->stream_count++];

    assert(rpc->stream_count <= ADDRESS_CONNECTIONS_MAX);
    stream->sink = (struct rpc_sink){ .begin = begin_answer,
                                      .end = end_answer,
                                      .wait = wait_on,
                                      .lose = lose_connection,
                                      .region = channel->region };
    stream->channel = rpc;
    stream->connection = connection;
    rpc_connection_set_sink(connection, &stream->sink);
}

enum embtier_err rpc_channel_open(struct rpc_connection *connection,
                                  const Embtier__HelloReply *hello, uint64_t region_bytes_max,
                                  uint64_t timeout_ns, struct client_channel **ret_channel,
                                  struct err_msg *msg)
{
    _cleanup_(client_channel_freep) struct client_channel *channel = NULL;
    struct rpc_client_channel *const rpc = calloc(1, sizeof(*rpc));
    void *region;

    if (!rpc)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    channel = &rpc->base;
    rpc->base = (struct client_channel){
        .ops = &rpc_channel_ops,
        .region_bytes = MIN(hello->arena_bytes, region_bytes_max),
        .payload = PAYLOAD_OFFSET,
        .slot_count = hello->slot_count,
        .sent = &rpc->sent_list,
        .wanted = &rpc->wanted_list,
        .takes_narrow_ids = hello->narrow_ids,
    };
    if (hello->slot_count == 0 || hello->slot_count > OP_SLOTS_MAX ||
        channel->region_bytes <= PAYLOAD_OFFSET)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "the server gave %" PRIu32 " slots and a region of %" PRIu64 " bytes",
                       hello->slot_count, channel->region_bytes);
    rpc->timeout_ns = timeout_ns;
    rpc->completions = calloc(hello->slot_count, sizeof(*rpc->completions));
    rpc->wanted = calloc(hello->slot_count, sizeof(*rpc->wanted));
    channel->completions = rpc->completions;
    if (!rpc->completions || !rpc->wanted)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    region = mmap(NULL, channel->region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    if (region == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot have %" PRIu64 " bytes for batches",
                             channel->region_bytes);
    channel->region = region;
    rpc_channel_add(channel, connection);
    *ret_channel = TAKE(channel);
    return EMBTIER_OK;
}
