// SPDX-License-Identifier: Apache-2.0
// ring.cc: submits requests to a thread's io_uring, and waits for all of them.
#include "store/rocksdb/ext/ring.hh"

#include "store/rocksdb/rocksdb_ext.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rocksdb_ext
{

using rocksdb::Slice;

Ring *Ring::OfThread()
{
    static thread_local Ring ring;

    return ring.works_ ? &ring : nullptr;
}

Ring::~Ring()
{
    if (works_)
        io_uring_queue_exit(&ring_);
}

void Ring::Read(int fd, size_t align, rocksdb::FSReadRequest *requests, size_t count)
{
    size_t next = 0, in_flight = 0, done = 0;

    got_.assign(count, 0);
    while (done < count) {
        for (; next < count && in_flight < DEPTH; next++, in_flight++)
            Prepare(fd, requests, next);
        Submit(next == count ? in_flight : 1);
        for (io_uring_cqe *cqe; io_uring_peek_cqe(&ring_, &cqe) == 0;) {
            const size_t i = io_uring_cqe_get_data64(cqe);
            const int result = cqe->res;

            io_uring_cqe_seen(&ring_, cqe);
            if (IsDone(align, requests[i], got_[i], result)) {
                in_flight--;
                done++;
            } else {
                Prepare(fd, requests, i); // its own entry is free again, so there is room
            }
        }
    }
}

void Ring::Sync(const std::vector<int> &files, std::vector<int> &results)
{
    size_t next = 0, in_flight = 0, done = 0;

    while (done < files.size()) {
        for (; next < files.size() && in_flight < DEPTH; next++, in_flight++) {
            io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);

            io_uring_prep_fsync(sqe, files[next], IORING_FSYNC_DATASYNC);
            io_uring_sqe_set_data64(sqe, next);
        }
        Submit(next == files.size() ? in_flight : 1);
        for (io_uring_cqe *cqe; io_uring_peek_cqe(&ring_, &cqe) == 0; in_flight--, done++) {
            results[io_uring_cqe_get_data64(cqe)] = -cqe->res;
            io_uring_cqe_seen(&ring_, cqe);
        }
    }
}

Ring::Ring()
{
    works_ = Init();
    if (works_ && !Reads()) {
        io_uring_queue_exit(&ring_);
        works_ = false;
    }
}

bool Ring::Init()
{
    for (const unsigned flags :
         { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0u })
        if (io_uring_queue_init(DEPTH, &ring_, flags) == 0)
            return true;
    return false;
}

bool Ring::Reads()
{
    io_uring_probe *const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ);

    io_uring_free_probe(probe);
    return reads;
}

void Ring::Prepare(int fd, const rocksdb::FSReadRequest *requests, size_t i)
{
    const rocksdb::FSReadRequest &request = requests[i];
    io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);

    io_uring_prep_read(sqe, fd, request.scratch + got_[i],
                       static_cast<unsigned>(request.len - got_[i]), request.offset + got_[i]);
    io_uring_sqe_set_data64(sqe, i);
}

void Ring::Submit(size_t awaited)
{
    for (;;) {
        const int result = io_uring_submit_and_wait(&ring_, static_cast<unsigned>(awaited));

        if (result >= 0)
            return;
        if (result != -EINTR && result != -EAGAIN && result != -EBUSY && result != -ENOMEM) {
            fprintf(stderr, "io_uring_submit_and_wait: %s\n", strerror(-result));
            abort();
        }
        usleep(100);
    }
}

bool Ring::IsDone(size_t align, rocksdb::FSReadRequest &request, size_t &got, int result)
{
    if (result == -EAGAIN || result == -EINTR)
        return false;
    if (result < 0) {
        request.status = rocksdb::IOStatus::IOError("io_uring read", strerror(-result));
        request.result = Slice();
        return true;
    }
    got += static_cast<size_t>(result);
    if (result > 0 && got < request.len && got % align == 0)
        return false;
    request.status = rocksdb::IOStatus::OK();
    request.result = Slice(request.scratch, got);
    return true;
}

} // namespace rocksdb_ext

bool rocksdb_ext_io_uring_works(void)
{
    return rocksdb_ext::Ring::OfThread() != nullptr;
}

void rocksdb_ext_io_uring_begin(void)
{
    (void)rocksdb_ext::Ring::OfThread();
}
