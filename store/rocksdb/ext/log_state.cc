// SPDX-License-Identifier: Apache-2.0
// log_state.cc: opens a write-ahead log a second time, and notes how far it is on disk.
#include "store/rocksdb/ext/log_state.hh"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace rocksdb_ext
{

std::shared_ptr<const OpenFile> LogState::File(int *ret_error)
{
    std::lock_guard<std::mutex> lock(file_mutex_);

    if (!file_ && is_released_)
        Reopen();
    *ret_error = error_;
    return file_;
}

bool LogState::HasFile()
{
    std::lock_guard<std::mutex> lock(file_mutex_);
    return file_ != nullptr;
}

int LogState::Open() const
{
    const int file = open(name_.c_str(), O_WRONLY | O_CLOEXEC);

    return file >= 0 ? file : -errno;
}

void LogState::Release()
{
    std::lock_guard<std::mutex> lock(file_mutex_);

    if (synced < written)
        return;
    file_.reset();
    is_released_ = true;
}

bool LogState::IsGone()
{
    std::lock_guard<std::mutex> lock(file_mutex_);
    struct stat info;

    if (is_released_)
        return access(name_.c_str(), F_OK) != 0 && errno == ENOENT;
    if (!file_)
        Reopen();
    return file_ ? fstat(file_->Number(), &info) == 0 && info.st_nlink == 0 : error_ == ENOENT;
}

int LogState::SyncName()
{
    if (name_is_synced_)
        return 0;
    const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = directory >= 0 && fsync(directory) == 0 ? 0 : errno;
    if (directory >= 0)
        close(directory);
    name_is_synced_ = error == 0;
    return error;
}

void LogState::SetSynced(uint64_t bytes, uint64_t whole)
{
    Raise(synced, bytes);
    Raise(synced_whole, whole);
}

void LogState::Raise(std::atomic<uint64_t> &value, uint64_t to)
{
    uint64_t before = value;

    while (before < to && !value.compare_exchange_weak(before, to))
        ;
}

void LogState::Reopen()
{
    const int file = Open();

    error_ = file >= 0 ? 0 : -file;
    if (file >= 0)
        file_ = std::make_shared<const OpenFile>(file);
    is_released_ = false;
}

} // namespace rocksdb_ext
