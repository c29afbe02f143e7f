// SPDX-License-Identifier: Apache-2.0
// handles.hh: RocksDB's C handles as C++ sees them, and a status as the C API returns it.
#pragma once

#include <rocksdb/c.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/status.h>

#include <cstring>
#include <memory>
#include <string>

// RocksDB's C handles are structs in its db/c.cc whose first member is the C++ object. They are
// repeated here word for word; rocksdb_ext_fits() checks that.
struct rocksdb_t {
    rocksdb::DB *rep;
};
struct rocksdb_options_t {
    rocksdb::Options rep;
};
struct rocksdb_cache_t {
    std::shared_ptr<rocksdb::Cache> rep;
};

namespace rocksdb_ext
{

// Returns an error as the C API does: malloced, or NULL if there is none.
inline char *TextOf(const rocksdb::Status &status)
{
    return status.ok() ? nullptr : strdup(status.ToString().c_str());
}

inline bool HasSuffix(const std::string &name, const char *suffix)
{
    const size_t length = strlen(suffix);

    return name.size() >= length && name.compare(name.size() - length, length, suffix) == 0;
}

} // namespace rocksdb_ext
