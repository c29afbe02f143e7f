// SPDX-License-Identifier: Apache-2.0
// loggers.cc: loggers for RocksDB's own warnings and errors.
#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/ext/written_file.hh"
#include "store/rocksdb/rocksdb_ext.h"

#include <rocksdb/env.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

namespace
{

class SilentLogger final : public rocksdb::Logger
{
  public:
    using Logger::Logv;

    void LogHeader(const char *, va_list) override
    {
    }

    void Logv(const char *, va_list) override
    {
    }
};

class PlainLogger final : public rocksdb::Logger
{
  public:
    explicit PlainLogger(const std::string &path)
        : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), path_(path)
    {
    }

    ~PlainLogger() override
    {
        if (fd_ >= 0)
            close(fd_);
    }

    // Drops the header, which lists all options at every open.
    void LogHeader(const char *, va_list) override
    {
    }

    void Logv(const char *format, va_list args) override
    {
        char line[1024];
        timespec now;
        tm utc;

        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        const size_t stamp = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%SZ ", &utc);
        const int text = vsnprintf(line + stamp, sizeof(line) - stamp, format, args);
        if (text < 0)
            return;
        size_t length = std::min(stamp + text, sizeof(line) - 1);
        if (line[length - 1] != '\n')
            line[std::min(length++, sizeof(line) - 1)] = '\n';
        Write(line, std::min(length, sizeof(line)));
    }

    using Logger::Logv;

  private:
    static constexpr off_t kBytesMax = 1 << 20;

    // Opens the file if need be: the directory may not exist yet at RocksDB's first line.
    void Write(const char *line, size_t length)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        if (fd_ >= 0 && lseek(fd_, 0, SEEK_END) >= kBytesMax) {
            close(fd_);
            rename(path_.c_str(), (path_ + ".old").c_str());
            fd_ = -1;
        }
        if (fd_ < 0)
            fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd_ >= 0 && write(fd_, line, length) > 0)
            rocksdb_ext::other_bytes += length; // else the line is dropped
    }

    const std::string path_;
    std::mutex mutex_;
    int fd_ = -1;
};

} // namespace

void rocksdb_ext_log_to(rocksdb_options_t *options, const char *directory)
{
    options->rep.info_log = std::make_shared<PlainLogger>(std::string(directory) + "/LOG");
}

void rocksdb_ext_log_nowhere(rocksdb_options_t *options)
{
    options->rep.info_log = std::make_shared<SilentLogger>();
}
