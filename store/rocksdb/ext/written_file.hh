// SPDX-License-Identifier: Apache-2.0
// written_file.hh: the files that RocksDB writes, with counts and error handling for each kind.
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
extern std::atomic<uint64_t> blob_bytes;
extern std::atomic<uint64_t> other_bytes; // MANIFEST, OPTIONS, LOG, ...

// Makes @name with @target, by its kind: table file, write-ahead log, other. A log of an open
// database is always made, if need be later.
rocksdb::IOStatus NewWrittenFile(rocksdb::FileSystem *target, const std::string &name,
                                 const rocksdb::FileOptions &options,
                                 std::unique_ptr<rocksdb::FSWritableFile> *file,
                                 rocksdb::IODebugContext *dbg);

} // namespace rocksdb_ext
