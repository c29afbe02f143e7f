// SPDX-License-Identifier: Apache-2.0
// activity.hh: counts the background work of a store's databases, and the bytes they write to table
// files, by table. Thread: any.
#pragma once

#include "store/rocksdb/rocksdb_ext.h"

#include <rocksdb/table_properties.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace rocksdb_ext
{

// True if a table file that is almost made has nothing in it, as when all rows of a compaction are
// gone. RocksDB then deletes the file. But if writing or closing it fails, RocksDB looks for the
// file's first key, and aborts. The file leaves the mark here for the notes of its rows. RocksDB
// makes these next on the same thread, and they set the mark.
using EmptyMark = std::shared_ptr<std::atomic<bool>>;
extern thread_local EmptyMark newest_empty_mark;

// Bytes written to each table file that is being made, in this process.
class TableFiles
{
  public:
    using Counter = std::shared_ptr<std::atomic<uint64_t>>;

    Counter Begin(const std::string &path);

    // Ends the count of a file. Returns whole pages, as they go to SSD.
    uint64_t Take(const std::string &path);

  private:
    std::mutex mutex_;
    std::map<std::string, Counter> files_;
};

extern TableFiles table_files;

struct Activity {
    std::mutex mutex;
    uint32_t running_shards = 0;
    uint32_t peak_shards = 0;
    uint64_t completed = 0;
    std::map<uint32_t, rocksdb_ext_written> written; // by table, until it is dropped
    rocksdb_ext_written all_written = {};

    // A file that failed has no properties, so its bytes belong to no table.
    void AddFile(const rocksdb::TableProperties &properties, uint64_t bytes,
                 uint64_t rocksdb_ext_written::*cause);
};

} // namespace rocksdb_ext

struct rocksdb_ext_activity {
    std::shared_ptr<rocksdb_ext::Activity> rep;
};
