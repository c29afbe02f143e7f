// SPDX-License-Identifier: Apache-2.0
// written_file.hh: the files that RocksDB writes, each kind with what is to be known or done of it.
#pragma once

#include "store/rocksdb/ext/watch.hh"

#include <rocksdb/file_system.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace rocksdb_ext
{

// Bytes that this process has written to RocksDB's files other than table files.
extern std::atomic<uint64_t> log_bytes;
extern std::atomic<uint64_t> other_bytes; // MANIFEST, OPTIONS, LOG, ...

// Makes @name by @target, in the way of its kind: a table file, a write-ahead log, another. A log
// of a database that is open is always made, if need be later.
rocksdb::IOStatus NewWrittenFile(rocksdb::FileSystem *target, const std::string &name,
                                 const rocksdb::FileOptions &options,
                                 std::unique_ptr<rocksdb::FSWritableFile> *file,
                                 rocksdb::IODebugContext *dbg);

} // namespace rocksdb_ext
