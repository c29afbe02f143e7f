/* SPDX-License-Identifier: Apache-2.0 */
/* cache_caller.h: calls the metadata cache as RocksDB does, for tests, which are in C. Each block's
 * value is an int of the caller's, in which the block's deleter counts its calls. */
#ifndef EMBTIER_STORE_ROCKSDB_EXT_CACHE_CALLER_H
#define EMBTIER_STORE_ROCKSDB_EXT_CACHE_CALLER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cache_caller;
struct cache_handle; /* rocksdb::Cache::Handle */

/* @bytes: for blocks that are kept. */
struct cache_caller *cache_caller_new(size_t bytes);
void cache_caller_free(struct cache_caller *caller);

/* Calls Cache::Insert(), with high priority if @is_metadata. Without @has_deleter nothing counts.
 * @ret_handle may be NULL. */
void cache_caller_insert(struct cache_caller *caller, const char *key, int *deletions,
                         size_t charge, bool is_metadata, bool has_deleter,
                         struct cache_handle **ret_handle);
/* Returns NULL if the block is not there. */
struct cache_handle *cache_caller_lookup(struct cache_caller *caller, const char *key);
bool cache_caller_ref(struct cache_caller *caller, struct cache_handle *handle);
bool cache_caller_release(struct cache_caller *caller, struct cache_handle *handle);
void *cache_caller_value(struct cache_caller *caller, struct cache_handle *handle);
/* Returns GetCharge(), if GetUsage() of the handle is the same; else SIZE_MAX. */
size_t cache_caller_charge(struct cache_caller *caller, struct cache_handle *handle);
/* Returns the bytes of all blocks that are kept. */
size_t cache_caller_usage(struct cache_caller *caller);
/* True if the block was inserted with a deleter, and the handle has it. */
bool cache_caller_has_deleter(struct cache_caller *caller, struct cache_handle *handle);
/* True if Cache::ApplyToHandle() reports @key for @handle, and in versions without it. */
bool cache_caller_tells_key(struct cache_caller *caller, struct cache_handle *handle,
                            const char *key);

#ifdef __cplusplus
}
#endif

#endif
