/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages of a client that is an administrator of the tables "h*" alone, to a real control
 * thread with real lanes and a store in memory. The input is a list of messages, each behind two
 * bytes of its length; those that can be decoded get numbers here.
 *
 * Each message that can be decoded has an answer with its number. One that names another table, or
 * is about all tables, is refused. Another client is served as before, and its table stays.
 *
 * The server lives as long as the process, so an input's outcome may depend on those before it. The
 * client is a new one for each input, and its tables are dropped after it. */
#include "tests/unit/daemon/control/control_fixture.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log/log.h"
#include "daemon/access/operations.h"
#include "daemon/access/token_hash.h"
#include "daemon/transport/listen/socket_path.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "tests/fuzz/lib/fuzz.h"

#define TOKEN  "embt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define HASH   "sha256:f85b94fde8daf5415b0d5b77c004acf2c09418359676c537b1fe99e601c95e26"
#define ACCESS "users:\n  - {name: hostile, role: admin, tables: ['h*'], tokens: ['" HASH "']}\n"

#define REGION_BYTES (64 * KIB)
#define MESSAGES_MAX 32
/* A job that takes longer, such as a slow move, ends with its client. */
#define PATIENCE_MS 300
/* Rows that are made with their table; more would only take time. */
#define EAGER_ROWS_MAX 100

/* ---- The transport: buffers ---- */

static const struct transport plain_transport;

static enum embtier_err prepare(const struct channel_spec *spec,
                                struct transport_channel **ret_channel, struct err_msg *msg)
{
    TRY(buffer_channel_prepare(spec, ret_channel, msg));
    (*ret_channel)->transport = &plain_transport;
    return EMBTIER_OK;
}

static uint32_t announce(struct transport_channel *channel, int ret_fds[TRANSPORT_FDS_MAX])
{
    (void)channel;
    (void)ret_fds;
    return 0;
}

static void release(struct transport_channel *channel, bool is_abandoned)
{
    (void)channel;
    (void)is_abandoned;
}

static void free_channel(struct transport_channel *channel)
{
    buffer_channel_free(buffer_channel_of(channel));
}

static const struct transport plain_transport = {
    .counted_bytes = buffer_channel_counted_bytes,
    .prepare = prepare,
    .reserve = buffer_channel_reserve,
    .announce = announce,
    .release = release,
    .free = free_channel,
};

/* ---- Clients ---- */

struct peer {
    int fd;
    uint32_t number;
    struct frame_reader replies;
};

/* Returns the next reply, or NULL: the server has closed, or *@ret_waits: it takes its time. */
static Embtier__Reply *take_reply(struct peer *peer, int patience_ms, bool *ret_waits)
{
    const uint8_t *payload;
    struct err_msg msg = { { 0 } };
    Embtier__Reply *reply = NULL;
    uint32_t bytes;

    *ret_waits = false;
    while (frame_reader_next(&peer->replies, &payload, &bytes, &msg) == EMBTIER_AGAIN) {
        struct pollfd at = { .fd = peer->fd, .events = POLLIN };
        uint8_t *space;
        size_t room;
        ssize_t got;

        *ret_waits = poll(&at, 1, patience_ms) == 0;
        if (*ret_waits)
            return NULL;
        FUZZ_CHECK(frame_reader_space(&peer->replies, &space, &room) == EMBTIER_OK);
        got = recv(peer->fd, space, room, 0);
        if (got <= 0)
            return NULL;
        frame_reader_added(&peer->replies, (size_t)got);
    }
    FUZZ_CHECK(frame_decode_reply(payload, bytes, &reply, &msg) == EMBTIER_OK);
    frame_reader_next_done(&peer->replies);
    return reply;
}

/* Returns the last reply to the message just sent; NULL as above. */
static Embtier__Reply *take_last(struct peer *peer, int patience_ms, bool *ret_waits)
{
    for (;;) {
        Embtier__Reply *const reply = take_reply(peer, patience_ms, ret_waits);

        if (!reply || reply->last)
            return reply;
        FUZZ_CHECK(reply->body_case == EMBTIER__REPLY__BODY_PROGRESS);
        embtier__reply__free_unpacked(reply, NULL);
    }
}

static bool send_bytes(const struct peer *peer, const uint8_t *bytes, size_t count)
{
    return send(peer->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

static bool send_request(struct peer *peer, Embtier__Request *request)
{
    _cleanup_(freep) uint8_t *bytes = NULL;
    size_t count;

    request->id = ++peer->number;
    return frame_encode_request(request, &bytes, &count) == EMBTIER_OK &&
           send_bytes(peer, bytes, count);
}

/* Asks for something that is answered. */
static Embtier__Reply *ask(struct peer *peer, Embtier__Request *request)
{
    Embtier__Reply *reply;
    bool waits;

    FUZZ_CHECK(send_request(peer, request));
    reply = take_last(peer, -1, &waits);
    FUZZ_CHECK(reply && reply->id == peer->number);
    return reply;
}

static struct peer connected(const struct control_fixture *c)
{
    struct peer peer = { .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    struct sockaddr_un address;
    struct err_msg msg = { { 0 } };

    FUZZ_CHECK(socket_path_address(c->path, &address, &msg) == EMBTIER_OK);
    FUZZ_CHECK(connect(peer.fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    frame_reader_init(&peer.replies, FRAME_BYTES_MAX);
    return peer;
}

static void disconnect(struct peer *peer)
{
    close(peer->fd);
    frame_reader_done(&peer->replies);
}

/* Sessions that are ending may still count. */
static struct peer greeted(const struct control_fixture *c, const char *token, uint64_t arena_bytes)
{
    for (unsigned looks = 0;;) {
        Embtier__Hello hello = EMBTIER__HELLO__INIT;
        Embtier__Request request = EMBTIER__REQUEST__INIT;
        struct peer peer = connected(c);
        Embtier__Reply *reply;
        bool waits;

        hello.protocol_min = hello.protocol_max = PROTOCOL_VERSION;
        hello.arena_bytes = arena_bytes;
        hello.pages = true;
        hello.token = (char *)(uintptr_t)token;
        request.body_case = EMBTIER__REQUEST__BODY_HELLO;
        request.hello = &hello;
        reply = send_request(&peer, &request) ? take_last(&peer, -1, &waits) : NULL;
        if (reply && reply->body_case == EMBTIER__REPLY__BODY_HELLO) {
            embtier__reply__free_unpacked(reply, NULL);
            return peer;
        }
        FUZZ_CHECK(!reply || (reply->body_case == EMBTIER__REPLY__BODY_ERROR &&
                              reply->error->err == EMBTIER_BUSY));
        if (reply)
            embtier__reply__free_unpacked(reply, NULL);
        disconnect(&peer);
        fixture_pause(&looks);
    }
}

/* ---- The server ---- */

static struct control_fixture control;
static struct peer good;
static uint64_t kept_handle;

static void use_access_file(struct control_fixture *c)
{
    struct err_msg msg = { { 0 } };
    static char path[256];

    fuzz_put_file("access.yaml", ACCESS, strlen(ACCESS));
    snprintf(path, sizeof(path), "%s/access.yaml", fuzz_folder());
    access_free(c->access);
    must(access_new(path, NULL, &c->access, &msg), &msg);
    c->parts.access = c->access;
    tables_tell_names(c->x.tables, access_name_table, c->access);
}

static void stop_server(void)
{
    struct store_fixture *const f = control.x.f;

    disconnect(&good);
    control_stop(&control);
    fixture_free(f);
}

static void start_server(void)
{
    struct store_fixture *const f = fixture_at(fuzz_folder());
    struct token_hash hash;
    struct err_msg msg = { { 0 } };

    /* OpenSSL's own end must come after that of its threads, so it begins before them. */
    FUZZ_CHECK(token_hash_of(TOKEN, &hash));
    FUZZ_CHECK(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0); // NOLINT(concurrency-mt-unsafe)
    log_set_level(LOG_LEVEL_ERROR);
    for (uint32_t i = 0; i < ARRAY_LEN(f->made); i++)
        fixture_make_directory(f, i);
    control_make_parts(&control, f, &plain_transport);
    use_access_file(&control);
    kept_handle = fixture_table(&control.x, "kept", 16, 4, EMBTIER_OPTIMIZER_NONE);
    must(control_new(&control.parts, &control.control, &msg), &msg);
    FUZZ_CHECK(pipe2(control.signals, O_CLOEXEC | O_NONBLOCK) == 0);
    FUZZ_CHECK(pthread_create(&control.thread, NULL, control_serve, &control) == 0);
    good = greeted(&control, "", 0);
    FUZZ_CHECK(atexit(stop_server) == 0);
}

/* ---- The other client ---- */

static void check_kept(void)
{
    Embtier__TableOpen open = EMBTIER__TABLE_OPEN__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Reply *reply;

    open.name = (char *)(uintptr_t) "kept";
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_OPEN;
    request.table_open = &open;
    reply = ask(&good, &request);
    FUZZ_CHECK(reply->body_case == EMBTIER__REPLY__BODY_TABLE);
    FUZZ_CHECK(reply->table->handle == kept_handle);
    embtier__reply__free_unpacked(reply, NULL);
}

static void drop_table(const char *name)
{
    Embtier__TableDrop drop = EMBTIER__TABLE_DROP__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;

    drop.name = (char *)(uintptr_t)name;
    request.body_case = EMBTIER__REQUEST__BODY_TABLE_DROP;
    request.table_drop = &drop;
    embtier__reply__free_unpacked(ask(&good, &request), NULL);
}

/* Tables of the hostile client that are being made or loaded go with it. */
static void drop_others(void)
{
    Embtier__TableList list = EMBTIER__TABLE_LIST__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Reply *reply;

    request.body_case = EMBTIER__REQUEST__BODY_TABLE_LIST;
    request.table_list = &list;
    reply = ask(&good, &request);
    FUZZ_CHECK(reply->body_case == EMBTIER__REPLY__BODY_TABLE_LIST);
    for (size_t i = 0; i < reply->table_list->n_tables; i++) {
        const char *const name = reply->table_list->tables[i]->spec->name;

        FUZZ_CHECK(name[0] == 'h' || strcmp(name, "kept") == 0);
        if (name[0] == 'h')
            drop_table(name);
    }
    embtier__reply__free_unpacked(reply, NULL);
}

/* ---- One message ---- */

static void tame(Embtier__Request *request)
{
    Embtier__TableSpec *spec = NULL;

    if (request->body_case == EMBTIER__REQUEST__BODY_TABLE_CREATE)
        spec = request->table_create->spec;
    if (request->body_case == EMBTIER__REQUEST__BODY_LOAD_OPEN)
        spec = request->load_open->spec;
    if (spec && spec->eager)
        spec->rows = MIN(spec->rows, (uint64_t)EAGER_ROWS_MAX);
}

/* True if the message is about a table that the client is not granted, or about all. */
static bool is_forbidden(const Embtier__Request *request)
{
    const struct operation *const operation = operation_of_body((uint32_t)request->body_case);
    const char *name;

    if (operation && operation->relation == RELATION_WHOLE)
        return true;
    if (!operation || operation->relation != RELATION_NAMED)
        return false;
    name = operation->table(request, 0);
    if (!name)
        return true;
    for (uint32_t i = 0; name; name = operation->table(request, ++i))
        if (name[0] != 'h')
            return true;
    return false;
}

static void check_reply(const struct peer *peer, const Embtier__Request *request,
                        const Embtier__Reply *reply)
{
    const bool is_error = reply->body_case == EMBTIER__REPLY__BODY_ERROR;

    FUZZ_CHECK(reply->id == peer->number || (reply->id == 0 && is_error)); /* or a farewell */
    FUZZ_CHECK(!is_error || reply->error->err != EMBTIER_OK);
    FUZZ_CHECK(is_error || operation_of_body((uint32_t)request->body_case));
    if (reply->id != 0 && request->body_case != EMBTIER__REQUEST__BODY_HELLO &&
        is_forbidden(request))
        FUZZ_CHECK(is_error && reply->error->err == EMBTIER_PERMISSION);
}

/* Sends what cannot be decoded. The server says so, and closes. */
static void send_damaged(struct peer *peer, const uint8_t *bytes, uint32_t count)
{
    _cleanup_(freep) uint8_t *frame = malloc(FRAME_HEADER_BYTES + count);
    const uint32_t length = htole32(count);
    Embtier__Reply *reply;
    bool waits;

    FUZZ_CHECK(frame);
    memcpy(frame, &length, sizeof(length));
    memcpy(frame + FRAME_HEADER_BYTES, bytes, count);
    if (!send_bytes(peer, frame, FRAME_HEADER_BYTES + count))
        return;
    while ((reply = take_reply(peer, -1, &waits)))
        embtier__reply__free_unpacked(reply, NULL);
}

/* False: the client's connection has ended, or its last message takes too long. */
static bool send_message(struct peer *peer, const uint8_t *bytes, uint32_t count)
{
    Embtier__Request *request = NULL;
    Embtier__Reply *reply = NULL;
    struct err_msg msg = { { 0 } };
    bool waits = false;

    if (frame_decode_request(bytes, count, &request, &msg) != EMBTIER_OK) {
        send_damaged(peer, bytes, count);
        return false;
    }
    tame(request);
    if (send_request(peer, request))
        reply = take_last(peer, PATIENCE_MS, &waits);
    if (reply)
        check_reply(peer, request, reply);
    embtier__request__free_unpacked(request, NULL);
    if (!reply)
        return false;
    embtier__reply__free_unpacked(reply, NULL);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    bool goes_on = true;
    struct peer peer;

    if (!control.control)
        start_server();
    peer = greeted(&control, TOKEN, REGION_BYTES);
    for (uint32_t i = 0; goes_on && input.left > 0 && i < MESSAGES_MAX; i++) {
        const size_t low = fuzz_byte(&input);
        const size_t count = MIN(low + ((size_t)fuzz_byte(&input) << 8), input.left);
        _cleanup_(freep) uint8_t *message = fuzz_copy(input.at, count);

        input.at += count;
        input.left -= count;
        goes_on = send_message(&peer, message, (uint32_t)count);
    }
    disconnect(&peer);
    check_kept();
    drop_others();
    return 0;
}
