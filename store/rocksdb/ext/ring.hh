// SPDX-License-Identifier: Apache-2.0
// ring.hh: an io_uring of the calling thread: reads and syncs of many files at once.
#pragma once

#include <rocksdb/file_system.h>

#include <liburing.h>

#include <cstddef>
#include <vector>

namespace rocksdb_ext
{

// One thread's ring. Made at its first read; a thread that gets none reads without.
class Ring
{
  public:
    static constexpr unsigned DEPTH = 128;

    static Ring *OfThread();
    ~Ring();
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    // Reads all, as MultiRead() is to: a request ends short only at the end of the file.
    void Read(int fd, size_t align, rocksdb::FSReadRequest *requests, size_t count);

    // Has the data of all files on disk, at the same time; results[i] is 0 or an error number.
    void Sync(const std::vector<int> &files, std::vector<int> &results);

  private:
    Ring();

    // A request that is done interrupts nobody: its thread waits for all of them, and looks then.
    // Kernels before 6.1, or 5.19, have no such rings.
    bool Init();

    // Kernels before 5.6 have rings that cannot.
    bool Reads();

    void Prepare(int fd, const rocksdb::FSReadRequest *requests, size_t i);

    // The kernel may be short of memory for a moment. The buffers are its own until it has
    // answered, so there is no giving up. Any other error is a mistake of this class, and would
    // come again for ever.
    void Submit(size_t awaited);

    static bool IsDone(size_t align, rocksdb::FSReadRequest &request, size_t &got, int result);

    io_uring ring_;
    bool works_;
    std::vector<size_t> got_; // bytes of each request so far
};

} // namespace rocksdb_ext
