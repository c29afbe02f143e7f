// SPDX-License-Identifier: Apache-2.0
// versions.hh: the differences between RocksDB's versions, one place per difference.
//
//   from        | difference                                           | where
//   8           | another interface for block caches                   | metadata_cache_7.cc, _8.cc
//   8.4 to 8.7  | Cache::Insert() takes the compressed form of a block | metadata_cache_8.cc
//   9           | EnableFileDeletions() takes no argument              | here
//   9.7 to 9.10 | Cache::ApplyToHandle()                               | metadata_cache_8.cc
//   10          | kZSTDNotFinalCompression, a second name, is gone     | rocksdb_ext_compression()
//
// Versions that embtier's tests have not run with are used all the same; a start logs a warning.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/version.h>

#include <cstdio>
#include <utility>

#if ROCKSDB_MAJOR >= 8
#include <rocksdb/advanced_cache.h>
#endif

// 7.8: Debian 12. 9.10: Debian 13.
constexpr std::pair<int, int> kTriedVersions[] = { { 7, 8 }, { 9, 10 } };

// @version: such as "7.8.3".
inline bool rocksdb_is_tried(const char *version)
{
    int major, minor;

    if (sscanf(version, "%d.%d", &major, &minor) != 2)
        return false;
    for (const auto &tried : kTriedVersions)
        if (tried.first == major && tried.second == minor)
            return true;
    return false;
}

// Ends one DisableFileDeletions() of possibly several.
inline rocksdb::Status rocksdb_delete_files_again(rocksdb::DB *db)
{
#if ROCKSDB_MAJOR < 9
    return db->EnableFileDeletions(false);
#else
    return db->EnableFileDeletions();
#endif
}
