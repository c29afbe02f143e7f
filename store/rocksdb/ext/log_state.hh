// SPDX-License-Identifier: Apache-2.0
// log_state.hh: a write-ahead log, as the threads that sync it see it. Thread: any.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace rocksdb_ext
{

// A file that is open as long as any thread holds it.
class OpenFile
{
  public:
    explicit OpenFile(int file) : file_(file)
    {
    }
    ~OpenFile()
    {
        close(file_);
    }
    OpenFile(const OpenFile &) = delete;
    OpenFile &operator=(const OpenFile &) = delete;

    int Number() const
    {
        return file_;
    }

  private:
    const int file_;
};

// A write-ahead log, for the thread that syncs it. It has its own descriptor, which is still open
// when the log is no longer written to.
class LogState
{
  public:
    explicit LogState(const std::string &name)
        : name_(name), number_(std::strtoull(name.c_str() + name.rfind('/') + 1, nullptr, 10)),
          directory_(name.substr(0, name.rfind('/')))
    {
        Reopen();
    }
    LogState(const LogState &) = delete;
    LogState &operator=(const LogState &) = delete;

    // Returns NULL if the file cannot be opened, with the reason in *@ret_error.
    std::shared_ptr<const OpenFile> File(int *ret_error);

    bool HasFile();

    // Opens the same file again; the caller closes it. Returns -error on failure.
    int Open() const;

    // Closes the descriptor if all of the log is on disk. Another log has followed, and there may
    // be many, so descriptors would add up.
    void Release();

    // True if RocksDB has removed the log: all its contents have been flushed. Retries a file that
    // could not be opened at first. The caller holds the lock of the list of logs.
    bool IsGone();

    // Syncs the file's name, too. Returns 0 or an error number.
    int SyncName();

    // The caller has read @whole before @bytes, and both before the sync began.
    void SetSynced(uint64_t bytes, uint64_t whole);

    uint64_t Number() const
    {
        return number_;
    }

    std::atomic<uint64_t> written{ 0 };      // bytes
    std::atomic<uint64_t> synced{ 0 };       // of these
    std::atomic<uint64_t> whole{ 0 };        // bytes that end with a record, all without a failure
    std::atomic<uint64_t> synced_whole{ 0 }; // of these

  private:
    static void Raise(std::atomic<uint64_t> &value, uint64_t to);

    void Reopen();

    const std::string name_;
    const uint64_t number_;
    const std::string directory_;
    std::mutex file_mutex_;
    std::shared_ptr<const OpenFile> file_;
    int error_ = 0; // set without a file: syncing the log fails with it
    bool is_released_ = false;
    std::atomic<bool> name_is_synced_{ false };
};

} // namespace rocksdb_ext
