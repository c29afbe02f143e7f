/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a hostile server in libembtier: a client connects, says hello and makes calls
 * (reply_input.h). A call ends with an error and a reason, or with a result that can be read.
 *
 * Whenever the client begins to wait, the server sends its next frame. When it has no more, it
 * closes its side. So nothing waits, and the same input does the same each time. */
#include "tests/fuzz/lib/fuzz.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/include/embtier.h"
#include "proto/frame.h"
#include "tests/fuzz/lib/reply_input.h"
#include "tests/fuzz/lib/rpc_sums.h"

#define TIMEOUT_MS  60000
#define ARENA_BYTES 65536
#define SLOTS       4
#define IDS         4
#define TABLE       "users"

/* The server. */
static struct {
    char address[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 16];
    int listener, fd;         /* fd: to the client; -1: none */
    struct fuzz_input frames; /* still to be sent */
    bool is_rpc;
} served = { .listener = -1, .fd = -1 };

/* ---- The server ---- */

int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    if (served.fd >= 0) { /* there is one connection for each input */
        errno = ECONNREFUSED;
        return -1;
    }
    if (__real_connect(fd, address, bytes) != 0)
        return -1;
    served.fd = accept4(served.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    FUZZ_CHECK(served.fd >= 0);
    return 0;
}

/* Returns the bytes of the next frame, or all that are left. */
static size_t next_frame_bytes(void)
{
    const size_t left = served.frames.left;
    struct err_msg msg;
    struct rpc_head head;
    uint32_t length;

    if (served.is_rpc) {
        if (left < RPC_HEAD_BYTES ||
            rpc_head_decode(served.frames.at, UINT32_MAX, &head, &msg) != EMBTIER_OK)
            return left;
        return MIN((uint64_t)RPC_HEAD_BYTES + head.message_bytes + head.payload_bytes,
                   (uint64_t)left);
    }
    if (left < FRAME_HEADER_BYTES)
        return left;
    memcpy(&length, served.frames.at, sizeof(length));
    return MIN(FRAME_HEADER_BYTES + (size_t)length, left);
}

/* Bytes that the socket does not take are lost. */
static void serve(void)
{
    const size_t bytes = next_frame_bytes();

    if (bytes > 0)
        (void)!send(served.fd, served.frames.at, bytes, MSG_NOSIGNAL);
    else
        (void)shutdown(served.fd, SHUT_WR);
    served.frames.at += bytes;
    served.frames.left -= bytes;
}

/* The client waits. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (served.fd >= 0 && (fds->events & POLLIN))
        serve();
    return __real_poll(fds, count, timeout_ms);
}

static void listen_once(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    if (served.listener >= 0)
        return;
    FUZZ_CHECK(snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", fuzz_folder()) <
               (int)sizeof(address.sun_path));
    snprintf(served.address, sizeof(served.address), "unix+rpc:%s", address.sun_path);
    served.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    FUZZ_CHECK(bind(served.listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    FUZZ_CHECK(listen(served.listener, 1) == 0);
}

/* ---- Results ---- */

static void read_text(const char *text)
{
    FUZZ_CHECK(!text || strlen(text) < MIB);
}

static void read_table(const struct embtier_table_info *info)
{
    read_text(info->name);
    read_text(info->state);
    read_text(info->uuid);
    read_text(info->home_tier);
    FUZZ_CHECK(info->dim >= 1 && info->dim <= EMBTIER_DIM_MAX);
    FUZZ_CHECK(info->weight_bytes >= info->dim && info->weight_bytes <= 4 * info->dim);
}

static void read_checkpoints(struct embtier_checkpoint_list *list)
{
    for (size_t i = 0; i < embtier_checkpoint_list_count(list); i++) {
        const struct embtier_checkpoint *const one = embtier_checkpoint_list_at(list, i);

        read_text(one->metadata);
        for (uint32_t k = 0; one->tables && k < one->table_count; k++)
            read_text(one->tables[k]);
    }
    embtier_checkpoint_list_free(list);
}

static void read_tables(struct embtier_table_list *list)
{
    for (size_t i = 0; i < embtier_table_list_count(list); i++)
        read_table(embtier_table_list_at(list, i));
    embtier_table_list_free(list);
}

static void read_latency(const struct embtier_latency *latency)
{
    uint64_t requests = 0;

    read_text(latency->op);
    read_text(latency->transport);
    for (size_t r = 0; r <= latency->bound_count; r++)
        requests += latency->counts[r];
    assert(requests == latency->requests);
}

/* ---- Calls ---- */

static enum embtier_err call_status(struct embtier *server)
{
    struct embtier_status *status = NULL;

    TRY(embtier_status(server, &status));
    read_text(embtier_status_version(status));
    for (size_t i = 0; i < embtier_status_library_count(status); i++)
        read_text(embtier_status_library_at(status, i));
    for (size_t i = 0; i < embtier_status_count(status); i++)
        read_text(embtier_status_at(status, i)->name);
    for (size_t i = 0; i < embtier_status_latency_count(status); i++)
        read_latency(embtier_status_latency_at(status, i));
    embtier_status_free(status);
    return EMBTIER_OK;
}

static enum embtier_err call_table_list(struct embtier *server)
{
    struct embtier_table_list *list = NULL;

    TRY(embtier_table_list(server, &list));
    read_tables(list);
    return EMBTIER_OK;
}

static enum embtier_err call_table_open(struct embtier *server)
{
    struct embtier_table *table = NULL;

    TRY(embtier_table_open(server, TABLE, &table));
    read_table(embtier_table_info(table));
    embtier_table_close(table);
    return EMBTIER_OK;
}

static struct embtier_table_options options_of_table(void)
{
    struct embtier_table_options options = EMBTIER_TABLE_OPTIONS_INIT;

    options.name = TABLE;
    options.rows = 100;
    options.dim = 4;
    return options;
}

static enum embtier_err call_table_create(struct embtier *server)
{
    const struct embtier_table_options options = options_of_table();
    struct embtier_table *table = NULL;

    TRY(embtier_table_create(server, &options, &table));
    read_table(embtier_table_info(table));
    embtier_table_close(table);
    return EMBTIER_OK;
}

static void on_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    (void)context;
    (void)done;
    (void)total;
    read_text(unit);
}

static enum embtier_err call_table_drop(struct embtier *server)
{
    return embtier_table_drop(server, TABLE, on_progress, NULL);
}

static enum embtier_err call_table_move(struct embtier *server)
{
    struct embtier_move_options options = EMBTIER_MOVE_OPTIONS_INIT;
    struct embtier_moved_info moved;

    options.progress = on_progress;
    return embtier_table_move(server, TABLE, &options, &moved);
}

static enum embtier_err call_checkpoint_list(struct embtier *server)
{
    struct embtier_checkpoint_list *list = NULL;

    TRY(embtier_checkpoint_list(server, &list));
    read_checkpoints(list);
    return EMBTIER_OK;
}

static enum embtier_err call_checkpoint_show(struct embtier *server)
{
    struct embtier_checkpoint_list *list = NULL;

    TRY(embtier_checkpoint_show(server, 1, &list));
    read_checkpoints(list);
    return EMBTIER_OK;
}

static enum embtier_err call_checkpoint_create(struct embtier *server)
{
    struct embtier_checkpoint_list *list = NULL;

    TRY(embtier_checkpoint_create(server, NULL, on_progress, NULL, &list));
    read_checkpoints(list);
    return EMBTIER_OK;
}

static enum embtier_err call_checkpoint_restore(struct embtier *server)
{
    struct embtier_table_list *list = NULL;

    TRY(embtier_checkpoint_restore(server, 1, NULL, 0, NULL, on_progress, NULL, &list));
    read_tables(list);
    return EMBTIER_OK;
}

static enum embtier_err call_job_list(struct embtier *server)
{
    struct embtier_job_list *list = NULL;

    TRY(embtier_job_list(server, &list));
    for (size_t i = 0; i < embtier_job_list_count(list); i++) {
        read_text(embtier_job_list_at(list, i)->kind);
        read_text(embtier_job_list_at(list, i)->what);
        read_text(embtier_job_list_at(list, i)->unit);
    }
    embtier_job_list_free(list);
    return EMBTIER_OK;
}

static enum embtier_err call_session_list(struct embtier *server)
{
    struct embtier_session_list *list = NULL;

    TRY(embtier_session_list(server, &list));
    for (size_t i = 0; i < embtier_session_list_count(list); i++) {
        read_text(embtier_session_list_at(list, i)->user);
        read_text(embtier_session_list_at(list, i)->address);
        read_text(embtier_session_list_at(list, i)->transport);
        read_text(embtier_session_list_at(list, i)->client);
    }
    embtier_session_list_free(list);
    return EMBTIER_OK;
}

static enum embtier_err call_session_end(struct embtier *server)
{
    return embtier_session_end(server, 1);
}

static enum embtier_err call_job_cancel(struct embtier *server)
{
    int runs;

    return embtier_job_cancel(server, 1, &runs);
}

static enum embtier_err call_account_list(struct embtier *server)
{
    struct embtier_account_list *list = NULL;

    TRY(embtier_account_list(server, &list));
    for (size_t i = 0; i < embtier_account_list_count(list); i++)
        read_text(embtier_account_list_at(list, i)->name);
    embtier_account_list_free(list);
    return EMBTIER_OK;
}

static enum embtier_err call_plan(struct embtier *server)
{
    struct embtier_plan_info info;

    TRY(embtier_plan_show(server, &info));
    TRY(embtier_plan_begin(server, 1, 2, 3, &info));
    return embtier_plan_end(server);
}

static enum embtier_err call_compaction(struct embtier *server)
{
    struct embtier_compaction_list *list = NULL;

    TRY(embtier_compaction_show(server, &list));
    read_text(embtier_compaction_facts(list)->hours);
    read_text(embtier_compaction_facts(list)->limit_state);
    read_text(embtier_compaction_facts(list)->limit_why);
    for (size_t i = 0; i < embtier_compaction_list_count(list); i++) {
        read_text(embtier_compaction_list_at(list, i)->path);
        read_text(embtier_compaction_list_at(list, i)->state);
        read_text(embtier_compaction_list_at(list, i)->why);
    }
    embtier_compaction_list_free(list);
    TRY(embtier_compaction_set_hours(server, "22:00-06:00"));
    TRY(embtier_compaction_run(server, NULL, NULL));
    return embtier_compaction_rewrite(server, NULL, NULL);
}

static enum embtier_err call_reshard(struct embtier *server)
{
    struct embtier_data_list *list = NULL;
    struct embtier_reshard reshard;

    TRY(embtier_reshard_show(server, &reshard));
    TRY(embtier_reshard_run(server, 3, 0, NULL, NULL, &reshard));
    TRY(embtier_data_list(server, &list));
    for (size_t i = 0; i < embtier_data_list_count(list); i++)
        (void)strlen(embtier_data_list_at(list, i)->path);
    embtier_data_list_free(list);
    return EMBTIER_OK;
}

static enum embtier_err call_knobs(struct embtier *server)
{
    struct embtier_knob_list *list = NULL;
    struct embtier_knob_change *change = NULL;

    TRY(embtier_knob_list(server, NULL, &list));
    for (size_t i = 0; i < embtier_knob_list_count(list); i++)
        read_text(embtier_knob_list_at(list, i)->value);
    embtier_knob_list_free(list);
    TRY(embtier_knob_set(server, "log.level", "info", 0, &change));
    read_text(embtier_knob_change_old(change));
    embtier_knob_change_free(change);
    return EMBTIER_OK;
}

static enum embtier_err call_profile(struct embtier *server)
{
    struct embtier_profile_info info;

    TRY(embtier_profile_start(server, 0, &info));
    return embtier_profile_stop(server, NULL);
}

static enum embtier_err call_profile_save(struct embtier *server)
{
    enum embtier_err err;
    char path[256];

    snprintf(path, sizeof(path), "%s/profile", fuzz_folder());
    err = embtier_profile_save(server, path);
    if (err == EMBTIER_OK)
        FUZZ_CHECK(unlink(path) == 0);
    else
        FUZZ_CHECK(access(path, F_OK) != 0);
    return err;
}

static enum embtier_err call_group_join(struct embtier *server)
{
    struct embtier_group_options options = EMBTIER_GROUP_OPTIONS_INIT;
    struct embtier_group *group = NULL;
    enum embtier_err err;

    options.name = "trainers";
    options.size = 2;
    TRY(embtier_group_join(server, &options, &group));
    err = embtier_group_leave(group);
    embtier_group_free(group);
    return err;
}

/* Reads the first and the last byte of what a scan gives. */
static void read_rows(const struct embtier_scan_rows *rows)
{
    volatile uint8_t byte;

    if (rows->count == 0)
        return;
    byte = ((const uint8_t *)rows->rows)[0];
    byte = ((const uint8_t *)rows->rows)[(size_t)rows->count * rows->row_bytes - 1];
    if (rows->ids)
        byte = ((const uint8_t *)rows->ids)[(size_t)rows->count * sizeof(uint64_t) - 1];
    (void)byte;
}

static enum embtier_err call_scan(struct embtier *server)
{
    struct embtier_scan_rows rows = { .count = 1 };
    struct embtier_scan *scan = NULL;
    enum embtier_err err = EMBTIER_OK;

    TRY(embtier_scan_open(server, TABLE, NULL, &scan));
    read_table(embtier_scan_table(scan));
    while (err == EMBTIER_OK && rows.count > 0) {
        err = embtier_scan_next(scan, &rows);
        if (err == EMBTIER_OK)
            read_rows(&rows);
    }
    embtier_scan_close(scan);
    return err;
}

static enum embtier_err call_load(struct embtier *server)
{
    const struct embtier_table_options options = options_of_table();
    struct embtier_load *load = NULL;
    struct embtier_load_buffer buffer;
    enum embtier_err err;

    TRY(embtier_load_open(server, &options, 0, 4096, &load));
    buffer = embtier_load_buffer(load);
    FUZZ_CHECK(buffer.capacity >= 1);
    buffer.ids[buffer.capacity - 1] = 0;
    memset(buffer.rows, 0, (size_t)buffer.capacity * buffer.row_bytes);
    err = embtier_load_rows(load, buffer.capacity);
    if (err == EMBTIER_OK)
        err = embtier_load_end(load, on_progress, NULL);
    embtier_load_close(load);
    return err;
}

static enum embtier_err call_get(struct embtier *server)
{
    struct embtier_part part = { .count = IDS };
    struct embtier_batch *batch = NULL;
    enum embtier_err err;

    TRY(embtier_table_open(server, TABLE, &part.table));
    err = embtier_batch_new(server, &part, 1, &batch);
    if (err == EMBTIER_OK) {
        memset(embtier_batch_ids(batch, 0), 0, IDS * sizeof(uint64_t));
        err = embtier_get(batch);
        embtier_batch_free(batch);
    }
    embtier_table_close(part.table);
    return err;
}

static enum embtier_err pool_and_push(struct embtier_batch *batch)
{
    struct embtier_push_options options = EMBTIER_PUSH_OPTIONS_INIT;

    options.step = 1;
    options.weight_gradients = 1;
    memset(embtier_batch_ids(batch, 0), 0, IDS * sizeof(uint64_t));
    for (uint32_t i = 0; i < IDS; i++)
        embtier_batch_weights(batch, 0)[i] = 1;
    embtier_batch_offsets(batch, 0)[0] = 0;
    embtier_batch_offsets(batch, 0)[1] = IDS;
    TRY(embtier_get_pooled_ticket(batch));
    return embtier_push(batch, &options);
}

static enum embtier_err call_pool_and_push(struct embtier *server)
{
    struct embtier_bag_part part = {
        .count = IDS, .bag_count = 1, .mode = EMBTIER_POOL_SUM, .weighted = 1
    };
    struct embtier_batch *batch = NULL;
    enum embtier_err err;

    TRY(embtier_table_open(server, TABLE, &part.table));
    err = embtier_batch_new_bags(server, &part, 1, &batch);
    if (err == EMBTIER_OK) {
        err = pool_and_push(batch);
        embtier_batch_free(batch);
    }
    embtier_table_close(part.table);
    return err;
}

/* ---- One input ---- */

/* The caller prints the message, so it has no control characters of the server's. */
static void check_message(const struct embtier *server)
{
    const char *at = embtier_message(server);

    FUZZ_CHECK(*at);
    for (; *at; at++)
        FUZZ_CHECK((uint8_t)*at >= 0x20 && *at != 0x7f);
}

static void call(struct embtier *server, uint8_t number)
{
    static enum embtier_err (*const calls[])(struct embtier * server) = {
#define X(name, function) function,
        REPLY_CALLS(X)
#undef X
    };
    const enum embtier_err err = calls[number % REPLY_CALL_COUNT](server);

    if (err != EMBTIER_OK)
        check_message(server);
}

static void connect_and_call(bool is_rpc, const uint8_t *numbers, uint32_t count)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    struct embtier *server = NULL;

    options.socket_path = served.address + (is_rpc ? 0 : strlen("unix+rpc:"));
    options.arena_bytes = is_rpc ? ARENA_BYTES : 0;
    options.max_in_flight = SLOTS;
    options.timeout_ms = TIMEOUT_MS;
    if (embtier_connect(&options, &server) != EMBTIER_OK) {
        check_message(NULL);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        call(server, numbers[i]);
    embtier_disconnect(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    const bool is_rpc = fuzz_byte(&input) & REPLY_RPC;
    const uint32_t count = fuzz_byte(&input) % (REPLY_CALLS_MAX + 1);
    uint8_t numbers[REPLY_CALLS_MAX];
    _cleanup_(freep) uint8_t *stream = NULL;

    fuzz_take(&input, numbers, count);
    stream = fuzz_copy(input.at, input.left);
    if (is_rpc)
        rpc_repair_stream(stream, input.left);
    listen_once();
    served.frames = (struct fuzz_input){ .at = stream, .left = input.left };
    served.is_rpc = is_rpc;
    connect_and_call(is_rpc, numbers, count);
    closep(&served.fd);
    served.fd = -1;
    return 0;
}
