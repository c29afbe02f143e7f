// SPDX-License-Identifier: Apache-2.0
// ring.hh: an io_uring of the calling thread, for reads and syncs of many files at once.
#pragma once

#include <rocksdb/file_system.h>

#include <liburing.h>

#include <cstddef>
#include <vector>

namespace rocksdb_ext
{

// One thread's ring, made at its first read. A thread that gets no ring reads without one.
class Ring
{
  public:
    static constexpr unsigned DEPTH = 128;

    static Ring *OfThread();
    ~Ring();
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    // Reads all requests, as MultiRead() must: a request ends short only at the end of the file.
    void Read(int fd, size_t align, rocksdb::FSReadRequest *requests, size_t count);

    // Syncs the data of all files at the same time; results[i] is 0 or an error number.
    void Sync(const std::vector<int> &files, std::vector<int> &results);

  private:
    Ring();

    // Makes a ring in which a finished request interrupts no thread: the caller waits for all
    // requests, and looks then. Kernels before 6.1, or 5.19, have no such rings.
    bool Init();

    // False on kernels before 5.6, whose rings cannot read.
    bool Reads();

    void Prepare(int fd, const rocksdb::FSReadRequest *requests, size_t i);

    // Submits, and waits for @awaited requests. Retries while the kernel is short of memory. It
    // cannot give up: the buffers belong to the kernel until it has answered. Any other error is a
    // mistake of this class that would come again for ever, so it aborts.
    void Submit(size_t awaited);

    static bool IsDone(size_t align, rocksdb::FSReadRequest &request, size_t &got, int result);

    io_uring ring_;
    bool works_;
    std::vector<size_t> got_; // bytes of each request so far
};

} // namespace rocksdb_ext
