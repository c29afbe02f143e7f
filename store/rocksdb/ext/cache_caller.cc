// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/ext/cache_caller.h"

#include "store/rocksdb/ext/metadata_cache.hh"

#include <rocksdb/version.h>

#include <cstdint>

#if ROCKSDB_MAJOR >= 8
#include <rocksdb/advanced_cache.h>
#endif

using rocksdb::Cache;

struct cache_caller {
    std::shared_ptr<Cache> rep;
};

namespace
{

#if ROCKSDB_MAJOR >= 8
void Delete(void *value, rocksdb::MemoryAllocator *)
{
    ++*static_cast<int *>(value);
}

const Cache::CacheItemHelper deleter(rocksdb::CacheEntryRole::kMisc, Delete);
const Cache::CacheItemHelper no_deleter(rocksdb::CacheEntryRole::kMisc);

const Cache::CacheItemHelper *DeleterIf(bool has_deleter)
{
    return has_deleter ? &deleter : &no_deleter;
}

void Insert(Cache *cache, const char *key, void *value, size_t charge, bool has_deleter,
            Cache::Handle **handle, Cache::Priority priority)
{
    (void)cache->Insert(key, value, DeleterIf(has_deleter), charge, handle, priority);
}

const Cache::CacheItemHelper *DeleterOf(Cache *cache, Cache::Handle *handle)
{
    return cache->GetCacheItemHelper(handle);
}
#else
void Delete(const rocksdb::Slice &, void *value)
{
    ++*static_cast<int *>(value);
}

Cache::DeleterFn DeleterIf(bool has_deleter)
{
    return has_deleter ? Delete : nullptr;
}

void Insert(Cache *cache, const char *key, void *value, size_t charge, bool has_deleter,
            Cache::Handle **handle, Cache::Priority priority)
{
    (void)cache->Insert(key, value, charge, DeleterIf(has_deleter), handle, priority);
}

Cache::DeleterFn DeleterOf(Cache *cache, Cache::Handle *handle)
{
    return cache->GetDeleter(handle);
}
#endif

Cache::Handle *RepOf(cache_handle *handle)
{
    return reinterpret_cast<Cache::Handle *>(handle);
}

} // namespace

cache_caller *cache_caller_new(size_t bytes)
{
    return new cache_caller{ metadata_cache_new(bytes) };
}

void cache_caller_free(cache_caller *caller)
{
    delete caller;
}

void cache_caller_insert(cache_caller *caller, const char *key, int *deletions, size_t charge,
                         bool is_metadata, bool has_deleter, cache_handle **ret_handle)
{
    Insert(caller->rep.get(), key, deletions, charge, has_deleter,
           reinterpret_cast<Cache::Handle **>(ret_handle),
           is_metadata ? Cache::Priority::HIGH : Cache::Priority::LOW);
}

cache_handle *cache_caller_lookup(cache_caller *caller, const char *key)
{
    return reinterpret_cast<cache_handle *>(caller->rep->Lookup(key));
}

bool cache_caller_ref(cache_caller *caller, cache_handle *handle)
{
    return caller->rep->Ref(RepOf(handle));
}

bool cache_caller_release(cache_caller *caller, cache_handle *handle)
{
    return caller->rep->Release(RepOf(handle));
}

void *cache_caller_value(cache_caller *caller, cache_handle *handle)
{
    return caller->rep->Value(RepOf(handle));
}

size_t cache_caller_charge(cache_caller *caller, cache_handle *handle)
{
    const size_t charge = caller->rep->GetCharge(RepOf(handle));

    return caller->rep->GetUsage(RepOf(handle)) == charge ? charge : SIZE_MAX;
}

size_t cache_caller_usage(cache_caller *caller)
{
    return caller->rep->GetUsage();
}

bool cache_caller_has_deleter(cache_caller *caller, cache_handle *handle)
{
    return DeleterOf(caller->rep.get(), RepOf(handle)) == DeleterIf(true);
}

bool cache_caller_tells_key(cache_caller *caller, cache_handle *handle, const char *key)
{
#ifdef CACHE_HAS_APPLY_TO_HANDLE // meson asks the header
    Cache *const cache = caller->rep.get();
    bool is_told = false;

    cache->ApplyToHandle(cache, RepOf(handle),
                         [&](const rocksdb::Slice &told, void *, size_t,
                             const Cache::CacheItemHelper *) { is_told = told == key; });
    return is_told;
#else
    (void)caller;
    (void)handle;
    (void)key;
    return true;
#endif
}
