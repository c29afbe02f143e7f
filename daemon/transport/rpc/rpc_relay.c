/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to the control thread, and its replies. On the pair of sockets they have a length in front
 * (proto/frame.h); on the way to and from the client they are frames of rpc_frame.h. Both are
 * passed on as they come, so they may be longer than any buffer here. */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"

/* ---- Calls ---- */

static void send_call(struct rpc_stream *stream);

static void call_sent(struct rpc_stream *stream, size_t bytes)
{
    const size_t of_head = MIN(bytes, stream->call_head_left);

    stream->call_head_left -= of_head;
    stream->call += bytes - of_head;
    stream->call_left -= bytes - of_head;
}

static void on_call_sent(struct io_file *file, int result)
{
    struct rpc_stream *const stream = CONTAINER_OF(file, struct rpc_stream, pair);

    if (result < 0) { /* the control thread has closed its end; its last words are still read */
        stream->call = NULL;
        stream->is_ending = true;
        stream->ended_ns = clock_now_ns(&clock_monotonic);
        return;
    }
    call_sent(stream, (size_t)result);
    if (stream->call_left > 0) {
        send_call(stream);
        return;
    }
    stream->call = NULL;
    stream->has_called = stream->has_called || stream->arrival.bytes_left == 0;
    if (!stream->is_ending)
        rpc_receive(stream);
}

static void send_call(struct rpc_stream *stream)
{
    const size_t head = stream->call_head_left;
    uint32_t count = 0;

    if (head > 0)
        stream->call_buffers[count++] = (struct iovec){
            .iov_base = (uint8_t *)&stream->call_head + FRAME_HEADER_BYTES - head,
            .iov_len = head,
        };
    stream->call_buffers[count++] = (struct iovec){
        .iov_base = (void *)(uintptr_t)stream->call,
        .iov_len = stream->call_left,
    };
    io_write(rpc_stream_io(stream), &stream->pair, stream->call_buffers, count, on_call_sent);
}

void rpc_relay_begin(struct rpc_stream *stream, uint32_t count)
{
    assert(stream->call_head_left == 0);
    stream->call_head = htole32(count);
    stream->call_head_left = FRAME_HEADER_BYTES;
}

void rpc_relay_call(struct rpc_stream *stream, const uint8_t *bytes, size_t count)
{
    assert(!stream->call && count > 0 && !stream->is_pair_over);
    stream->call = bytes;
    stream->call_left = count;
    send_call(stream);
}

/* ---- Replies ---- */

static size_t reply_bytes(const struct rpc_stream *stream)
{
    return stream->reply_end - stream->reply_at;
}

/* Takes the length of the next reply, and makes a head of it. False: it has not come. */
static bool begin_reply(struct rpc_stream *stream, struct rpc_output *output)
{
    struct rpc_head head = { .kind = RPC_REPLY };
    uint32_t length;

    if (reply_bytes(stream) < FRAME_HEADER_BYTES)
        return false;
    memcpy(&length, stream->reply + stream->reply_at, FRAME_HEADER_BYTES);
    stream->reply_at += FRAME_HEADER_BYTES;
    head.message_bytes = le32toh(length);
    stream->reply_left = head.message_bytes;
    stream->has_reply = true;
    rpc_head_encode(&head, output->bytes);
    output->byte_count = RPC_HEAD_BYTES;
    return true;
}

static void pass_on(struct rpc_stream *stream);

static void reply_sent(struct rpc_output *output)
{
    struct rpc_stream *const stream = CONTAINER_OF(output, struct rpc_stream, reply_output);

    stream->is_reply_out = false;
    if (!stream->is_net_closed)
        pass_on(stream);
}

static void on_replies(struct io_file *file, int result)
{
    struct rpc_stream *const stream = CONTAINER_OF(file, struct rpc_stream, pair);

    if (result <= 0) { /* the control thread has closed its end */
        stream->is_pair_over = true;
        rpc_stream_end(stream);
        return;
    }
    stream->reply_end += (size_t)result;
    pass_on(stream);
}

static void read_replies(struct rpc_stream *stream)
{
    if (stream->pair.is_closing || stream->pair.read.done)
        return;
    memmove(stream->reply, stream->reply + stream->reply_at, reply_bytes(stream));
    stream->reply_end -= stream->reply_at;
    stream->reply_at = 0;
    stream->reply_buffer = (struct iovec){ .iov_base = stream->reply + stream->reply_end,
                                           .iov_len = sizeof(stream->reply) - stream->reply_end };
    io_read(rpc_stream_io(stream), &stream->pair, &stream->reply_buffer, 1, on_replies);
}

/* Sends as much of the reply as is here. The buffer is the output's until that is sent. */
static void pass_on(struct rpc_stream *stream)
{
    struct rpc_output *const output = &stream->reply_output;
    size_t bytes;

    if (stream->is_reply_out || net_is_closing(&stream->net))
        return;
    *output = (struct rpc_output){ .sent = reply_sent };
    if (!rpc_relay_is_in_reply(stream) && !begin_reply(stream, output)) {
        read_replies(stream);
        return;
    }
    bytes = MIN(reply_bytes(stream), (size_t)stream->reply_left);
    if (bytes == 0 && output->byte_count == 0) {
        read_replies(stream);
        return;
    }
    output->more = stream->reply + stream->reply_at;
    output->more_bytes = bytes;
    stream->reply_at += bytes;
    stream->reply_left -= (uint32_t)bytes;
    stream->is_reply_out = true;
    rpc_stream_add(stream, output);
}

void rpc_relay_replies(struct rpc_stream *stream)
{
    read_replies(stream);
}
