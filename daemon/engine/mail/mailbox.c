/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/mail/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log/log.h"

enum embtier_err mailbox_init(struct mailbox *mailbox, const char *owner, uint32_t number,
                              struct err_msg *msg)
{
    memset(mailbox, 0, sizeof(*mailbox));
    mailbox->owner = owner;
    mailbox->number = number;
    mailbox->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->wake_fd < 0)
        return err_set_errno(msg, errno, "%s %u: event descriptor", owner, number);
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
        log_error("a thread cannot be woken", "thread=%s-%u why=%s", mailbox->owner,
                  mailbox->number, LOG_QUOTED(strerror(errno)));
}
