/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/abusers.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/shm_ring.h"
#include "tests/bench/lib/bench.h"

#define MUTE_COUNT      100
#define PASSED_FDS      12
#define PIPELINED       64
#define FLOOD_WARM_ACTS 16      /* enough of its large requests that its memory has been touched */
#define CONNECTS_PERIOD 1000000 /* in ns */
#define SESSION_FDS     3
#define LOOP_SLOTS      4
#define STARTED_NS      (UINT64_C(60) * 1000 * 1000 * 1000) /* idle ones wait for a busy machine */

struct self {
    const struct abuser_place *place;
    _Atomic uint64_t *acts;
    uint64_t random;
};

static void acted(struct self *self)
{
    atomic_fetch_add(self->acts, 1);
}

/* ---- The socket ---- */

/* Waits for the accept, which may be slow but comes. */
static int connect_to(const struct self *self)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(address.sun_path, self->place->socket, sizeof(address.sun_path) - 1);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        bench_die("abuser: connect: %s", strerror(errno));
    return fd;
}

/* False if the server has closed the connection. */
static bool send_all(int fd, const void *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

        if (sent < 0)
            return false;
        bytes = (const uint8_t *)bytes + sent;
        count -= (size_t)sent;
    }
    return true;
}

static bool send_request(int fd, const Embtier__Request *request)
{
    uint8_t *bytes;
    size_t count;
    bool sent;

    if (frame_encode_request(request, &bytes, &count) != EMBTIER_OK)
        bench_die("abuser: a request cannot be encoded");
    sent = send_all(fd, bytes, count);
    free(bytes);
    return sent;
}

static bool send_hello(int fd, uint64_t arena_bytes, uint32_t slot_count)
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
    return send_request(fd, &request);
}

/* @count frames in a row that ask for the status, or now and then for the list of tables.
 * Malloced. */
static uint8_t *status_frames(uint32_t count, size_t *ret_bytes)
{
    Embtier__Status status = EMBTIER__STATUS__INIT;
    Embtier__TableList list = EMBTIER__TABLE_LIST__INIT;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    uint8_t *all = NULL;
    size_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint8_t *bytes;
        size_t one;

        request.id = i + 1;
        request.body_case =
            i % 8 == 7 ? EMBTIER__REQUEST__BODY_TABLE_LIST : EMBTIER__REQUEST__BODY_STATUS;
        if (i % 8 == 7)
            request.table_list = &list;
        else
            request.status = &status;
        if (frame_encode_request(&request, &bytes, &one) != EMBTIER_OK)
            bench_die("abuser: a request cannot be encoded");
        all = realloc(all, at + one);
        if (!all)
            bench_die("abuser: out of memory");
        memcpy(all + at, bytes, one);
        at += one;
        free(bytes);
    }
    *ret_bytes = at;
    return all;
}

/* Receives one reply and its descriptors. */
static bool receive_hello(int fd, int *ret_fds)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(SESSION_FDS * sizeof(int))];
    } control;
    uint8_t bytes[4096];
    struct iovec part = { .iov_base = bytes, .iov_len = sizeof(bytes) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) <= 0)
        return false;
    if (!CMSG_FIRSTHDR(&message) || control.head.cmsg_len != CMSG_LEN(SESSION_FDS * sizeof(int)))
        bench_die("abuser: no session");
    memcpy(ret_fds, CMSG_DATA(&control.head), SESSION_FDS * sizeof(int));
    return true;
}

static void send_fds(int fd, const void *bytes, size_t count)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(PASSED_FDS * sizeof(int))];
    } control = { { 0 } };
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = count };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    int fds[PASSED_FDS];

    for (uint32_t i = 0; i < PASSED_FDS; i++)
        fds[i] = fd;
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void read_to_the_end(int fd)
{
    uint8_t bytes[4096];

    shutdown(fd, SHUT_WR);
    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        continue;
    close(fd);
}

/* ---- The abusers ---- */

static void be_mute(struct self *self)
{
    static const uint8_t half[] = { 20, 0, 0, 0, 8 };

    for (uint32_t i = 0; i < 2 * MUTE_COUNT; i++)
        if (!send_all(connect_to(self), half, i % 2 ? sizeof(half) : 0))
            bench_die("abuser: send: %s", strerror(errno));
    acted(self);
    for (;;)
        pause();
}

static void speak_garbage(struct self *self)
{
    uint8_t bytes[4096];

    for (uint32_t round = 0;; round++) {
        const uint32_t kind = round % 4;
        const uint32_t count = 1 + (uint32_t)(bench_random(&self->random) % 1000);
        const int fd = connect_to(self);

        for (uint32_t i = 0; i < sizeof(bytes); i += sizeof(uint64_t)) {
            const uint64_t word = bench_random(&self->random);

            memcpy(bytes + i, &word, sizeof(word));
        }
        if (kind == 1) /* a frame with a random body, after a good hello */
            memcpy(bytes, &count, FRAME_HEADER_BYTES);
        else if (kind == 2) /* a frame that announces more than is sent */
            memcpy(bytes, &(uint32_t){ count + 100 }, FRAME_HEADER_BYTES);
        if (kind > 0)
            (void)send_hello(fd, 0, 0);
        if (kind == 3)
            send_fds(fd, bytes, count);
        else
            (void)send_all(fd, bytes, FRAME_HEADER_BYTES + count);
        read_to_the_end(fd);
        acted(self);
    }
}

static void never_read(struct self *self)
{
    size_t bytes;
    uint8_t *const frames = status_frames(PIPELINED, &bytes);

    for (;;) {
        const int fd = connect_to(self);
        size_t at = 0;

        (void)send_hello(fd, 0, 0);
        for (;;) {
            const ssize_t sent = send(fd, frames + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);

            if (sent < 0 && errno != EAGAIN)
                break;
            at = sent > 0 ? (at + (size_t)sent) % bytes : at;
            acted(self);
            if (sent < 0)
                (void)poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 10);
        }
        close(fd);
    }
}

static void ask_for_status(struct self *self)
{
    size_t bytes;
    uint8_t *const frames = status_frames(PIPELINED, &bytes);
    const int fd = connect_to(self);
    struct frame_reader reader;
    struct err_msg msg;
    const uint8_t *payload;
    uint32_t count;

    frame_reader_init(&reader, FRAME_BYTES_MAX);
    (void)send_hello(fd, 0, 0);
    for (uint32_t left = 1;; left = PIPELINED) {
        while (left > 0) {
            if (frame_reader_next(&reader, &payload, &count, &msg) == EMBTIER_OK) {
                frame_reader_next_done(&reader);
                acted(self);
                left--;
                continue;
            }
            uint8_t *space;
            size_t room;
            ssize_t got;

            if (frame_reader_space(&reader, &space, &room) != EMBTIER_OK ||
                (got = recv(fd, space, room, 0)) <= 0)
                bench_die("abuser: no answer: %s", strerror(errno));
            frame_reader_added(&reader, (size_t)got);
        }
        if (!send_all(fd, frames, bytes))
            bench_die("abuser: send: %s", strerror(errno));
    }
}

static void connect_a_lot(struct self *self, bool hello)
{
    struct timespec due;

    clock_gettime(CLOCK_MONOTONIC, &due);
    for (;; acted(self)) {
        const int fd = connect_to(self);
        int fds[SESSION_FDS];

        if (hello && send_hello(fd, 64 * KIB, 64) && receive_hello(fd, fds))
            for (uint32_t i = 0; i < SESSION_FDS; i++)
                close(fds[i]);
        close(fd);
        due.tv_nsec += CONNECTS_PERIOD;
        if (due.tv_nsec >= 1000000000L) {
            due.tv_nsec -= 1000000000L;
            due.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    }
}

/* All of the session's requests are the same two, over the same ids and rows. None of our
 * clients could do that, and the server must not mind. */
static void flood(struct self *self)
{
    const struct abuser_place *const place = self->place;
    const uint64_t payload = align_up(shm_arena_payload_offset(OP_SLOTS_MAX), SHM_ALIGN);
    const uint64_t ids_at = payload + 2 * sizeof(struct op_segment);
    const uint64_t rows_at = align_up(ids_at + place->huge_rows * sizeof(uint64_t), SHM_ALIGN);
    const uint64_t arena_bytes =
        align_up(rows_at + (uint64_t)place->huge_rows * place->row_bytes, 4096);
    const int fd = connect_to(self);
    int fds[SESSION_FDS];
    struct shm_control *control;
    struct shm_arena_head *head;
    struct op_segment *segments;

    if (!send_hello(fd, arena_bytes, OP_SLOTS_MAX) || !receive_hello(fd, fds))
        bench_die("abuser: no session");
    control = mmap(NULL, shm_control_bytes(OP_SLOTS_MAX), PROT_READ, MAP_SHARED, fds[0], 0);
    head = mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    if (control == MAP_FAILED || head == MAP_FAILED)
        bench_die("abuser: no memory");
    segments = (struct op_segment *)((uint8_t *)head + payload);
    for (uint32_t i = 0; i < 2; i++)
        segments[i] = (struct op_segment){ .table = place->table,
                                           .ids_offset = ids_at,
                                           .rows_offset = rows_at,
                                           .id_count = i ? place->huge_rows : 1 };
    for (uint32_t i = 0; i < place->huge_rows; i++)
        ((uint64_t *)((uint8_t *)head + ids_at))[i] = i;
    for (uint32_t i = 0; i < OP_SLOTS_MAX; i++)
        shm_submissions(head)[i] = (struct op_submission){
            .op = i % 8 < 6 ? OP_GET : OP_SET,
            .segment_count = 1,
            .segments_offset = payload + i % 2 * sizeof(struct op_segment),
        };
    for (uint32_t done = 0;;) {
        shm_publish_tail(head, done + OP_SLOTS_MAX);
        if (shm_lane_is_asleep(control) && write(fds[2], &(uint64_t){ 1 }, sizeof(uint64_t)) < 0)
            bench_die("abuser: doorbell: %s", strerror(errno));
        if (atomic_load(&control->closed))
            bench_die("abuser: the session was ended");
        while (shm_read_sequence(&shm_completions(control)[done % OP_SLOTS_MAX]) == done + 1) {
            done++;
            acted(self);
        }
    }
}

/* ---- Sessions in a closed loop ---- */

/* All segments of a request have the same ids and the same place for the rows. */
struct loop_shape {
    uint32_t sessions;
    uint32_t segments;
    uint32_t ids;       /* per segment */
    uint32_t in_flight; /* requests per session */
    long rest_ns;       /* between looks at the answers, since each look takes a core from others */
};

struct loop_session {
    int fds[SESSION_FDS];
    struct shm_control *control;
    struct shm_arena_head *head;
    uint32_t submitted, answered;
};

static void loop_start(const struct self *self, const struct loop_shape *shape,
                       struct loop_session *session)
{
    const struct abuser_place *const place = self->place;
    const uint64_t payload = align_up(shm_arena_payload_offset(LOOP_SLOTS), SHM_ALIGN);
    const uint64_t ids_at = payload + shape->segments * sizeof(struct op_segment);
    const uint64_t rows_at = align_up(ids_at + shape->ids * sizeof(uint64_t), SHM_ALIGN);
    const uint64_t arena_bytes = align_up(rows_at + (uint64_t)shape->ids * place->row_bytes, 4096);
    const int fd = connect_to(self);
    struct op_segment *segments;

    if (!send_hello(fd, arena_bytes, LOOP_SLOTS) || !receive_hello(fd, session->fds))
        bench_die("abuser: no session");
    session->control =
        mmap(NULL, shm_control_bytes(LOOP_SLOTS), PROT_READ, MAP_SHARED, session->fds[0], 0);
    session->head = mmap(NULL, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->fds[1], 0);
    if (session->control == MAP_FAILED || session->head == MAP_FAILED)
        bench_die("abuser: no memory");
    segments = (struct op_segment *)((uint8_t *)session->head + payload);
    for (uint32_t i = 0; i < shape->segments; i++)
        segments[i] = (struct op_segment){ .table = place->table,
                                           .ids_offset = ids_at,
                                           .rows_offset = rows_at,
                                           .id_count = shape->ids };
    for (uint32_t i = 0; i < shape->ids; i++)
        ((uint64_t *)((uint8_t *)session->head + ids_at))[i] = i % place->huge_rows;
    for (uint32_t i = 0; i < LOOP_SLOTS; i++)
        shm_submissions(session->head)[i] = (struct op_submission){
            .op = OP_GET, .segment_count = shape->segments, .segments_offset = payload
        };
}

/* Takes an answer, if there is one, and submits requests until @in_flight are in flight. True if
 * there was an answer. */
static bool loop_go_on(struct loop_session *session, uint32_t in_flight)
{
    struct op_completion *const completion =
        &shm_completions(session->control)[session->answered % LOOP_SLOTS];
    const bool is_answered = session->answered < session->submitted &&
                             shm_read_sequence(completion) == session->answered + 1;

    if (is_answered && completion->err != EMBTIER_OK)
        bench_die("abuser: its request was refused");
    if (atomic_load(&session->control->closed))
        bench_die("abuser: the session was ended");
    session->answered += is_answered;
    while (session->submitted - session->answered < in_flight)
        shm_publish_tail(session->head, ++session->submitted);
    if (shm_lane_is_asleep(session->control) &&
        write(session->fds[2], &(uint64_t){ 1 }, sizeof(uint64_t)) < 0)
        bench_die("abuser: doorbell: %s", strerror(errno));
    return is_answered;
}

static void ask_in_loops(struct self *self, const struct loop_shape *shape)
{
    struct loop_session *const sessions = bench_alloc(shape->sessions, sizeof(*sessions));

    for (uint32_t i = 0; i < shape->sessions; i++)
        loop_start(self, shape, &sessions[i]);
    for (;;) {
        bool any = false;

        for (uint32_t i = 0; i < shape->sessions; i++) {
            if (!loop_go_on(&sessions[i], shape->in_flight))
                continue;
            any = true;
            acted(self);
        }
        if (!any)
            nanosleep(&(struct timespec){ .tv_nsec = shape->rest_ns }, NULL);
    }
}

struct order {
    enum abuser_kind kind;
    const struct abuser_place *place;
};

static void abuse(const void *context, _Atomic uint64_t *acts)
{
    const struct order *const order = context;
    struct self abuser = { .place = order->place, .acts = acts, .random = 88172645463325252u };
    struct self *const self = &abuser;

    if (order->kind < ABUSER_SEGMENTS) /* loops mostly sleep, and must go on in time */
        abuser_be_idle();
    switch (order->kind) {
    case ABUSER_MUTE:
        be_mute(self);
        break;
    case ABUSER_GARBAGE:
        speak_garbage(self);
        break;
    case ABUSER_UNREAD:
        never_read(self);
        break;
    case ABUSER_FLOOD:
        flood(self);
        break;
    case ABUSER_STATUS:
        ask_for_status(self);
        break;
    case ABUSER_CONNECTS:
    case ABUSER_CONNECTS_HELLO:
        connect_a_lot(self, order->kind == ABUSER_CONNECTS_HELLO);
        break;
    case ABUSER_SEGMENTS:
        ask_in_loops(self, &(struct loop_shape){ 20, OP_SEGMENTS_MAX, 16, 1, 20000 });
        break;
    case ABUSER_SEGMENTS_100:
        ask_in_loops(self, &(struct loop_shape){ 100, OP_SEGMENTS_MAX, 16, 1, 20000 });
        break;
    case ABUSER_MILLION:
        ask_in_loops(self, &(struct loop_shape){ 1, 16, 62500, 2, 1000000 });
        break;
    }
}

/* ---- Starting and ending ---- */

void abuser_be_idle(void)
{
    const struct sched_param param = { 0 };

    if (sched_setscheduler(0, SCHED_IDLE, &param) != 0)
        bench_die("abuser: %s", strerror(errno));
}

struct abuser abuser_start_with(void (*run)(const void *context, _Atomic uint64_t *acts),
                                const void *context, uint64_t least)
{
    const double began = bench_now();
    struct abuser abuser;

    abuser.acts =
        mmap(NULL, sizeof(*abuser.acts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (abuser.acts == MAP_FAILED)
        bench_die("no shared memory");
    abuser.pid = fork();
    if (abuser.pid < 0)
        bench_die("fork: %s", strerror(errno));
    if (abuser.pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
            bench_die("abuser: %s", strerror(errno));
        run(context, abuser.acts);
        _exit(1);
    }
    while (atomic_load(abuser.acts) < least) {
        if (waitpid(abuser.pid, NULL, WNOHANG) != 0 || bench_now() - began > STARTED_NS * 1e-9)
            bench_die("an abuser does not start");
        nanosleep(&(struct timespec){ .tv_nsec = 1000000L }, NULL);
    }
    return abuser;
}

struct abuser abuser_start(enum abuser_kind kind, const struct abuser_place *place)
{
    const struct order order = { .kind = kind, .place = place };

    return abuser_start_with(abuse, &order, kind == ABUSER_FLOOD ? FLOOD_WARM_ACTS : 1);
}

uint64_t abuser_stop(struct abuser *abuser)
{
    const uint64_t acts = atomic_load(abuser->acts);
    int status;

    kill(abuser->pid, SIGKILL);
    if (waitpid(abuser->pid, &status, 0) != abuser->pid || !WIFSIGNALED(status))
        bench_die("an abuser ended by itself");
    munmap((void *)abuser->acts, sizeof(*abuser->acts));
    return acts;
}
