/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/mail/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log/log.h"

enum embtier_err mailbox_init(struct mailbox *mailbox, uint32_t lane, struct err_msg *msg)
{
    memset(mailbox, 0, sizeof(*mailbox));
    mailbox->lane = lane;
    mailbox->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->wake_fd < 0)
        return err_set_errno(msg, errno, "lane %u: event descriptor", lane);
    return EMBTIER_OK;
}

void mailbox_destroy(struct mailbox *mailbox)
{
    closep(&mailbox->wake_fd);
    mailbox->wake_fd = -1;
}

void mailbox_send(struct mailbox *mailbox, struct message *message)
{
    const uint64_t one = 1;

    assert(message->kind);
    inbox_push(&mailbox->inbox, message);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&mailbox->asleep, memory_order_relaxed) &&
        atomic_exchange(&mailbox->asleep, 0) && write(mailbox->wake_fd, &one, sizeof(one)) < 0 &&
        errno != EAGAIN) /* full: an edge was seen or is pending, which is enough */
        log_error("lane cannot be woken", "lane=%u why=%s", mailbox->lane,
                  LOG_QUOTED(strerror(errno)));
}
