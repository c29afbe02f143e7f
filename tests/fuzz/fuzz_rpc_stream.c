/* SPDX-License-Identifier: Apache-2.0 */
/* A client's bytes in the daemon's receiving code (daemon/transport/rpc/rpc_stream.h), from the
 * first byte of the connection to its end.
 *
 * The stream, its frames, its channel and the relay of control messages are the daemon's. The
 * sockets are not (fake_io.h): the input's bytes arrive in pieces of any size, and what is sent
 * leaves in such pieces. This program is the lanes, which answer each request at any time and in
 * any order, and the control thread, which replies to each call. It checks that the client gets
 * whole frames in return, and that only the client's part of the region changes. */
#include "tests/fuzz/lib/fake_io.h"
#include "tests/fuzz/lib/rpc_script.h"
#include "tests/fuzz/lib/rpc_sums.h"

#include <endian.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "daemon/transport/rpc/rpc_channel.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"

#define SLOTS      4
#define TURNS_MAX  10000000
#define PAGE_BYTES 4096
#define REPLY_MAX  3000

/* The first byte of an input. */
enum {
    WITHOUT_CHANNEL = 1, /* the hello is never answered with a region */
    HANGS_UP = 2,        /* the control thread closes its end after the first call */
    LATE = 4,            /* lanes answer when all has come */
    BREAKS = 8,          /* the connection ends with an error */
    IS_OVERDUE = 16,     /* in the end the clock has gone on by an hour */
    IS_SCRIPT = 32,      /* the input is a script of rpc_script.h, not the bytes themselves */
};

/* The frame that goes to the client. */
struct sent_frame {
    uint8_t head[RPC_HEAD_BYTES];
    size_t head_bytes;
    uint64_t left; /* of message and payload */
};

/* The control thread's end of the pair. */
struct control_end {
    uint8_t length[FRAME_HEADER_BYTES];
    size_t length_bytes;
    uint32_t left; /* of the call */
    uint32_t calls;
    uint8_t reply[FRAME_HEADER_BYTES + REPLY_MAX];
    size_t reply_at, reply_bytes;
};

struct world {
    struct fake_io io;
    struct rpc_host host;
    _Atomic uint32_t streams;
    struct strangers strangers;
    struct fuzz_input input;
    struct fuzz_pieces pieces;
    uint32_t flags;
    struct transport_peer *peer;
    struct transport_channel *channel; /* NULL: none */
    void *fence;
    uint32_t taken;    /* requests that the lanes have seen */
    bool waits[SLOTS]; /* of these: not answered */
    uint32_t wait_of[SLOTS];
    struct sent_frame sent;
    struct control_end control;
};

static struct rpc_stream *stream_of(const struct world *w)
{
    return CONTAINER_OF(w->peer, struct rpc_stream, peer);
}

/* ---- Frames to the client ---- */

static void begin_sent_frame(struct sent_frame *sent)
{
    struct err_msg msg = { { 0 } };
    struct rpc_head head;

    FUZZ_CHECK(rpc_head_decode(sent->head, FRAME_BYTES_MAX, &head, &msg) == EMBTIER_OK);
    FUZZ_CHECK(head.kind == RPC_REPLY || head.kind == RPC_DONE || head.kind == RPC_DATA ||
               head.kind == RPC_REFUSED);
    sent->left = head.message_bytes + head.payload_bytes;
    if (sent->left == 0)
        sent->head_bytes = 0;
}

static void client_gets(void *context, const uint8_t *bytes, size_t count)
{
    struct sent_frame *const sent = context;

    while (count > 0) {
        const size_t room = sent->head_bytes < RPC_HEAD_BYTES ? RPC_HEAD_BYTES - sent->head_bytes
                                                              : (size_t)sent->left;
        const size_t here = MIN(room, count);

        if (sent->head_bytes < RPC_HEAD_BYTES) {
            memcpy(sent->head + sent->head_bytes, bytes, here);
            sent->head_bytes += here;
            if (sent->head_bytes == RPC_HEAD_BYTES)
                begin_sent_frame(sent);
        } else {
            sent->left -= here;
            if (sent->left == 0)
                sent->head_bytes = 0;
        }
        bytes += here;
        count -= here;
    }
}

/* ---- The control thread ---- */

/* Replies vary in length with the call. */
static void reply_to(struct control_end *control, uint32_t call_bytes)
{
    const uint32_t length = 1 + call_bytes * 7 % REPLY_MAX;
    const uint32_t length_le = htole32(length);

    control->calls++;
    memcpy(control->reply, &length_le, sizeof(length_le));
    memset(control->reply + FRAME_HEADER_BYTES, 'r', length);
    control->reply_at = 0;
    control->reply_bytes = FRAME_HEADER_BYTES + length;
}

static void begin_call(struct control_end *control)
{
    memcpy(&control->left, control->length, sizeof(control->left));
    control->left = le32toh(control->left);
    FUZZ_CHECK(control->left > 0 && control->left <= FRAME_REQUEST_BYTES_MAX);
}

static void control_gets(void *context, const uint8_t *bytes, size_t count)
{
    struct control_end *const control = context;

    for (size_t i = 0; i < count; i++) {
        if (control->length_bytes < FRAME_HEADER_BYTES) {
            control->length[control->length_bytes++] = bytes[i];
            if (control->length_bytes == FRAME_HEADER_BYTES)
                begin_call(control);
        } else if (--control->left == 0) {
            control->length_bytes = 0;
            reply_to(control, le32toh(*(const uint32_t *)(const void *)control->length));
        }
    }
}

static int reply_some(struct world *w, struct io_task *task)
{
    struct control_end *const control = &w->control;
    size_t piece = control->reply_bytes - control->reply_at;

    if ((w->flags & HANGS_UP) && control->calls > 0 && piece == 0)
        return 0;
    if (piece == 0)
        return FAKE_NOT_YET;
    piece = fuzz_piece(&w->pieces, MIN(piece, fake_io_room(task)));
    fake_io_fill(task, control->reply + control->reply_at, piece);
    control->reply_at += piece;
    return (int)piece;
}

/* The next call is taken when the last one's reply has been read. */
static int take_call(struct world *w, struct io_task *task)
{
    const size_t piece = fuzz_piece(&w->pieces, fake_io_room(task));

    if (w->control.reply_at < w->control.reply_bytes)
        return FAKE_NOT_YET;
    if ((w->flags & HANGS_UP) && w->control.calls > 0)
        return -EPIPE;
    fake_io_drain(task, piece, control_gets, &w->control);
    return (int)piece;
}

static void peer_arrived(void *owner, struct message *message)
{
    struct world *const w = owner;

    w->peer = CONTAINER_OF(message, struct transport_peer, arrived_message);
}

/* ---- The network ---- */

static int receive_some(struct world *w, struct io_task *task)
{
    size_t piece = MIN(w->input.left, fake_io_room(task));

    if (piece == 0)
        return w->flags & BREAKS ? -ECONNRESET : 0;
    piece = fuzz_piece(&w->pieces, piece);
    fake_io_fill(task, w->input.at, piece);
    w->input.at += piece;
    w->input.left -= piece;
    return (int)piece;
}

/* Large answers leave as a whole, or a run would take a million turns. */
static int send_some(struct world *w, struct io_task *task)
{
    const size_t room = fake_io_room(task);
    const size_t piece = room > RPC_REPLY_BYTES * 16 ? room : fuzz_piece(&w->pieces, room);

    fake_io_drain(task, piece, client_gets, &w->sent);
    return (int)piece;
}

static int progress(void *context, struct io_task *task)
{
    struct world *const w = context;
    const bool is_net = task->file == &stream_of(w)->net.file;

    if (io_task_is_read(task))
        return is_net ? receive_some(w, task) : reply_some(w, task);
    return is_net ? send_some(w, task) : take_call(w, task);
}

static void take_mail(struct world *w)
{
    struct message *message = inbox_take_all(&w->host.mailbox.inbox);

    while (message) {
        struct message *const next = message->next;

        message->kind->take(&(struct receiver){ .rpc_host = &w->host }, message);
        message = next;
    }
}

/* ---- Lanes ---- */

static void look_at_tail(struct world *w)
{
    const uint32_t tail = channel_read_tail(&w->channel->channel);

    FUZZ_CHECK(tail - w->taken <= SLOTS);
    for (; w->taken != tail; w->taken++) {
        const uint32_t slot = w->taken % SLOTS;

        FUZZ_CHECK(!w->waits[slot]);
        w->waits[slot] = true;
        w->wait_of[slot] = w->taken;
    }
}

static void answer(struct world *w, uint32_t slot)
{
    const struct channel *const channel = &w->channel->channel;
    const struct op_submission *const submission = channel_submission(channel, w->wait_of[slot]);
    struct answer reply = { .refusal = { .segment = UINT32_MAX } };

    if (submission->op == 0 || submission->op > OP_LAST)
        reply.refusal.err = EMBTIER_INVALID;
    reply.ticket = submission->ticket;
    w->waits[slot] = false;
    channel->ops->complete(channel, w->wait_of[slot], &reply);
}

/* Answers some of the requests that wait, or all. */
static void answer_some(struct world *w, bool all)
{
    look_at_tail(w);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (w->waits[slot] && (all || fuzz_piece(&w->pieces, 8) % 2 == 0))
            answer(w, slot);
}

/* ---- Beginning and end ---- */

/* Puts memory that cannot be touched behind the region, if the place is free. */
static void *fence_of(const struct channel *channel)
{
    void *const place = mmap(channel->region + channel->region_bytes, PAGE_BYTES, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    return place == MAP_FAILED ? NULL : place;
}

static void give_channel(struct world *w)
{
    const struct channel_spec spec = { .peer = w->peer, .region_bytes = 1, .slot_count = SLOTS };
    struct err_msg msg = { { 0 } };

    FUZZ_CHECK(rpc_transport.prepare(&spec, &w->channel, &msg) == EMBTIER_OK);
    FUZZ_CHECK(rpc_transport.reserve(w->channel, UINT64_MAX, &msg) == EMBTIER_OK);
    FUZZ_CHECK(rpc_transport.announce(w->channel, (int[TRANSPORT_FDS_MAX]){ 0 }) == 0);
    w->fence = fence_of(&w->channel->channel);
    take_mail(w);
}

static void take_channel_back(struct world *w)
{
    answer_some(w, true);
    for (uint64_t i = 0; i < w->channel->channel.payload; i++)
        FUZZ_CHECK(w->channel->channel.region[i] == 0);
    rpc_transport.release(w->channel, false);
    rpc_transport.free(w->channel);
    if (w->fence)
        munmap(w->fence, PAGE_BYTES);
    w->channel = NULL;
}

/* Does what the loop does, until nothing happens any more. */
static void run(struct world *w)
{
    for (uint32_t turn = 0; w->host.streams && !stream_of(w)->is_pair_closed; turn++) {
        FUZZ_CHECK(turn < TURNS_MAX);
        io_run(&w->io.base, 0);
        if (w->channel && (!(w->flags & LATE) || w->input.left == 0))
            answer_some(w, w->input.left == 0);
        take_mail(w);
        if ((w->flags & IS_OVERDUE) && w->input.left == 0)
            rpc_streams_tick(&w->host, UINT64_MAX / 2);
    }
}

/* The control thread sees that the pair is closed, and forgets the client. */
static void end(struct world *w)
{
    const int fd = w->peer->fd;

    if (w->channel)
        take_channel_back(w);
    take_mail(w);
    transport_forget(w->peer);
    take_mail(w);
    FUZZ_CHECK(!w->host.streams && atomic_load(&w->streams) == 0 &&
               atomic_load(&w->strangers.now) == 0 && w->io.task_count == 0);
    close(fd);
}

/* Returns the client's bytes. */
static struct rpc_script bytes_of(struct fuzz_input *input, uint32_t flags)
{
    struct rpc_script stream = { .bytes = NULL };

    if (flags & IS_SCRIPT)
        return rpc_script_make(input);
    stream =
        (struct rpc_script){ .bytes = fuzz_copy(input->at, input->left), .count = input->left };
    rpc_repair_stream(stream.bytes, stream.count);
    return stream;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct world world;
    struct world *const w = &world;
    struct fuzz_input input = { .at = data, .left = bytes };
    const uint32_t flags = fuzz_byte(&input);
    const struct fuzz_pieces pieces = fuzz_pieces(&input);
    const struct rpc_script stream = bytes_of(&input, flags);
    struct err_msg msg = { { 0 } };

    *w = (struct world){
        .flags = flags,
        .pieces = pieces,
        .input = { .at = stream.bytes, .left = stream.count },
        .io = { .base.engine = &fake_io_engine, .progress = progress, .context = w },
        .host = { .io = &w->io.base,
                  .count = &w->streams,
                  .most = 1,
                  .send = peer_arrived,
                  .owner = w }
    };
    rpc_strangers_init(&w->host.strangers, &w->strangers, 1, 1);
    FUZZ_CHECK(mailbox_init(&w->host.mailbox, "rpc", 0, &msg) == EMBTIER_OK);
    rpc_stream_new(&w->host, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), false);
    FUZZ_CHECK(w->peer);
    if (!(flags & WITHOUT_CHANNEL))
        give_channel(w);
    run(w);
    end(w);
    mailbox_destroy(&w->host.mailbox);
    free(stream.bytes);
    return 0;
}
