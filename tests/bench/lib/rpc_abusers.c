/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/rpc_abusers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/ops.h"
#include "proto/rpc_frame.h"
#include "tests/bench/lib/bench.h"

#define HUGE_BYTES   (64 * MIB)
#define READ_SPANS   16
#define UNREAD_COUNT 20
#define UNREAD_SLOTS 64
#define LITTLE_BYTES 4096
#define REST_NS      1000000L
#define SKIPPED      64 /* frames of unknown kinds at a time */
#define PAYLOAD      64 /* the first offset that is the client's */
#define SILENT_COUNT 100

struct self {
    const struct rpc_abuser_place *place;
    _Atomic uint64_t *acts;
    uint64_t random;
    uint8_t *buffer; /* of HUGE_BYTES */
};

static void acted(struct self *self)
{
    atomic_fetch_add(self->acts, 1);
}

static void must(bool is_done)
{
    if (!is_done)
        bench_die("abuser: the server has closed: %s", strerror(errno));
}

static struct bench_stream *connect_to(const struct self *self)
{
    return bench_stream_new(self->place->target);
}

/* ---- Frames ---- */

static void send_frame(struct bench_stream *stream, uint8_t kind, uint32_t number,
                       const void *message, size_t bytes, uint64_t payload_bytes)
{
    const struct rpc_head head = { .kind = kind,
                                   .number = number,
                                   .message_bytes = (uint32_t)bytes,
                                   .payload_bytes = payload_bytes };
    uint8_t wire[RPC_HEAD_BYTES];

    rpc_head_encode(&head, wire);
    must(bench_stream_send(stream, wire, sizeof(wire)) &&
         bench_stream_send(stream, message, bytes));
}

static struct rpc_head receive_head(struct bench_stream *stream)
{
    uint8_t wire[RPC_HEAD_BYTES];
    struct rpc_head head;
    struct err_msg msg;

    must(bench_stream_receive(stream, wire, sizeof(wire)));
    if (rpc_head_decode(wire, FRAME_BYTES_MAX, &head, &msg) != EMBTIER_OK)
        bench_die("abuser: %s", msg.text);
    return head;
}

/* Receives a frame, and throws its payload away. */
static uint8_t skip_frame(struct self *self, struct bench_stream *stream)
{
    const struct rpc_head head = receive_head(stream);
    uint64_t left = head.message_bytes + head.payload_bytes;

    for (; left > 0; left -= MIN(left, HUGE_BYTES))
        must(bench_stream_receive(stream, self->buffer, MIN(left, HUGE_BYTES)));
    return head.kind;
}

static size_t pack_hello(uint64_t arena_bytes, uint32_t slot_count, uint8_t *ret_bytes)
{
    Embtier__Hello hello = EMBTIER__HELLO__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    hello.protocol_min = hello.protocol_max = PROTOCOL_VERSION;
    hello.arena_bytes = arena_bytes;
    hello.slot_count = slot_count;
    hello.client = (char *)(uintptr_t) "abuser";
    request.id = 1;
    request.body_case = EMBTIER__REQUEST__BODY_HELLO;
    request.hello = &hello;
    return embtier__request__pack(&request, ret_bytes);
}

/* True: the answer to the hello. False: a report of progress in front of it. */
static bool receive_answer(struct self *self, struct bench_stream *stream)
{
    const struct rpc_head head = receive_head(stream);
    Embtier__Reply *reply = NULL;
    bool is_last;

    must(bench_stream_receive(stream, self->buffer, head.message_bytes));
    if (head.kind == RPC_REPLY)
        reply = embtier__reply__unpack(NULL, head.message_bytes, self->buffer);
    if (!reply || reply->body_case == EMBTIER__REPLY__BODY_ERROR)
        bench_die("abuser: no session: %s", reply ? reply->error->message : "not a reply");
    is_last = reply->last;
    embtier__reply__free_unpacked(reply, NULL);
    return is_last;
}

static struct bench_stream *begin_session(struct self *self, uint64_t arena_bytes,
                                          uint32_t slot_count)
{
    struct bench_stream *const stream = connect_to(self);
    uint8_t hello[256];

    send_frame(stream, RPC_CALL, 0, hello, pack_hello(arena_bytes, slot_count, hello), 0);
    while (!receive_answer(self, stream))
        ;
    return stream;
}

static size_t pack_spans(uint8_t kind, uint64_t *spans, size_t count, uint8_t *ret_bytes)
{
    Embtier__RpcWrite write = EMBTIER__RPC_WRITE__INIT;
    Embtier__RpcRead read = EMBTIER__RPC_READ__INIT;

    write.sent = read.wanted = spans;
    write.n_sent = read.n_wanted = count;
    return kind == RPC_WRITE ? embtier__rpc_write__pack(&write, ret_bytes)
                             : embtier__rpc_read__pack(&read, ret_bytes);
}

/* ---- Abusers ---- */

static void connect_a_lot(struct self *self)
{
    uint8_t hello[256];
    const size_t bytes = pack_hello(64 * KIB, 64, hello);

    for (;; acted(self)) {
        struct bench_stream *const stream = connect_to(self);

        send_frame(stream, RPC_CALL, 0, hello, bytes, 0);
        bench_stream_reset(stream);
    }
}

static void send_unknown(struct self *self, struct bench_stream *stream)
{
    for (uint32_t i = 0; i < SKIPPED; i++)
        send_frame(stream, 99, i, self->buffer, 16, 0);
    for (uint32_t i = 0; i < SKIPPED; i++)
        if (skip_frame(self, stream) != RPC_REFUSED)
            bench_die("abuser: a frame of an unknown kind was not refused");
}

static void speak_garbage(struct self *self)
{
    struct bench_stream *const known = begin_session(self, 64 * KIB, 64);

    for (;; acted(self)) {
        struct bench_stream *const stream = connect_to(self);

        for (uint32_t i = 0; i < LITTLE_BYTES; i++)
            self->buffer[i] = (uint8_t)bench_random(&self->random);
        (void)bench_stream_send(stream, self->buffer, LITTLE_BYTES);
        send_unknown(self, known);
        bench_stream_reset(stream);
    }
}

static void write_a_lot(struct self *self)
{
    uint64_t span[] = { PAYLOAD, HUGE_BYTES };
    uint8_t message[64];
    const size_t bytes = pack_spans(RPC_WRITE, span, 2, message);
    struct bench_stream *const stream = begin_session(self, HUGE_BYTES + PAYLOAD, 1);

    for (;; acted(self)) {
        send_frame(stream, RPC_WRITE, 0, message, bytes, HUGE_BYTES);
        must(bench_stream_send(stream, self->buffer, HUGE_BYTES));
    }
}

static void read_a_lot(struct self *self)
{
    uint64_t spans[2 * READ_SPANS];
    uint8_t message[20 * READ_SPANS];
    struct bench_stream *const stream = begin_session(self, HUGE_BYTES + PAYLOAD, 1);
    size_t bytes;

    for (uint32_t i = 0; i < READ_SPANS; i++) {
        spans[2 * i] = PAYLOAD;
        spans[2 * i + 1] = HUGE_BYTES;
    }
    bytes = pack_spans(RPC_READ, spans, 2 * READ_SPANS, message);
    for (;; acted(self)) {
        send_frame(stream, RPC_READ, 0, message, bytes, 0);
        (void)skip_frame(self, stream);
    }
}

/* A session whose requests are all the same GET of very many rows. */
struct asker {
    struct bench_stream *stream;
    uint32_t slots, next;
    uint8_t message[128];
    size_t message_bytes;
    uint8_t *payload; /* a segment, then ids */
    uint64_t payload_bytes;
};

static void asker_pack(const struct self *self, struct asker *asker)
{
    const uint64_t ids_bytes = self->place->huge_rows * sizeof(uint64_t);
    const uint64_t ids_at = PAYLOAD + sizeof(struct op_segment), rows_at = ids_at + ids_bytes;
    uint64_t sent[] = { PAYLOAD, sizeof(struct op_segment) + ids_bytes };
    uint64_t wanted[] = { rows_at, (uint64_t)self->place->huge_rows * self->place->row_bytes };
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    struct op_segment segment = { .table = self->place->table,
                                  .ids_offset = ids_at,
                                  .rows_offset = rows_at,
                                  .id_count = self->place->huge_rows };

    submit.op = OP_GET;
    submit.segment_count = 1;
    submit.segments_offset = PAYLOAD;
    submit.sent = sent;
    submit.wanted = wanted;
    submit.n_sent = submit.n_wanted = 2;
    asker->message_bytes = embtier__rpc_submit__pack(&submit, asker->message);
    asker->payload_bytes = sent[1];
    asker->payload = bench_alloc(1, sent[1]);
    memcpy(asker->payload, &segment, sizeof(segment));
    for (uint64_t i = 0; i < self->place->huge_rows; i++)
        memcpy(asker->payload + sizeof(segment) + i * sizeof(i), &i, sizeof(i));
}

static void asker_ask(struct asker *asker)
{
    send_frame(asker->stream, RPC_SUBMIT, asker->next++, asker->message, asker->message_bytes,
               asker->payload_bytes);
    must(bench_stream_send(asker->stream, asker->payload, asker->payload_bytes));
}

static void asker_start(struct self *self, struct asker *asker, uint32_t slots)
{
    const struct rpc_abuser_place *const place = self->place;

    *asker = (struct asker){ .slots = slots };
    asker_pack(self, asker);
    asker->stream = begin_session(
        self, PAYLOAD + asker->payload_bytes + (uint64_t)place->huge_rows * place->row_bytes,
        slots);
}

static void keep_slots(struct self *self)
{
    struct asker asker;

    asker_start(self, &asker, OP_SLOTS_MAX);
    while (asker.next < OP_SLOTS_MAX / 2) /* then the server may make this sender wait for it */
        asker_ask(&asker);
    for (;; acted(self))
        if (skip_frame(self, asker.stream) == RPC_DONE)
            asker_ask(&asker);
}

static void hardly_read(struct self *self)
{
    struct asker *const askers = bench_alloc(UNREAD_COUNT, sizeof(*askers));

    for (uint32_t i = 0; i < UNREAD_COUNT; i++) {
        asker_start(self, &askers[i], UNREAD_SLOTS);
        while (askers[i].next < UNREAD_SLOTS)
            asker_ask(&askers[i]);
    }
    for (;; acted(self)) {
        for (uint32_t i = 0; i < UNREAD_COUNT; i++)
            must(bench_stream_receive_some(askers[i].stream, self->buffer, LITTLE_BYTES) > 0);
        nanosleep(&(struct timespec){ .tv_nsec = REST_NS }, NULL);
    }
}

/* One is reset at once. The next stays silent until its place is wanted for another, so that the
 * server has time to sign its answer, and then waits for the client. */
static void give_up_handshakes(struct self *self)
{
    struct bench_stream **const silent = bench_alloc(SILENT_COUNT, sizeof(struct bench_stream *));

    for (uint32_t i = 0;; i = (i + 1) % SILENT_COUNT) {
        bench_stream_reset(bench_stream_new_half(self->place->target));
        bench_stream_reset(silent[i]);
        silent[i] = bench_stream_new_half(self->place->target);
        acted(self);
    }
}

/* ---- Starting ---- */

struct order {
    enum rpc_abuser_kind kind;
    const struct rpc_abuser_place *place;
};

static void abuse(const void *context, _Atomic uint64_t *acts)
{
    static void (*const abusers[])(struct self * self) = {
        [RPC_ABUSER_CONNECTS] = connect_a_lot,
        [RPC_ABUSER_GARBAGE] = speak_garbage,
        [RPC_ABUSER_HUGE] = write_a_lot,
        [RPC_ABUSER_READS] = read_a_lot,
        [RPC_ABUSER_UNREAD] = hardly_read,
        [RPC_ABUSER_SLOTS] = keep_slots,
        [RPC_ABUSER_HANDSHAKES] = give_up_handshakes,
    };
    const struct order *const order = context;
    struct self self = { .place = order->place, .acts = acts, .random = 88172645463325252u };

    abuser_be_idle();
    self.buffer = bench_pages(HUGE_BYTES);
    abusers[order->kind](&self);
}

struct abuser rpc_abuser_start(enum rpc_abuser_kind kind, const struct rpc_abuser_place *place)
{
    const struct order order = { .kind = kind, .place = place };

    return abuser_start_with(abuse, &order, 1);
}
