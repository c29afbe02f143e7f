// SPDX-License-Identifier: Apache-2.0
// file_bytes.hh: bytes that this process has written to RocksDB's files other than table files.
#pragma once

#include <atomic>
#include <cstdint>

namespace rocksdb_ext
{

extern std::atomic<uint64_t> log_bytes;
extern std::atomic<uint64_t> other_bytes; // MANIFEST, OPTIONS, LOG, ...

} // namespace rocksdb_ext
