// SPDX-License-Identifier: Apache-2.0
// room_file_system.hh: a file system that reports every lack of room to RocksDB as such, and lets a
// log allocate little ahead.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace rocksdb_ext
{

// Lies beneath all our other file systems.
std::shared_ptr<rocksdb::FileSystem>
RoomFileSystemOf(const std::shared_ptr<rocksdb::FileSystem> &target);

} // namespace rocksdb_ext
