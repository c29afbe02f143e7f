/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that come from a client. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"
#include "proto/control.pb-c.h"

/* ---- Refusals ---- */

static void refusal_sent(struct rpc_output *output)
{
    struct rpc_stream *const stream = CONTAINER_OF(output, struct rpc_stream, refusal_output);

    free(TAKE(stream->refusal));
    if (!stream->is_ending)
        rpc_receive(stream);
}

/* Tells the client of a mistake. Without memory for that it is not told. */
static void refuse(struct rpc_stream *stream, uint32_t number, enum embtier_err err,
                   const struct err_msg *msg)
{
    struct rpc_head head = { .kind = RPC_REFUSED, .number = number };
    Embtier__Error error = EMBTIER__ERROR__INIT;
    size_t count;

    if (stream->refusal) /* it ends the stream */
        return;
    error.err = (uint32_t)err;
    error.message = (char *)(uintptr_t)(msg->text[0] ? msg->text : err_text(err));
    count = embtier__error__get_packed_size(&error);
    stream->refusal = malloc(RPC_HEAD_BYTES + count);
    if (!stream->refusal)
        return;
    head.message_bytes = (uint32_t)count;
    rpc_head_encode(&head, stream->refusal);
    embtier__error__pack(&error, stream->refusal + RPC_HEAD_BYTES);
    stream->refusal_output = (struct rpc_output){ .sent = refusal_sent,
                                                  .more = stream->refusal,
                                                  .more_bytes = RPC_HEAD_BYTES + count };
    rpc_stream_add(stream, &stream->refusal_output);
}

/* The control thread hears only that the client has gone. */
static void warn(const struct rpc_stream *stream, enum embtier_err err, const struct err_msg *msg)
{
    if (stream->host->warnings++ < RPC_WARNINGS_MAX)
        log_warn("client over RPC dropped", "%s err=%s why=%s",
                 rpc_stream_origin(stream, &(struct peer_origin){ { 0 } }), err_name(err),
                 LOG_QUOTED(msg->text[0] ? msg->text : err_text(err)));
}

void rpc_receive_break_off(struct rpc_stream *stream, enum embtier_err err,
                           const struct err_msg *msg)
{
    warn(stream, err, msg);
    refuse(stream, stream->arrival.head.number, err, msg);
    rpc_stream_end(stream);
}

/* ---- Heads and messages ---- */

static size_t in_bytes(const struct rpc_stream *stream)
{
    return stream->in_end - stream->in_at;
}

/* Skips a frame of a kind that this version does not know. */
static void skip(struct rpc_stream *stream)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    struct err_msg msg = { { 0 } };

    (void)err_set(&msg, EMBTIER_UNSUPPORTED, "frames of kind %u are not known here",
                  arrival->head.kind);
    refuse(stream, arrival->head.number, EMBTIER_UNSUPPORTED, &msg);
    arrival->step = RPC_STEP_SKIP;
    arrival->bytes_left = arrival->head.message_bytes + arrival->head.payload_bytes;
}

static bool is_for_channel(uint8_t kind)
{
    return kind == RPC_SUBMIT || kind == RPC_WRITE || kind == RPC_READ;
}

/* A call goes to the control thread as it comes. Other messages are kept until they are complete.
 */
static enum embtier_err expect_message(struct rpc_stream *stream, struct err_msg *msg)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    const uint32_t bytes = arrival->head.message_bytes;

    if (arrival->head.kind == RPC_CALL) {
        rpc_relay_begin(stream, bytes);
        arrival->bytes_left = bytes;
        arrival->step = RPC_STEP_CALL;
        return EMBTIER_OK;
    }
    if (bytes > RPC_REQUEST_BYTES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "a message of %" PRIu32 " bytes in a frame of kind %u, allowed: %" PRIu32,
                       bytes, arrival->head.kind, RPC_REQUEST_BYTES_MAX);
    arrival->step = RPC_STEP_MESSAGE;
    return EMBTIER_OK;
}

static enum embtier_err take_head(struct rpc_stream *stream, struct err_msg *msg)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    const struct rpc_head *const head = &arrival->head;

    if (in_bytes(stream) < RPC_HEAD_BYTES)
        return EMBTIER_AGAIN;
    arrival->head = (struct rpc_head){ 0 }; /* a refusal of this head has no number */
    TRY(rpc_head_decode(stream->in + stream->in_at, RPC_MESSAGE_BYTES_MAX, &arrival->head, msg));
    stream->in_at += RPC_HEAD_BYTES;
    if (is_for_channel(head->kind) && !stream->channel)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "a frame of kind %u came before the answer to a hello with a region",
                       head->kind);
    if (!is_for_channel(head->kind) && head->kind != RPC_CALL) {
        skip(stream);
        return EMBTIER_OK;
    }
    if (head->message_bytes == 0 || (head->kind == RPC_CALL && head->payload_bytes != 0))
        return err_set(msg, EMBTIER_PROTOCOL,
                       "a frame of kind %u with a message of %" PRIu32 " and a payload of %" PRIu64
                       " bytes",
                       head->kind, head->message_bytes, head->payload_bytes);
    return expect_message(stream, msg);
}

/* Copies the spans, so that the message can be freed before the payload comes. */
static enum embtier_err expect_payload(struct rpc_arrival *arrival, const uint64_t *spans,
                                       size_t count, const struct narrow_spans *narrow,
                                       struct err_msg *msg)
{
    assert(!arrival->spans);
    arrival->spans = malloc(MAX(count, (size_t)1) * sizeof(uint64_t));
    if (!arrival->spans)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (count > 0)
        memcpy(arrival->spans, spans, count * sizeof(uint64_t));
    arrival->narrow = *narrow;
    arrival->span_numbers = count;
    arrival->span_at = 0;
    arrival->span_done = 0;
    arrival->bytes_left = arrival->head.payload_bytes;
    arrival->step = RPC_STEP_PAYLOAD;
    return EMBTIER_OK;
}

static void free_submit(Embtier__RpcSubmit *submit)
{
    embtier__rpc_submit__free_unpacked(submit, NULL);
}
DEFINE_CLEANUP(Embtier__RpcSubmit, free_submit)

static void free_write(Embtier__RpcWrite *write)
{
    embtier__rpc_write__free_unpacked(write, NULL);
}
DEFINE_CLEANUP(Embtier__RpcWrite, free_write)

static void free_read(Embtier__RpcRead *read)
{
    embtier__rpc_read__free_unpacked(read, NULL);
}
DEFINE_CLEANUP(Embtier__RpcRead, free_read)

static enum embtier_err take_submit(struct rpc_stream *stream, const uint8_t *message,
                                    struct err_msg *msg)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    _cleanup_(free_submitp) Embtier__RpcSubmit *submit = NULL;
    struct narrow_spans narrow;

    TRY(rpc_decode_submit(message, arrival->head.message_bytes, arrival->head.payload_bytes,
                          &submit, &narrow, msg));
    TRY(rpc_channel_begin(stream->channel, &stream->peer, arrival->head.number, submit,
                          &arrival->slot, msg));
    return expect_payload(arrival, submit->sent, submit->n_sent, &narrow, msg);
}

static enum embtier_err take_write(struct rpc_stream *stream, const uint8_t *message,
                                   struct err_msg *msg)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    _cleanup_(free_writep) Embtier__RpcWrite *write = NULL;
    struct narrow_spans narrow;

    TRY(rpc_decode_write(message, arrival->head.message_bytes, arrival->head.payload_bytes, &write,
                         &narrow, msg));
    TRY(rpc_channel_check_spans(stream->channel, write->sent, write->n_sent, msg));
    return expect_payload(arrival, write->sent, write->n_sent, &narrow, msg);
}

static void data_sent(struct rpc_output *output)
{
    struct rpc_stream *const stream = CONTAINER_OF(output, struct rpc_stream, data_output);

    free_read(TAKE(stream->read));
    if (!stream->is_ending)
        rpc_receive(stream);
}

static enum embtier_err take_read(struct rpc_stream *stream, const uint8_t *message,
                                  struct err_msg *msg)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    struct rpc_output *const output = &stream->data_output;
    struct rpc_head head = { .kind = RPC_DATA, .number = arrival->head.number };
    _cleanup_(free_readp) Embtier__RpcRead *read = NULL;

    assert(!stream->read);
    TRY(rpc_decode_read(message, arrival->head.message_bytes, arrival->head.payload_bytes, &read,
                        msg));
    TRY(rpc_channel_check_spans(stream->channel, read->wanted, read->n_wanted, msg));
    stream->read = TAKE(read);
    head.payload_bytes = rpc_spans_bytes(stream->read->wanted, stream->read->n_wanted);
    *output = (struct rpc_output){ .sent = data_sent,
                                   .byte_count = RPC_HEAD_BYTES,
                                   .region = stream->channel->region,
                                   .spans = stream->read->wanted,
                                   .span_numbers = stream->read->n_wanted };
    rpc_head_encode(&head, output->bytes);
    rpc_stream_add(stream, output);
    arrival->step = RPC_STEP_HEAD;
    return EMBTIER_OK;
}

static enum embtier_err take_call(struct rpc_stream *stream)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    const size_t bytes = MIN(arrival->bytes_left, in_bytes(stream));

    if (bytes == 0)
        return EMBTIER_AGAIN;
    rpc_relay_call(stream, stream->in + stream->in_at, bytes);
    stream->in_at += bytes;
    arrival->bytes_left -= bytes;
    if (arrival->bytes_left == 0)
        arrival->step = RPC_STEP_HEAD;
    return EMBTIER_OK;
}

static enum embtier_err take_message(struct rpc_stream *stream, struct err_msg *msg)
{
    const uint8_t *const message = stream->in + stream->in_at;

    if (in_bytes(stream) < stream->arrival.head.message_bytes)
        return EMBTIER_AGAIN;
    stream->in_at += stream->arrival.head.message_bytes;
    switch (stream->arrival.head.kind) {
    case RPC_SUBMIT:
        return take_submit(stream, message, msg);
    case RPC_WRITE:
        return take_write(stream, message, msg);
    default:
        assert(stream->arrival.head.kind == RPC_READ);
        return take_read(stream, message, msg);
    }
}

/* ---- Payloads ---- */

/* Returns the place for the payload's bytes of a span, of which @done have come. Narrow ids go to
 * its end. */
static struct iovec place_in(const struct rpc_stream *stream, size_t at, uint64_t done)
{
    const struct rpc_arrival *const arrival = &stream->arrival;
    const uint64_t bytes = arrival->spans[at + 1];
    const uint64_t sent = narrow_spans_sent(&arrival->narrow, at / 2, bytes);

    return (struct iovec){ .iov_base =
                               stream->channel->region + arrival->spans[at] + bytes - sent + done,
                           .iov_len = sent - done };
}

/* Widens the ids of the current span that are complete with the next @bytes. So a turn never widens
 * more than one read has brought. */
static void widen(struct rpc_stream *stream, uint64_t bytes)
{
    const struct rpc_arrival *const arrival = &stream->arrival;
    const uint64_t done = arrival->span_done;
    const uint32_t width = narrow_spans_width(&arrival->narrow, arrival->span_at / 2);
    uint64_t *const ids =
        (uint64_t *)(void *)(stream->channel->region + arrival->spans[arrival->span_at]);

    if (width == ID_WIDTH)
        return;
    TSAN_CLIENT_BEGIN();
    narrow_ids_widen(ids, arrival->spans[arrival->span_at + 1] / ID_WIDTH, width, done / width,
                     (done + bytes) / width);
    TSAN_CLIENT_END();
}

/* Notes that @bytes have come, which are not more than are left. */
static void payload_came(struct rpc_stream *stream, uint64_t bytes)
{
    struct rpc_arrival *const arrival = &stream->arrival;

    arrival->bytes_left -= bytes;
    while (bytes > 0) {
        const uint64_t room = place_in(stream, arrival->span_at, arrival->span_done).iov_len;
        const uint64_t here = MIN(bytes, room);

        widen(stream, here);
        bytes -= here;
        arrival->span_done += here;
        if (here < room)
            continue;
        arrival->span_at += 2;
        arrival->span_done = 0;
    }
}

/* Copies what came together with the head. */
static enum embtier_err take_payload(struct rpc_stream *stream)
{
    struct rpc_arrival *const arrival = &stream->arrival;

    while (arrival->bytes_left > 0 && in_bytes(stream) > 0) {
        const struct iovec place = place_in(stream, arrival->span_at, arrival->span_done);
        const uint64_t bytes = MIN(place.iov_len, in_bytes(stream));

        TSAN_CLIENT_BEGIN();
        memcpy(place.iov_base, stream->in + stream->in_at, bytes);
        TSAN_CLIENT_END();
        stream->in_at += bytes;
        payload_came(stream, bytes);
    }
    if (arrival->bytes_left > 0)
        return EMBTIER_AGAIN;
    if (arrival->slot)
        rpc_channel_submit(stream->channel, TAKE(arrival->slot));
    free(TAKE(arrival->spans));
    arrival->span_numbers = 0;
    arrival->step = RPC_STEP_HEAD;
    return EMBTIER_OK;
}

static enum embtier_err take_skipped(struct rpc_stream *stream)
{
    struct rpc_arrival *const arrival = &stream->arrival;
    const uint64_t bytes = MIN(arrival->bytes_left, in_bytes(stream));

    arrival->bytes_left -= bytes;
    stream->in_at += bytes;
    if (arrival->bytes_left > 0)
        return EMBTIER_AGAIN;
    arrival->step = RPC_STEP_HEAD;
    return EMBTIER_OK;
}

/* ---- Reading ---- */

/* True if no frame is begun before something on its way has arrived. */
static bool is_held_up(const struct rpc_stream *stream)
{
    return stream->read || stream->refusal;
}

static enum embtier_err step(struct rpc_stream *stream, struct err_msg *msg)
{
    switch (stream->arrival.step) {
    case RPC_STEP_HEAD:
        return is_held_up(stream) ? EMBTIER_AGAIN : take_head(stream, msg);
    case RPC_STEP_MESSAGE:
        return take_message(stream, msg);
    case RPC_STEP_CALL:
        return take_call(stream);
    case RPC_STEP_PAYLOAD:
        return take_payload(stream);
    default:
        return take_skipped(stream);
    }
}

/* Makes room behind what is in the buffer. It grows only when received bytes fill it. False: out of
 * memory. */
static bool make_room(struct rpc_stream *stream)
{
    const size_t bytes = in_bytes(stream);
    size_t room;
    uint8_t *larger;

    if (stream->in_at > 0)
        memmove(stream->in, stream->in + stream->in_at, bytes);
    stream->in_at = 0;
    stream->in_end = bytes;
    if (bytes == 0 && stream->in_room > RPC_BUFFER_BYTES) {
        free(TAKE(stream->in));
        stream->in_room = 0;
    }
    if (stream->in && bytes < stream->in_room)
        return true;
    room = MAX(stream->in_room * 2, (size_t)RPC_BUFFER_BYTES);
    larger = realloc(stream->in, room);
    if (!larger)
        return false;
    stream->in = larger;
    stream->in_room = room;
    return true;
}

static void on_read(struct net *net, int result);

/* A payload is received where it belongs, and the next head, if there is a buffer left, behind it
 * into the stream's own. */
static void read_more(struct rpc_stream *stream)
{
    const struct rpc_arrival *const arrival = &stream->arrival;
    const bool has_payload = arrival->step == RPC_STEP_PAYLOAD;
    size_t at = has_payload ? arrival->span_at : arrival->span_numbers;
    uint32_t count = 0;

    stream->direct_bytes = 0;
    for (; at < arrival->span_numbers && count < IO_BUFFERS_MAX; at += 2) {
        const struct iovec place =
            place_in(stream, at, at == arrival->span_at ? arrival->span_done : 0);

        stream->in_buffers[count++] = place;
        stream->direct_bytes += place.iov_len;
    }
    if (count < IO_BUFFERS_MAX)
        stream->in_buffers[count++] = (struct iovec){ .iov_base = stream->in + stream->in_end,
                                                      .iov_len = stream->in_room - stream->in_end };
    stream->reading_ns = clock_now_ns(&clock_monotonic);
    net_read(&stream->net, stream->in_buffers, count, on_read);
}

/* Shares received bytes between the payload and the buffer. */
static void share_out(struct rpc_stream *stream, uint64_t bytes)
{
    const uint64_t direct = MIN(stream->direct_bytes, bytes);

    if (direct > 0)
        payload_came(stream, direct);
    stream->in_end += bytes - direct;
}

static void on_read(struct net *net, int result)
{
    struct rpc_stream *const stream = CONTAINER_OF(net, struct rpc_stream, net);

    if (result == -EPROTO && !stream->is_ending) { /* TLS has told the client */
        rpc_stream_end(stream);
        return;
    }
    if (result <= 0) { /* the client closed, or the network failed */
        rpc_stream_close(stream);
        return;
    }
    if (stream->is_ending) {
        rpc_receive_nothing(stream);
        return;
    }
    share_out(stream, (uint64_t)result);
    rpc_receive(stream);
}

void rpc_receive(struct rpc_stream *stream)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    if (net_is_reading(&stream->net) || stream->call) /* it goes on when that has ended */
        return;
    while (err == EMBTIER_OK && !stream->is_ending && !stream->call)
        err = step(stream, &msg);
    if (stream->call)
        return;
    if (err == EMBTIER_AGAIN && !stream->is_ending && !make_room(stream))
        err = err_set(&msg, EMBTIER_NO_MEMORY, "out of memory");
    if (stream->is_ending)
        return;
    if (err != EMBTIER_AGAIN)
        rpc_receive_break_off(stream, err, &msg);
    else if (!is_held_up(stream) || stream->arrival.step != RPC_STEP_HEAD)
        read_more(stream);
}

static bool is_in_frame(const struct rpc_stream *stream)
{
    return stream->arrival.step != RPC_STEP_HEAD || in_bytes(stream) > 0;
}

void rpc_receive_tick(struct rpc_stream *stream, uint64_t now_ns)
{
    struct err_msg msg = { { 0 } };

    if (stream->is_ending || !net_is_reading(&stream->net) || !is_in_frame(stream) ||
        clock_since(now_ns, stream->reading_ns) <= RPC_STALLED_NS)
        return;
    (void)err_set(&msg, EMBTIER_TIMEOUT, "no byte came for %" PRIu64 " s, in the middle of a frame",
                  RPC_STALLED_NS / 1000000000);
    rpc_receive_break_off(stream, EMBTIER_TIMEOUT, &msg);
}

void rpc_receive_nothing(struct rpc_stream *stream)
{
    if (net_is_reading(&stream->net) || net_is_closing(&stream->net))
        return;
    stream->in_buffers[0] =
        (struct iovec){ .iov_base = stream->host->trash, .iov_len = sizeof(stream->host->trash) };
    net_read(&stream->net, stream->in_buffers, 1, on_read);
}

void rpc_receive_free(struct rpc_stream *stream)
{
    free(TAKE(stream->arrival.spans));
    free(TAKE(stream->in));
}
