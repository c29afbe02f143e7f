/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/shm/shm_channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/tsan.h"

/* Least space for segments, ids and rows, however little a client asks for. */
#define ARENA_PAYLOAD_MIN (UINT64_C(64) << 10)

static enum embtier_err memfd_new(const char *name, uint64_t bytes, int *ret_fd,
                                  struct err_msg *msg)
{
    _cleanup_(closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_set_errno(msg, errno, "cannot make shared memory (memfd_create)");
    if (ftruncate(fd, (off_t)bytes) != 0)
        return err_set_errno(msg, errno, "cannot have %" PRIu64 " bytes of shared memory%s", bytes,
                             errno == EFBIG ? " (the server's limit of a file's length, ulimit -f)"
                                            : "");
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

/* Reserves pages before they are touched. A tmpfs that is full later must not kill the server with
 * SIGBUS when it touches a client's arena. */
static enum embtier_err memfd_reserve(int fd, uint64_t offset, uint64_t bytes, struct err_msg *msg)
{
    if (fallocate(fd, 0, (off_t)offset, (off_t)bytes) != 0)
        return err_set_errno(
            msg, errno, "cannot reserve %" PRIu64 " bytes of shared memory%s", offset + bytes,
            errno == EFBIG ? " (the server's limit of a file's length, ulimit -f)" : "");
    return EMBTIER_OK;
}

/* Maps and seals the memory. */
static enum embtier_err memfd_map(int fd, uint64_t bytes, int seals, void **ret_memory,
                                  struct err_msg *msg)
{
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map %" PRIu64 " bytes of shared memory", bytes);
    if (fcntl(fd, F_ADD_SEALS, seals) != 0) {
        const int errnum = errno;

        munmap(memory, bytes);
        return err_set_errno(msg, errnum, "cannot seal shared memory");
    }
    *ret_memory = memory;
    return EMBTIER_OK;
}

uint64_t shm_channel_arena_bytes(uint64_t wanted_bytes, uint32_t slot_count)
{
    return align_up(MAX(wanted_bytes, shm_arena_payload_offset(slot_count) + ARENA_PAYLOAD_MIN),
                    4096);
}

static uint64_t control_bytes_of(uint32_t slot_count)
{
    return align_up(shm_control_bytes(slot_count), 4096);
}

uint64_t shm_channel_counted_bytes(uint64_t wanted_bytes, uint32_t slot_count)
{
    const uint64_t control_bytes = control_bytes_of(slot_count);

    return shm_channel_arena_bytes(wanted_bytes, slot_count) + control_bytes -
           MIN(control_bytes, control_bytes_of(OP_SLOTS_DEFAULT)) + session_slot_bytes(slot_count);
}

_Static_assert(sizeof(struct session) + CONFIG_LANES_MAX * sizeof(struct session_lane) +
                       sizeof(struct shm_channel) + sizeof(struct shm_control) +
                       OP_SLOTS_DEFAULT *
                           (sizeof(struct op_completion) + sizeof(struct request_time)) <=
                   SESSION_BYTES,
               "the configuration counts it");

static struct shm_channel *shm_of(const struct transport_channel *channel)
{
    assert(channel->transport == &shm_transport);
    return CONTAINER_OF(channel, struct shm_channel, base);
}

static uint64_t counted_bytes(const struct channel_spec *spec)
{
    return shm_channel_counted_bytes(spec->region_bytes, spec->slot_count);
}

/* ---- The channel's functions ---- */

/* Wakes a client that sleeps on @completion. */
static void wake_client(const struct shm_channel *shm, struct op_completion *completion)
{
    if (shm_client_is_waiting(shm->arena))
        syscall(SYS_futex, &completion->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void complete(const struct channel *channel, uint32_t number, const struct answer *answer)
{
    const struct shm_channel *const shm = channel->transport;
    struct op_completion *const completion = &shm->completions[number % channel->slot_count];

    completion->err = (uint32_t)answer->refusal.err;
    completion->segment = answer->refusal.segment;
    completion->value = answer->refusal.value;
    completion->limit = answer->refusal.limit;
    completion->field = answer->refusal.field;
    completion->hit_rows = answer->hit_rows;
    completion->ticket = answer->ticket;
    TSAN_RELEASE(channel);
    shm_publish_completion(completion, number + 1);
    wake_client(shm, completion);
}

static void set_polled(const struct channel *channel, bool is_polled)
{
    const struct shm_channel *const shm = channel->transport;

    shm_lane_sleeps(shm->control, !is_polled);
}

static void hang_up(const struct channel *channel, enum embtier_err why)
{
    const struct shm_channel *const shm = channel->transport;

    atomic_store(&shm->control->closed, (uint32_t)why);
    atomic_thread_fence(memory_order_seq_cst);
    /* This saves a thousand system calls. A client that goes to sleep just now looks again when its
     * slice of sleep is over. */
    if (!shm_client_is_waiting(shm->arena))
        return;
    for (uint32_t i = 0; i < channel->slot_count; i++)
        syscall(SYS_futex, &shm->completions[i].sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static const struct channel_ops shm_channel_ops = {
    .complete = complete,
    .set_polled = set_polled,
    .hang_up = hang_up,
};

/* ---- Memory ---- */

static void init_control(struct shm_channel *shm, uint32_t max_batch_rows)
{
    shm->completions = shm_completions(shm->control);
    shm->control->magic = SHM_MAGIC;
    shm->control->layout_version = SHM_LAYOUT_VERSION;
    shm->control->slot_count = shm->slot_count;
    shm->control->arena_bytes = shm->arena_bytes;
    shm->control->max_batch_rows = max_batch_rows;
    shm_lane_sleeps(shm->control, 1);
}

/* Call when the arena is mapped. */
static void init_channel(struct shm_channel *shm)
{
    shm->base.channel = (struct channel){
        .region = (uint8_t *)shm->arena,
        .region_bytes = shm->arena_bytes,
        .payload = shm_arena_payload_offset(shm->slot_count),
        .slot_count = shm->slot_count,
        .tail = &shm->arena->tail,
        .submissions = shm_submissions(shm->arena),
        .doorbell_fd = shm->doorbell_fd,
        .ops = &shm_channel_ops,
        .transport = shm,
    };
}

/* Makes the shared memory, except the arena's pages, and seals control against resizing and against
 * writing by others. */
static enum embtier_err prepare(const struct channel_spec *spec,
                                struct transport_channel **ret_channel, struct err_msg *msg)
{
    _cleanup_(shm_channel_freep) struct shm_channel *shm = calloc(1, sizeof(*shm));
    void *memory;

    if (!shm)
        return err_set(msg, EMBTIER_NO_MEMORY, "session: out of memory");
    shm->base.transport = &shm_transport;
    shm->control_fd = shm->arena_fd = shm->doorbell_fd = -1;
    shm->slot_count = spec->slot_count;
    shm->control_bytes = control_bytes_of(spec->slot_count);
    TRY(memfd_new("embtier-control", shm->control_bytes, &shm->control_fd, msg));
    TRY(memfd_reserve(shm->control_fd, 0, shm->control_bytes, msg));
    TRY(memfd_map(shm->control_fd, shm->control_bytes,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, &memory, msg));
    shm->control = memory;
    shm->arena_bytes = shm_channel_arena_bytes(spec->region_bytes, spec->slot_count);
    TRY(memfd_new("embtier-arena", shm->arena_bytes, &shm->arena_fd, msg));
    shm->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (shm->doorbell_fd < 0)
        return err_set_errno(msg, errno, "cannot make an event descriptor (eventfd)");
    init_control(shm, spec->max_batch_rows);
    *ret_channel = &TAKE(shm)->base;
    return EMBTIER_OK;
}

/* Reserves more of the arena. After the last of it, maps the arena and seals it against
 * resizing. */
static enum embtier_err reserve(struct transport_channel *channel, uint64_t bytes,
                                struct err_msg *msg)
{
    struct shm_channel *const shm = shm_of(channel);
    const uint64_t more = MIN(bytes, shm->arena_bytes - shm->reserved_bytes);
    void *memory;

    assert(!shm->arena && shm->reserved_bytes < shm->arena_bytes);
    TRY(memfd_reserve(shm->arena_fd, shm->reserved_bytes, more, msg));
    shm->reserved_bytes += more;
    if (shm->reserved_bytes < shm->arena_bytes)
        return EMBTIER_AGAIN;
    TRY(memfd_map(shm->arena_fd, shm->arena_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
                  &memory, msg));
    shm->arena = memory;
    init_channel(shm);
    return EMBTIER_OK;
}

enum embtier_err shm_channel_new(uint64_t arena_bytes, uint32_t slot_count, uint32_t max_batch_rows,
                                 struct shm_channel **ret_channel, struct err_msg *msg)
{
    const struct channel_spec spec = { .region_bytes = arena_bytes,
                                       .slot_count = slot_count,
                                       .max_batch_rows = max_batch_rows };
    _cleanup_(transport_channel_freep) struct transport_channel *channel = NULL;

    TRY(prepare(&spec, &channel, msg));
    TRY(reserve(channel, UINT64_MAX, msg));
    *ret_channel = shm_of(TAKE(channel));
    return EMBTIER_OK;
}

/* Control, arena, doorbell: the client maps the first two. */
static uint32_t announce(struct transport_channel *channel, int ret_fds[TRANSPORT_FDS_MAX])
{
    const struct shm_channel *const shm = shm_of(channel);

    ret_fds[0] = shm->control_fd;
    ret_fds[1] = shm->arena_fd;
    ret_fds[2] = shm->doorbell_fd;
    return 3;
}

/* Unmaps and closes the shared memory. If it is abandoned, processes that still have the arena
 * mapped read zeros from then on. */
static void release(struct transport_channel *channel, bool is_abandoned)
{
    struct shm_channel *const shm = shm_of(channel);
    void *const control = TAKE(shm->control);
    void *const arena = TAKE(shm->arena);

    if (control)
        munmap(control, shm->control_bytes);
    if (arena)
        munmap(arena, shm->arena_bytes);
    /* The client may keep the descriptor, or a child of it the mapping, and live on. Control's seal
     * against writing by others forbids this call too, so its few pages stay. */
    if (is_abandoned && shm->arena_fd >= 0)
        (void)!fallocate(shm->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         (off_t)shm->arena_bytes);
    closep(&shm->control_fd);
    closep(&shm->arena_fd);
    closep(&shm->doorbell_fd);
    shm->control_fd = shm->arena_fd = shm->doorbell_fd = -1;
}

void shm_channel_free(struct shm_channel *shm)
{
    if (!shm)
        return;
    release(&shm->base, false);
    free(shm);
}

static void free_channel(struct transport_channel *channel)
{
    shm_channel_free(shm_of(channel));
}

const struct transport shm_transport = {
    .counted_bytes = counted_bytes,
    .prepare = prepare,
    .reserve = reserve,
    .announce = announce,
    .release = release,
    .free = free_channel,
};
