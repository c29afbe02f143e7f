/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the control thread serves clients of any transport: here of one that has no shared
 * memory and no descriptors (buffer_channel.h). */
#include "tests/unit/daemon/control/control_fixture.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/transport/listen/socket_path.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"

#define REGION_BYTES (64 * KIB)
#define SLOTS        4
#define DIM          4
#define VALUE        2.5f

/* ---- The transport: buffers that the test can look at ---- */

/* Errors of the next channel's steps; 0: none. */
static _Atomic int prepare_err, reserve_err;
static _Atomic uint32_t made_count, released_count, freed_count;
/* Requests that have been answered. The control thread reads it before it closes a doorbell that
 * the main thread rang: the thread sanitizer does not see that order in the socket's end. */
static _Atomic uint32_t answered_count;
static struct buffer_channel *_Atomic last_made;

static const struct transport plain_transport;

static enum embtier_err plain_prepare(const struct channel_spec *spec,
                                      struct transport_channel **ret_channel, struct err_msg *msg)
{
    if (prepare_err)
        return err_set(msg, (enum embtier_err)prepare_err, "no buffer is left");
    TRY(buffer_channel_prepare(spec, ret_channel, msg));
    (*ret_channel)->transport = &plain_transport;
    made_count++;
    return EMBTIER_OK;
}

/* Is asked twice before the channel is whole. */
static enum embtier_err plain_reserve(struct transport_channel *channel, uint64_t bytes,
                                      struct err_msg *msg)
{
    struct buffer_channel *const buffer = buffer_channel_of(channel);

    if (reserve_err)
        return err_set(msg, (enum embtier_err)reserve_err, "the buffer is too long");
    if (last_made != buffer) {
        last_made = buffer;
        return EMBTIER_AGAIN;
    }
    return buffer_channel_reserve(channel, bytes, msg);
}

static uint32_t plain_announce(struct transport_channel *channel, int ret_fds[TRANSPORT_FDS_MAX])
{
    (void)channel;
    (void)ret_fds;
    return 0;
}

static void plain_release(struct transport_channel *channel, bool is_abandoned)
{
    (void)channel;
    (void)is_abandoned;
    released_count++;
}

static void plain_free(struct transport_channel *channel)
{
    struct buffer_channel *expected = buffer_channel_of(channel);

    (void)atomic_load(&answered_count);
    atomic_compare_exchange_strong(&last_made, &expected, NULL);
    buffer_channel_free(buffer_channel_of(channel));
    freed_count++;
}

static const struct transport plain_transport = {
    .counted_bytes = buffer_channel_counted_bytes,
    .prepare = plain_prepare,
    .reserve = plain_reserve,
    .announce = plain_announce,
    .release = plain_release,
    .free = plain_free,
};

static void start(struct control_fixture *c, struct store_fixture *f)
{
    prepare_err = reserve_err = EMBTIER_OK;
    made_count = released_count = freed_count = 0;
    control_start(c, f, &plain_transport);
}

static void await_count(const _Atomic uint32_t *count, uint32_t wanted)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    unsigned looks = 0;

    while (*count < wanted) {
        assert_true(now_ns() < until);
        fixture_pause(&looks);
    }
}

/* ---- A client's socket ---- */

static int connect_to(const struct control_fixture *c)
{
    struct sockaddr_un address;
    struct err_msg msg = { { 0 } };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(socket_path_address(c->path, &address, &msg), &msg);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_hello(int fd)
{
    Embtier__Hello hello = EMBTIER__HELLO__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    _cleanup_(freep) uint8_t *bytes = NULL;
    size_t count;

    hello.protocol_min = hello.protocol_max = PROTOCOL_VERSION;
    hello.arena_bytes = REGION_BYTES;
    hello.slot_count = SLOTS;
    hello.client = (char *)(uintptr_t) "test";
    request.id = 1;
    request.body_case = EMBTIER__REQUEST__BODY_HELLO;
    request.hello = &hello;
    assert_int_equal(frame_encode_request(&request, &bytes, &count), EMBTIER_OK);
    assert_int_equal(write(fd, bytes, count), count);
}

/* Returns the next reply, which must come without descriptors. */
static Embtier__Reply *next_reply(int fd, struct frame_reader *reader)
{
    char space[CMSG_SPACE(8 * sizeof(int))];
    struct err_msg msg = { { 0 } };
    Embtier__Reply *reply = NULL;
    const uint8_t *payload;
    uint32_t bytes;

    while (frame_reader_next(reader, &payload, &bytes, &msg) == EMBTIER_AGAIN) {
        struct iovec part;
        struct msghdr head = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)
        };
        ssize_t got;

        assert_int_equal(frame_reader_space(reader, (uint8_t **)&part.iov_base, &part.iov_len),
                         EMBTIER_OK);
        got = recvmsg(fd, &head, 0);
        assert_true(got > 0);
        assert_int_equal(head.msg_controllen, 0);
        frame_reader_added(reader, (size_t)got);
    }
    must(frame_decode_reply(payload, bytes, &reply, &msg), &msg);
    frame_reader_next_done(reader);
    return reply;
}

/* Returns the answer. The server may say before that the session is still being made. */
static Embtier__Reply *take_reply(int fd)
{
    struct frame_reader reader;
    Embtier__Reply *reply;

    frame_reader_init(&reader, FRAME_BYTES_MAX);
    while ((reply = next_reply(fd, &reader))->body_case == EMBTIER__REPLY__BODY_PROGRESS)
        embtier__reply__free_unpacked(reply, NULL);
    frame_reader_done(&reader);
    return reply;
}

static Embtier__Reply *say_hello(int fd)
{
    send_hello(fd);
    return take_reply(fd);
}

static void refused(int fd, enum embtier_err err, const char *words)
{
    Embtier__Reply *const reply = say_hello(fd);

    assert_int_equal(reply->body_case, EMBTIER__REPLY__BODY_ERROR);
    assert_int_equal(reply->error->err, err);
    assert_non_null(strstr(reply->error->message, words));
    embtier__reply__free_unpacked(reply, NULL);
}

/* ---- Its requests ---- */

/* Asks for one row, or sets it, in slot 0. The row lies behind its id. */
static void request_row(struct buffer_channel *buffer, enum op_number op, uint64_t table)
{
    const uint64_t until = now_ns() + FIXTURE_WAIT_NS;
    const uint32_t number = atomic_load(&buffer->tail);
    struct op_segment *const segment =
        (struct op_segment *)(buffer->region + BUFFER_CHANNEL_PAYLOAD);
    uint64_t *const id = (uint64_t *)(segment + 1);
    const uint64_t one = 1;
    unsigned looks = 0;

    *id = 7;
    *segment = (struct op_segment){ .table = table,
                                    .ids_offset = (uint64_t)((uint8_t *)id - buffer->region),
                                    .rows_offset = (uint64_t)((uint8_t *)(id + 1) - buffer->region),
                                    .id_count = 1 };
    buffer->submissions[number % SLOTS] = (struct op_submission){
        .op = op, .segment_count = 1, .segments_offset = BUFFER_CHANNEL_PAYLOAD
    };
    atomic_store(&buffer->tail, number + 1);
    if (atomic_load(&buffer->must_ring))
        assert_int_equal(write(buffer->doorbell_fd, &one, sizeof(one)), sizeof(one));
    while (atomic_load(&buffer->completions[number % SLOTS].sequence) != number + 1) {
        assert_true(now_ns() < until);
        fixture_pause(&looks);
    }
    assert_int_equal(buffer->completions[number % SLOTS].err, EMBTIER_OK);
    answered_count++;
}

static float *row_of(const struct buffer_channel *buffer)
{
    return (float *)(buffer->region + BUFFER_CHANNEL_PAYLOAD + sizeof(struct op_segment) +
                     sizeof(uint64_t));
}

/* ---- Tests ---- */

static void test_a_session_lives_on_a_channel_without_descriptors(void **state)
{
    static struct control_fixture c;
    struct buffer_channel *buffer;
    Embtier__Reply *reply;
    uint64_t table;
    int fd;

    start(&c, *state);
    table = fixture_table(&c.x, "t", 100, DIM, EMBTIER_OPTIMIZER_NONE);
    fd = connect_to(&c);
    reply = say_hello(fd);
    assert_int_equal(reply->body_case, EMBTIER__REPLY__BODY_HELLO);
    assert_int_equal(reply->hello->arena_bytes, BUFFER_CHANNEL_PAYLOAD + REGION_BYTES);
    assert_int_equal(reply->hello->slot_count, SLOTS);
    embtier__reply__free_unpacked(reply, NULL);
    assert_int_equal(accounts_used(c.x.accounts, ACCOUNT_ARENA_BYTES),
                     BUFFER_CHANNEL_PAYLOAD + REGION_BYTES);
    buffer = last_made;
    for (uint32_t i = 0; i < DIM; i++)
        row_of(buffer)[i] = VALUE;
    request_row(buffer, OP_SET, table);
    memset(row_of(buffer), 0, DIM * sizeof(float));
    request_row(buffer, OP_GET, table);
    for (uint32_t i = 0; i < DIM; i++)
        assert_true(row_of(buffer)[i] == VALUE);
    close(fd);
    await_count(&freed_count, 1);
    assert_int_equal(released_count, 1);
    assert_int_equal(accounts_used(c.x.accounts, ACCOUNT_ARENA_BYTES), 0);
    control_stop(&c);
}

static void test_a_channel_that_cannot_be_made_is_told_and_given_back(void **state)
{
    static struct control_fixture c;
    Embtier__Reply *reply;
    int fd;

    start(&c, *state);
    fd = connect_to(&c);
    prepare_err = EMBTIER_NO_MEMORY;
    refused(fd, EMBTIER_NO_MEMORY, "no buffer is left");
    assert_int_equal(accounts_used(c.x.accounts, ACCOUNT_ARENA_BYTES), 0);
    prepare_err = EMBTIER_OK;
    reserve_err = EMBTIER_TOO_LARGE;
    refused(fd, EMBTIER_TOO_LARGE, "the buffer is too long");
    await_count(&freed_count, 1); /* it was half made */
    assert_int_equal(released_count, 1);
    reserve_err = EMBTIER_OK;
    reply = say_hello(fd);
    assert_int_equal(reply->body_case, EMBTIER__REPLY__BODY_HELLO);
    embtier__reply__free_unpacked(reply, NULL);
    control_stop(&c); /* ends the session too */
    assert_int_equal(freed_count, made_count);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_session_lives_on_a_channel_without_descriptors,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_channel_that_cannot_be_made_is_told_and_given_back,
                                        fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests_name("control_transport", tests, NULL, NULL);
}
