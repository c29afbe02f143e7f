/* SPDX-License-Identifier: Apache-2.0 */
/* store_closed.c: the file closed.json, which says that no row of a `replay` table was written
 * since the last clean close. It is removed before the first such write. */
#include <errno.h>
#include <unistd.h>

#include "base/paths.h"
#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/store_impl.h"

#define CLOSED_FILE "closed.json"

enum embtier_err store_read_closed_file(struct store *store, struct err_msg *msg)
{
    _cleanup_(freep) char *path = path_join(store_first_directory(store), CLOSED_FILE);
    bool is_there;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(path_is_there(path, &is_there, msg));
    atomic_store(&store->closed_file, is_there);
    return EMBTIER_OK;
}

enum embtier_err store_write_closed_file(struct store *store, struct err_msg *msg)
{
    TRY(durable_file_write(store_first_directory(store), CLOSED_FILE, "{}\n", msg));
    atomic_store(&store->closed_file, true);
    return EMBTIER_OK;
}

enum embtier_err store_remove_closed_file(struct store *store, struct err_msg *msg)
{
    const char *const directory = store_first_directory(store);
    _cleanup_(freep) char *path = path_join(directory, CLOSED_FILE);

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (unlink(path) != 0 && errno != ENOENT)
        return err_set_errno(msg, errno, "%s", path);
    TRY(directory_sync(directory, msg));
    atomic_store(&store->closed_file, false);
    return EMBTIER_OK;
}

enum embtier_err store_serve(struct store *store, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    if (LIKELY(!atomic_load_explicit(&store->closed_file, memory_order_relaxed)))
        return EMBTIER_OK;
    pthread_mutex_lock(&store->lock);
    if (store_replay_refusal(store) != EMBTIER_OK)
        err = err_set(msg, store_replay_refusal(store),
                      "no checkpoint has been made since the last stop: `replay` tables cannot be "
                      "changed until the server has made one");
    else if (atomic_load(&store->closed_file))
        err = store_remove_closed_file(store, msg);
    pthread_mutex_unlock(&store->lock);
    return err;
}

void store_refuse_replay(struct store *store, enum embtier_err err)
{
    atomic_store(&store->replay_refusal, (int)err);
}

enum embtier_err store_replay_refusal(const struct store *store)
{
    return (enum embtier_err)atomic_load_explicit(&store->replay_refusal, memory_order_relaxed);
}
