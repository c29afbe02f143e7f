// SPDX-License-Identifier: Apache-2.0
// room_file_system.hh: the disk as RocksDB is to see it: no room is told as no room, and a log
// takes little beforehand.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>

namespace rocksdb_ext
{

// Under all other file systems of ours.
std::shared_ptr<rocksdb::FileSystem>
RoomFileSystemOf(const std::shared_ptr<rocksdb::FileSystem> &target);

} // namespace rocksdb_ext
