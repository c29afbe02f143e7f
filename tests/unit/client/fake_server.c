/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/fake_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/macros.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/shm_ring.h"
#include "proto/table_spec_wire.h"

#define MAX_BATCH_ROWS 1000
#define USERS_HANDLE   11
#define WORDS_HANDLE   12

struct client {
    struct fake_server *server;
    int fd;
    struct frame_reader reader;
    int fds[3];
    struct shm_control *control;
    struct shm_arena_head *arena;
    uint64_t control_bytes;
    uint64_t arena_bytes;
    uint32_t slot_count;
    uint32_t taken;
    uint32_t answered; /* valid while not reversing */
};

static void die(const char *what)
{
    perror(what);
    abort();
}

static void *make_memory(struct client *client, const char *name, uint64_t bytes, int *ret_fd)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        die("memfd");
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    if (!client->server->unsealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        die("seals");
    *ret_fd = fd;
    return memory;
}

static void send_reply(struct client *client, const Embtier__Reply *reply, bool with_fds)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = { { 0 } };
    struct iovec part;
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    uint8_t *bytes;
    size_t count;

    if (frame_encode_reply(reply, &bytes, &count) != EMBTIER_OK)
        die("encode");
    if (client->server->garbage)
        memset(bytes + FRAME_HEADER_BYTES, 0xff, count - FRAME_HEADER_BYTES);
    part = (struct iovec){ bytes, count };
    if (with_fds) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(client->fds));
        memcpy(CMSG_DATA(&control.head), client->fds, sizeof(client->fds));
    }
    if (sendmsg(client->fd, &message, MSG_NOSIGNAL) < 0)
        perror("fake server: send");
    free(bytes);
}

static void reply_error(struct client *client, uint32_t id, enum embtier_err err, const char *text)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    error.err = err;
    error.message = (char *)text;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_ERROR;
    reply.error = &error;
    send_reply(client, &reply, false);
}

static void answer_hello(struct client *client, uint32_t id, const Embtier__Hello *hello)
{
    Embtier__HelloReply body = EMBTIER__HELLO_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    const bool with_arena = hello->arena_bytes > 0;

    body.protocol = PROTOCOL_VERSION;
    body.server_version = (char *)"fake";
    body.max_batch_rows = MAX_BATCH_ROWS;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_HELLO;
    reply.hello = &body;
    if (with_arena) {
        client->slot_count = hello->slot_count;
        client->arena_bytes = align_up(hello->arena_bytes, 4096);
        body.arena_bytes = client->arena_bytes;
        body.slot_count = client->slot_count;
        if (client->server->short_arena)
            client->arena_bytes = 4096;
        client->control_bytes = shm_control_bytes(client->slot_count);
        client->control = make_memory(client, "control", client->control_bytes, &client->fds[0]);
        client->arena = make_memory(client, "arena", client->arena_bytes, &client->fds[1]);
        client->fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        client->control->magic = SHM_MAGIC;
        client->control->layout_version = SHM_LAYOUT_VERSION;
        client->control->slot_count = client->slot_count;
        client->control->arena_bytes = body.arena_bytes;
        client->control->max_batch_rows = MAX_BATCH_ROWS;
        shm_lane_sleeps(client->control, 1);
    }
    send_reply(client, &reply, with_arena);
}

/* Makes @ret_info point to @ret_wire, and @ret_wire to @spec. */
static void describe_table(uint64_t handle, const struct table_spec *spec,
                           Embtier__TableSpec *ret_wire, Embtier__TableInfo *ret_info)
{
    table_spec_to_wire(spec, ret_wire);
    embtier__table_info__init(ret_info);
    ret_info->handle = handle;
    ret_info->spec = ret_wire;
    ret_info->weight_bytes = table_spec_weight_bytes(spec);
    ret_info->state_bytes = table_spec_state_bytes(spec);
    ret_info->state = (char *)"live";
}

static void answer_table(struct client *client, uint32_t id, uint64_t handle,
                         const struct table_spec *spec)
{
    Embtier__TableSpec wire;
    Embtier__TableInfo info;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    describe_table(handle, spec, &wire, &info);
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE;
    reply.table = &info;
    send_reply(client, &reply, false);
}

static struct table_spec spec_of(const struct fake_server *server, bool words)
{
    const uint32_t optimizer = words ? server->words_optimizer : (uint32_t)EMBTIER_OPTIMIZER_NONE;
    struct table_spec spec = { .rows = words ? EMBTIER_UNBOUNDED : 8,
                               .dim = words ? 2 : server->users_dim,
                               .dtype = words ? EMBTIER_DTYPE_F16 : EMBTIER_DTYPE_F32,
                               .optimizer = (enum embtier_optimizer)optimizer,
                               .init = EMBTIER_INIT_ZEROS };

    snprintf(spec.name, sizeof(spec.name), "%s", words ? "words" : "users");
    return spec;
}

static void answer_open(struct client *client, uint32_t id, const char *name)
{
    const bool words = strcmp(name, "words") == 0;
    const struct table_spec spec = spec_of(client->server, words);

    if (strcmp(name, "users") != 0 && (!words || client->server->words_gone))
        reply_error(client, id, EMBTIER_NO_TABLE, "there is no such table");
    else
        answer_table(client, id, words ? WORDS_HANDLE : USERS_HANDLE, &spec);
}

static void reply_progress(struct client *client, uint32_t id, const char *unit)
{
    Embtier__Progress progress = EMBTIER__PROGRESS__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    progress.done = 4;
    progress.total = 8;
    progress.unit = (char *)unit;
    reply.id = id;
    reply.body_case = EMBTIER__REPLY__BODY_PROGRESS;
    reply.progress = &progress;
    send_reply(client, &reply, false);
}

static void answer_create(struct client *client, uint32_t id, const Embtier__TableSpec *wire)
{
    struct table_spec spec;

    reply_progress(client, id, "rows");
    if (table_spec_from_wire(wire, &spec, NULL) != EMBTIER_OK)
        reply_error(client, id, EMBTIER_INVALID, "the fake server was sent a bad table");
    else
        answer_table(client, id, USERS_HANDLE, &spec);
}

static void answer_status(struct client *client, uint32_t id)
{
    Embtier__Metric metric = EMBTIER__METRIC__INIT;
    Embtier__Metric *metrics[] = { &metric };
    Embtier__StatusReply status = EMBTIER__STATUS_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    metric.name = (char *)"cache_hit_rows";
    metric.label = (char *)"tier";
    metric.label_value = (char *)"dram";
    metric.counter = true;
    metric.value = 5;
    status.server_version = (char *)"fake";
    status.uptime_ms = 1234;
    status.n_metrics = 1;
    status.metrics = metrics;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_STATUS;
    reply.status = &status;
    send_reply(client, &reply, false);
}

static void answer_join(struct client *client, uint32_t id, const Embtier__GroupJoin *join)
{
    struct fake_server *server = client->server;
    Embtier__GroupInfo info = EMBTIER__GROUP_INFO__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    if (server->join_err) {
        reply_error(client, id, (enum embtier_err)server->join_err,
                    "the fake server lets no client in");
        return;
    }
    server->join_size = join->size;
    server->join_member = join->member;
    info.handle = FAKE_GROUP + server->joined++;
    info.step = join->step;
    info.joined = 1;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_GROUP;
    reply.group = &info;
    send_reply(client, &reply, false);
}

static void describe_checkpoint(const struct client *client, uint64_t number,
                                Embtier__Checkpoint *ret_checkpoint)
{
    static char *tables[] = { (char *)"users", (char *)"words" };

    embtier__checkpoint__init(ret_checkpoint);
    ret_checkpoint->id = number;
    ret_checkpoint->created_ms = 1000 * number + 1;
    ret_checkpoint->automatic = number < FAKE_CHECKPOINT;
    ret_checkpoint->table_count = 2;
    ret_checkpoint->n_tables = client->server->unnamed_tables ? 0 : 2;
    ret_checkpoint->tables = tables;
    ret_checkpoint->bytes = 2000;
    ret_checkpoint->new_bytes = 1000;
    ret_checkpoint->pause_us = 250;
    ret_checkpoint->held_rows = 3;
    ret_checkpoint->spent_ms = 40;
    ret_checkpoint->tries = 5;
    ret_checkpoint->cut_updates = 6;
}

static void answer_checkpoint(struct client *client, uint32_t id, uint64_t number,
                              const Embtier__CheckpointCreate *create)
{
    Embtier__Checkpoint checkpoint;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    if (number != FAKE_CHECKPOINT ||
        (client->server->gone_restored && client->server->restores > 0)) {
        reply_error(client, id, EMBTIER_NOT_FOUND, "there is no such checkpoint");
        return;
    }
    describe_checkpoint(client, number, &checkpoint);
    if (create) {
        client->server->keep = create->keep;
        checkpoint.metadata = create->metadata;
        checkpoint.step = create->step;
        if (create->step_given_case == EMBTIER__CHECKPOINT_CREATE__STEP_GIVEN_STEP)
            checkpoint.step_given_case = EMBTIER__CHECKPOINT__STEP_GIVEN_STEP;
    }
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_CHECKPOINT;
    reply.checkpoint = &checkpoint;
    send_reply(client, &reply, false);
}

static void answer_checkpoints(struct client *client, uint32_t id)
{
    Embtier__Checkpoint checkpoints[2];
    Embtier__Checkpoint *pointers[] = { &checkpoints[0], &checkpoints[1] };
    Embtier__CheckpointListReply list = EMBTIER__CHECKPOINT_LIST_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    for (uint32_t i = 0; i < ARRAY_LEN(checkpoints); i++) {
        describe_checkpoint(client, FAKE_CHECKPOINT - 1 + i, &checkpoints[i]);
        checkpoints[i].n_tables = 0;
    }
    list.n_checkpoints = ARRAY_LEN(checkpoints);
    list.checkpoints = pointers;
    list.more = client->server->endless_lists;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_CHECKPOINT_LIST;
    reply.checkpoint_list = &list;
    send_reply(client, &reply, false);
}

static void answer_restore(struct client *client, uint32_t id,
                           const Embtier__CheckpointRestore *restore)
{
    char *all[] = { (char *)"users", (char *)"words" };
    char **names = restore->n_tables ? restore->tables : all;
    Embtier__TableSpec wires[ARRAY_LEN(all)];
    struct table_spec specs[ARRAY_LEN(all)];
    Embtier__TableInfo tables[ARRAY_LEN(all)];
    Embtier__TableInfo *pointers[] = { &tables[0], &tables[1] };
    Embtier__TableListReply list = EMBTIER__TABLE_LIST_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    client->server->restores++;
    if (restore->id != FAKE_CHECKPOINT) {
        reply_error(client, id, EMBTIER_NOT_FOUND, "there is no such checkpoint");
        return;
    }
    list.n_tables = restore->n_tables ? MIN(restore->n_tables, ARRAY_LEN(all)) : ARRAY_LEN(all);
    for (size_t i = 0; i < list.n_tables; i++) {
        const bool words = strcmp(names[i], "words") == 0;

        if (!words && strcmp(names[i], "users") != 0) {
            reply_error(client, id, EMBTIER_NO_TABLE, "the checkpoint has no such table");
            return;
        }
        specs[i] = spec_of(client->server, words);
        if (restore->name[0])
            snprintf(specs[i].name, sizeof(specs[i].name), "%s", restore->name);
        describe_table(words ? WORDS_HANDLE : USERS_HANDLE, &specs[i], &wires[i], &tables[i]);
        tables[i].table_id = (uint32_t)i + 1;
    }
    reply_progress(client, id, "bytes");
    list.tables = pointers;
    list.more = client->server->endless_lists || client->server->gone_restored;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE_LIST;
    reply.table_list = &list;
    send_reply(client, &reply, false);
}

/* Answers a request about checkpoints. False if @request is not about them. */
static bool answer_about_checkpoints(struct client *client, const Embtier__Request *request)
{
    if (request->body_case < EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE ||
        request->body_case > EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE)
        return false;
    if (client->server->wrong_reply) {
        answer_status(client, request->id);
        return true;
    }
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE:
        reply_progress(client, request->id, "bytes");
        answer_checkpoint(client, request->id, FAKE_CHECKPOINT, request->checkpoint_create);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW:
        answer_checkpoint(client, request->id, request->checkpoint_show->id, NULL);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_VERIFY:
        reply_progress(client, request->id, "bytes");
        answer_checkpoint(client, request->id, request->checkpoint_verify->id, NULL);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE:
        answer_restore(client, request->id, request->checkpoint_restore);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_DELETE:
        client->server->deleted += request->checkpoint_delete->id == FAKE_CHECKPOINT;
        answer_checkpoint(client, request->id, request->checkpoint_delete->id, NULL);
        break;
    default:
        answer_checkpoints(client, request->id);
    }
    return true;
}

/* Answers with an empty page: no tables follow those already listed. */
static void answer_rest(struct client *client, uint32_t id)
{
    Embtier__TableListReply list = EMBTIER__TABLE_LIST_REPLY__INIT;
    Embtier__Reply reply = EMBTIER__REPLY__INIT;

    list.more = client->server->endless_lists;
    reply.id = id;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE_LIST;
    reply.table_list = &list;
    send_reply(client, &reply, false);
}

static void answer_control(struct client *client, const Embtier__Request *request)
{
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_HELLO:
        answer_hello(client, request->id, request->hello);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_OPEN:
        answer_open(client, request->id, request->table_open->name);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_LIST:
        answer_rest(client, request->id);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_CREATE:
        answer_create(client, request->id, request->table_create->spec);
        break;
    case EMBTIER__REQUEST__BODY_GROUP_JOIN:
        answer_join(client, request->id, request->group_join);
        break;
    case EMBTIER__REQUEST__BODY_STATUS:
        answer_status(client, request->id);
        break;
    default:
        if (answer_about_checkpoints(client, request))
            break;
        reply_error(client, request->id, EMBTIER_UNSUPPORTED, "the fake server cannot do that");
    }
}

/* Reads and answers control messages. False if the client is gone. */
static bool read_control(struct client *client)
{
    uint8_t *space;
    size_t room;
    ssize_t count;
    const uint8_t *payload;
    uint32_t bytes;

    if (frame_reader_space(&client->reader, &space, &room) != EMBTIER_OK)
        return false;
    count = recv(client->fd, space, room, MSG_DONTWAIT);
    if (count < 0)
        return errno == EAGAIN;
    if (count == 0)
        return false;
    frame_reader_added(&client->reader, (size_t)count);
    while (frame_reader_next(&client->reader, &payload, &bytes, NULL) == EMBTIER_OK) {
        Embtier__Request *request;

        if (frame_decode_request(payload, bytes, &request, NULL) != EMBTIER_OK)
            return false;
        if (!client->server->mute)
            answer_control(client, request);
        embtier__request__free_unpacked(request, NULL);
        frame_reader_next_done(&client->reader);
    }
    return true;
}

static uint64_t serve_rows(struct client *client, const struct op_submission *submission)
{
    char *base = (char *)client->arena;
    const struct op_segment *segments = (void *)(base + submission->segments_offset);
    uint64_t rows = 0;

    for (uint32_t s = 0; s < submission->segment_count; s++) {
        const uint64_t *ids = (void *)(base + segments[s].ids_offset);
        const bool is_words = segments[s].table == WORDS_HANDLE;
        const struct table_spec spec = spec_of(client->server, is_words);
        const size_t row_bytes =
            table_spec_weight_bytes(&spec) +
            (submission->flags & OP_FLAG_STATE ? table_spec_state_bytes(&spec) : 0);

        for (uint32_t i = 0; i < segments[s].id_count; i++, rows++)
            if (submission->op == OP_GET)
                memset(base + segments[s].rows_offset + i * row_bytes, (int)(ids[i] & 0xff),
                       row_bytes);
    }
    return rows;
}

static uint64_t serve_pool(struct client *client, const struct op_submission *submission)
{
    char *base = (char *)client->arena;
    const struct op_pool_segment *segments = (void *)(base + submission->segments_offset);
    uint64_t rows = 0;

    for (uint32_t s = 0; s < submission->segment_count; s++) {
        const uint32_t dim = spec_of(client->server, segments[s].table == WORDS_HANDLE).dim;
        float *bags = (void *)(base + segments[s].bags_offset);

        for (uint32_t b = 0; b < segments[s].bag_count; b++)
            for (uint32_t d = 0; d < dim; d++)
                bags[b * dim + d] = (float)(b + 1);
        rows += segments[s].id_count;
    }
    return rows;
}

static void serve_push(struct client *client, const struct op_submission *submission)
{
    struct fake_server *server = client->server;
    char *base = (char *)client->arena;
    const struct op_push_segment *segments = (void *)(base + submission->segments_offset);

    for (uint32_t s = 0; s < MIN(submission->segment_count, FAKE_SEGMENTS); s++) {
        const uint64_t *ids = (void *)(base + segments[s].ids_offset);
        const float *gradients = (void *)(base + segments[s].gradients_offset);

        server->pushed[s] = segments[s];
        server->pushed_ids[s] = segments[s].ids_offset && segments[s].count ? ids[0] : 0;
        server->pushed_gradients[s] =
            segments[s].gradients_offset && segments[s].count ? gradients[0] : 0;
        if (segments[s].weights_offset)
            *(float *)(void *)(base + segments[s].weights_offset) = FAKE_WEIGHT;
    }
}

static uint64_t serve_request(struct client *client, const struct op_submission *submission)
{
    switch (submission->op) {
    case OP_POOL:
        return serve_pool(client, submission);
    case OP_PUSH:
    case OP_PREFETCH:
        serve_push(client, submission);
        return 0;
    case OP_RELEASE:
        return 0;
    default:
        return serve_rows(client, submission);
    }
}

static void answer_request(struct client *client, uint32_t number)
{
    struct op_completion *completion =
        &shm_completions(client->control)[number % client->slot_count];
    const struct op_submission submission =
        shm_submissions(client->arena)[number % client->slot_count];
    struct fake_server *server = client->server;

    server->submission = submission;
    completion->err = server->err;
    completion->segment = server->err ? server->err_segment : UINT32_MAX;
    completion->value = server->err_value;
    completion->limit = server->err_limit;
    completion->hit_rows = server->err ? 0 : serve_request(client, &submission);
    completion->ticket =
        !server->err && (submission.flags & OP_FLAG_TICKET || submission.op == OP_PREFETCH)
            ? FAKE_TICKET + number
            : 0;
    shm_publish_completion(completion, number + 1);
    if (shm_client_is_waiting(client->arena))
        syscall(SYS_futex, &completion->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    server->answered++;
}

static void serve_requests(struct client *client)
{
    uint64_t rings;

    if (!client->arena)
        return;
    if (read(client->fds[2], &rings, sizeof(rings)) == (ssize_t)sizeof(rings))
        client->server->doorbells += (unsigned)rings;
    client->taken = shm_read_tail(client->arena);
    client->server->taken = client->taken;
    if (client->server->hold)
        return;
    if (client->server->reverse)
        for (uint32_t n = client->taken; n > client->answered; n--)
            answer_request(client, n - 1);
    else
        for (uint32_t n = client->answered; n < client->taken; n++)
            answer_request(client, n);
    client->answered = client->taken;
}

static void serve_client(struct fake_server *server, int fd)
{
    struct client client = { .server = server, .fd = fd, .fds = { -1, -1, -1 } };

    frame_reader_init(&client.reader, FRAME_REQUEST_BYTES_MAX);
    while (!server->stop && read_control(&client)) {
        const uint32_t farewell = server->farewell;
        struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

        if (farewell) {
            reply_error(&client, 0, (enum embtier_err)farewell, "the fake server has had enough");
            if (client.control)
                client.control->closed = farewell;
            server->farewell = 0;
            break;
        }
        if (atomic_exchange(&server->drop_client, false))
            break;
        serve_requests(&client);
        poll(&poll_fd, 1, 1);
    }
    close(fd);
    for (int i = 0; i < 3; i++)
        closep(&client.fds[i]);
    if (client.control)
        munmap(client.control, client.control_bytes);
    if (client.arena)
        munmap(client.arena, client.arena_bytes);
    frame_reader_done(&client.reader);
    server->ended++;
}

static void *run(void *arg)
{
    struct fake_server *server = arg;

    while (!server->stop) {
        struct pollfd poll_fd = { .fd = server->listen_fd, .events = POLLIN };

        if (poll(&poll_fd, 1, 5) == 1) {
            const int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);

            if (fd >= 0)
                serve_client(server, fd);
        }
    }
    return NULL;
}

void fake_server_start(struct fake_server *server)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    pthread_t *thread = malloc(sizeof(*thread));

    snprintf(server->path, sizeof(server->path), "/tmp/embtier-fake-%d.sock", (int)getpid());
    unlink(server->path);
    memcpy(address.sun_path, server->path, sizeof(address.sun_path));
    server->stop = false;
    server->users_dim = 4;
    server->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listen_fd < 0 ||
        bind(server->listen_fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(server->listen_fd, 8) != 0)
        die("fake server");
    server->thread = thread;
    if (!thread || pthread_create(thread, NULL, run, server) != 0)
        die("fake server: thread");
}

void fake_server_stop(struct fake_server *server)
{
    if (!server->thread)
        return;
    server->stop = true;
    pthread_join(*(pthread_t *)server->thread, NULL);
    free(server->thread);
    server->thread = NULL;
    close(server->listen_fd);
    unlink(server->path);
}
