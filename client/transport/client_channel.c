/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/client_channel.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

void client_channel_free(struct client_channel *channel)
{
    if (!channel)
        return;
    if (channel->region)
        munmap(channel->region, channel->region_bytes);
    channel->ops->free(channel);
}

enum embtier_err client_channel_take_place(struct client_channel *channel,
                                           struct client_channel *old, struct err_msg *msg)
{
    assert(channel->region_bytes == old->region_bytes);
    /* Replaces the old mapping in one step. */
    if (mremap(channel->region, channel->region_bytes, channel->region_bytes,
               MREMAP_MAYMOVE | MREMAP_FIXED, old->region) == MAP_FAILED)
        return err_set_errno(msg, errno, "cannot map the new arena in place of the old one");
    channel->region = old->region;
    old->region = NULL;
    if (channel->ops->moved)
        channel->ops->moved(channel);
    return EMBTIER_OK;
}
