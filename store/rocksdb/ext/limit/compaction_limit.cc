// SPDX-License-Identifier: Apache-2.0
// compaction_limit.cc: limits the bytes a second that compactions of all databases write, together.
//
// RocksDB's own limiter makes flushes wait behind compactions, so writes stop where compaction is
// slow. It also ends the process if a request is under way while the limit falls, in builds with
// assertions. Here only compactions wait: each request takes a stretch of time that fits its bytes,
// and waits until the stretch before has passed.
#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/rocksdb_ext.h"

#include <rocksdb/env.h>
#include <rocksdb/rate_limiter.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace
{

using Clock = std::chrono::steady_clock;

class CompactionLimit final : public rocksdb::RateLimiter
{
  public:
    using rocksdb::RateLimiter::Request;

    // 0: no limit. Requests that wait go by the new limit at once.
    void SetBytesPerSecond(int64_t bytes_per_second) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (rate_ == bytes_per_second)
            return;
        rate_ = bytes_per_second;
        free_at_ = std::min(free_at_, Clock::now());
        changed_.notify_all();
    }

    int64_t GetBytesPerSecond() const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return rate_;
    }

    void Request(int64_t bytes, rocksdb::Env::IOPriority priority, rocksdb::Statistics *) override
    {
        std::unique_lock<std::mutex> lock(mutex_);
        requests_[priority]++;
        bytes_[priority] += bytes;
        if (priority != rocksdb::Env::IO_LOW)
            return;
        while (rate_ > 0 && Clock::now() < free_at_)
            changed_.wait_for(lock, free_at_ - Clock::now());
        if (rate_ > 0)
            free_at_ =
                Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(
                                   static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_)));
    }

    // So much at once is smooth even at the lowest limit, and few calls at a high one.
    int64_t GetSingleBurstBytes() const override
    {
        return 256 << 10;
    }

    int64_t GetTotalBytesThrough(rocksdb::Env::IOPriority priority) const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return Sum(bytes_, priority);
    }

    int64_t GetTotalRequests(rocksdb::Env::IOPriority priority) const override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return Sum(requests_, priority);
    }

  private:
    static int64_t Sum(const int64_t (&counts)[rocksdb::Env::IO_TOTAL],
                       rocksdb::Env::IOPriority priority)
    {
        int64_t sum = 0;

        for (int i = 0; i < rocksdb::Env::IO_TOTAL; i++)
            sum += priority == rocksdb::Env::IO_TOTAL || priority == i ? counts[i] : 0;
        return sum;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    int64_t rate_ = 0;
    Clock::time_point free_at_; // when the next compaction may write
    int64_t bytes_[rocksdb::Env::IO_TOTAL] = {};
    int64_t requests_[rocksdb::Env::IO_TOTAL] = {};
};

} // namespace

void rocksdb_ext_limit_compaction(rocksdb_options_t *options)
{
    options->rep.rate_limiter = std::make_shared<CompactionLimit>();
}

void rocksdb_ext_unlimit_compaction(rocksdb_options_t *options)
{
    options->rep.rate_limiter.reset();
}

void rocksdb_ext_set_compaction_limit(const rocksdb_options_t *options, uint64_t bytes_per_second)
{
    options->rep.rate_limiter->SetBytesPerSecond(static_cast<int64_t>(bytes_per_second));
}

uint64_t rocksdb_ext_compaction_limit(const rocksdb_options_t *options)
{
    return static_cast<uint64_t>(options->rep.rate_limiter->GetBytesPerSecond());
}

void rocksdb_ext_limited_bytes(const rocksdb_options_t *options, uint64_t *ret_waiting,
                               uint64_t *ret_passing)
{
    const rocksdb::RateLimiter &limit = *options->rep.rate_limiter;

    *ret_waiting = static_cast<uint64_t>(limit.GetTotalBytesThrough(rocksdb::Env::IO_LOW));
    *ret_passing =
        static_cast<uint64_t>(limit.GetTotalBytesThrough(rocksdb::Env::IO_TOTAL)) - *ret_waiting;
}
