/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/sessions/session.h"

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

/* For segments, ids and rows, however little a client asks for. */
#define ARENA_PAYLOAD_MIN (UINT64_C(64) << 10)

static enum embtier_err memfd_new(const char *name, uint64_t bytes, int *ret_fd,
                                  struct err_msg *msg)
{
    _cleanup_(closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_set_errno(msg, errno, "memfd_create");
    if (ftruncate(fd, (off_t)bytes) != 0)
        return err_set_errno(msg, errno, "cannot have %" PRIu64 " bytes of shared memory%s", bytes,
                             errno == EFBIG ? " (the server's limit of a file's length, ulimit -f)"
                                            : "");
    *ret_fd = TAKE_FD(fd);
    return EMBTIER_OK;
}

/* The pages are reserved before they are touched: a tmpfs that is full later must not kill us with
 * SIGBUS when a client's arena is. */
static enum embtier_err memfd_reserve(int fd, uint64_t offset, uint64_t bytes, struct err_msg *msg)
{
    if (fallocate(fd, 0, (off_t)offset, (off_t)bytes) != 0)
        return err_set_errno(
            msg, errno, "cannot reserve %" PRIu64 " bytes of shared memory%s", offset + bytes,
            errno == EFBIG ? " (the server's limit of a file's length, ulimit -f)" : "");
    return EMBTIER_OK;
}

/* Maps and seals it. */
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

uint64_t session_arena_bytes(uint64_t wanted_bytes, uint32_t slot_count)
{
    return align_up(MAX(wanted_bytes, shm_arena_payload_offset(slot_count) + ARENA_PAYLOAD_MIN),
                    4096);
}

static uint64_t control_bytes_of(uint32_t slot_count)
{
    return align_up(shm_control_bytes(slot_count), 4096);
}

uint64_t session_counted_bytes(uint64_t wanted_bytes, uint32_t slot_count)
{
    const uint64_t control_bytes = control_bytes_of(slot_count);

    return session_arena_bytes(wanted_bytes, slot_count) + control_bytes -
           MIN(control_bytes, control_bytes_of(SHM_SLOTS_DEFAULT));
}

_Static_assert(sizeof(struct session) + CONFIG_LANES_MAX * sizeof(struct session_lane) +
                       sizeof(struct shm_control) +
                       SHM_SLOTS_DEFAULT * sizeof(struct shm_completion) <=
                   SESSION_BYTES,
               "the configuration counts it");

static void init_control(struct session *session, uint32_t max_batch_rows)
{
    session->completions = shm_completions(session->control);
    session->control->magic = SHM_MAGIC;
    session->control->layout_version = SHM_LAYOUT_VERSION;
    session->control->slot_count = session->slot_count;
    session->control->arena_bytes = session->arena_bytes;
    session->control->max_batch_rows = max_batch_rows;
    shm_lane_sleeps(session->control, 1);
}

enum embtier_err session_prepare(uint64_t id, uint64_t arena_bytes, uint32_t slot_count,
                                 uint32_t max_batch_rows, uint32_t lane_count,
                                 struct session **ret_session, struct err_msg *msg)
{
    const uint64_t bytes =
        align_up(sizeof(struct session) + lane_count * sizeof(struct session_lane), CACHE_LINE);
    _cleanup_(session_freep) struct session *session = aligned_alloc(CACHE_LINE, bytes);
    void *memory;

    if (!session)
        return err_set(msg, EMBTIER_NO_MEMORY, "session: out of memory");
    memset(session, 0, bytes);
    session->control_fd = session->arena_fd = session->doorbell_fd = -1;
    session->id = id;
    session->slot_count = slot_count;
    session->lane_count = lane_count;
    session->home = (uint32_t)(id % lane_count);
    session->attach_message.kind = MESSAGE_ATTACH;
    session->detach_message.kind = MESSAGE_DETACH;
    session->gone_message.kind = MESSAGE_SESSION_GONE;
    session->broken_message.kind = MESSAGE_SESSION_BROKEN;
    session->freed_message.kind = MESSAGE_SESSION_FREED;
    session->memory_message.kind = MESSAGE_MEMORY;

    session->control_bytes = control_bytes_of(slot_count);
    TRY(memfd_new("embtier-control", session->control_bytes, &session->control_fd, msg));
    TRY(memfd_reserve(session->control_fd, 0, session->control_bytes, msg));
    TRY(memfd_map(session->control_fd, session->control_bytes,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, &memory, msg));
    session->control = memory;
    session->arena_bytes = session_arena_bytes(arena_bytes, slot_count);
    TRY(memfd_new("embtier-arena", session->arena_bytes, &session->arena_fd, msg));
    session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->doorbell_fd < 0)
        return err_set_errno(msg, errno, "eventfd");
    init_control(session, max_batch_rows);
    *ret_session = TAKE(session);
    return EMBTIER_OK;
}

enum embtier_err session_reserve(struct session *session, uint64_t bytes, struct err_msg *msg)
{
    const uint64_t more = MIN(bytes, session->arena_bytes - session->reserved_bytes);
    void *memory;

    TRY(memfd_reserve(session->arena_fd, session->reserved_bytes, more, msg));
    session->reserved_bytes += more;
    if (session->reserved_bytes < session->arena_bytes)
        return EMBTIER_AGAIN;
    TRY(memfd_map(session->arena_fd, session->arena_bytes,
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &memory, msg));
    session->arena = memory;
    return EMBTIER_OK;
}

enum embtier_err session_new(uint64_t id, uint64_t arena_bytes, uint32_t slot_count,
                             uint32_t max_batch_rows, uint32_t lane_count,
                             struct session **ret_session, struct err_msg *msg)
{
    _cleanup_(session_freep) struct session *session = NULL;

    TRY(session_prepare(id, arena_bytes, slot_count, max_batch_rows, lane_count, &session, msg));
    TRY(session_reserve(session, UINT64_MAX, msg));
    *ret_session = TAKE(session);
    return EMBTIER_OK;
}

void session_release(struct session *session, bool is_nobodys)
{
    void *const control = TAKE(session->control);
    void *const arena = TAKE(session->arena);

    if (control)
        munmap(control, session->control_bytes);
    if (arena)
        munmap(arena, session->arena_bytes);
    /* The client may keep the descriptor, or a child of it have it mapped, and live on. Control is
     * sealed against writing by others, which is a seal against this too: its few pages stay. */
    if (is_nobodys && session->arena_fd >= 0)
        (void)!fallocate(session->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                         (off_t)session->arena_bytes);
    closep(&session->control_fd);
    closep(&session->arena_fd);
    closep(&session->doorbell_fd);
    session->control_fd = session->arena_fd = session->doorbell_fd = -1;
}

void session_free(struct session *session)
{
    if (!session)
        return;
    session_release(session, false);
    free(session);
}

void session_wake_client(struct session *session, struct shm_completion *completion)
{
    if (shm_client_is_waiting(session->arena))
        syscall(SYS_futex, &completion->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void session_close_notice(struct session *session, enum embtier_err why)
{
    atomic_store(&session->control->closed, (uint32_t)why);
    atomic_thread_fence(memory_order_seq_cst);
    /* A thousand system calls saved. One that goes to sleep just now looks again when its slice of
     * sleep is over. */
    if (!shm_client_is_waiting(session->arena))
        return;
    for (uint32_t i = 0; i < session->slot_count; i++)
        syscall(SYS_futex, &session->completions[i].sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
