// SPDX-License-Identifier: Apache-2.0
// file_system.cc: the file system through which RocksDB reaches its files.
#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/ext/ring.hh"
#include "store/rocksdb/ext/room_file_system.hh"
#include "store/rocksdb/ext/written_file.hh"
#include "store/rocksdb/rocksdb_ext.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace
{

using rocksdb::Slice;
using rocksdb_ext::HasSuffix;
using rocksdb_ext::Ring;

constexpr size_t kLogBuffer = 16 << 10;

// A table file with a descriptor of ours. RocksDB does not reveal its own, and both for each file
// would be twice as many.
class RingFile final : public rocksdb::FSRandomAccessFile
{
  public:
    // @align: the file system's alignment for direct I/O.
    RingFile(const std::string &name, int fd, bool direct, size_t align)
        : name_(name), fd_(fd), direct_(direct), align_(align)
    {
    }
    ~RingFile() override
    {
        close(fd_);
    }

    rocksdb::IOStatus Read(uint64_t offset, size_t bytes, const rocksdb::IOOptions &, Slice *result,
                           char *scratch, rocksdb::IODebugContext *) const override
    {
        size_t got = 0;

        while (got < bytes) {
            const ssize_t part =
                pread(fd_, scratch + got, bytes - got, static_cast<off_t>(offset + got));

            if (part < 0 && errno == EINTR)
                continue;
            if (part < 0)
                return rocksdb::IOStatus::IOError("While pread offset " + std::to_string(offset) +
                                                      " len " + std::to_string(bytes) + ": " +
                                                      name_,
                                                  strerror(errno));
            got += static_cast<size_t>(part);
            if (part == 0 || (direct_ && got % align_ != 0))
                break; // the end
        }
        *result = Slice(scratch, got);
        return rocksdb::IOStatus::OK();
    }

    rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest *requests, size_t count,
                                const rocksdb::IOOptions &options,
                                rocksdb::IODebugContext *dbg) override
    {
        Ring *const ring = count > 1 ? Ring::OfThread() : nullptr;

        if (!ring)
            return FSRandomAccessFile::MultiRead(requests, count, options, dbg);
        ring->Read(fd_, direct_ ? align_ : 1, requests, count);
        return rocksdb::IOStatus::OK();
    }

    rocksdb::IOStatus Prefetch(uint64_t offset, size_t bytes, const rocksdb::IOOptions &,
                               rocksdb::IODebugContext *) override
    {
        if (!direct_)
            (void)readahead(fd_, static_cast<off64_t>(offset), bytes);
        return rocksdb::IOStatus::OK();
    }

    void Hint(AccessPattern pattern) override
    {
        if (!direct_)
            (void)posix_fadvise(fd_, 0, 0, AdviceOf(pattern));
    }

    rocksdb::IOStatus InvalidateCache(size_t offset, size_t bytes) override
    {
        if (!direct_)
            (void)posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                                POSIX_FADV_DONTNEED);
        return rocksdb::IOStatus::OK();
    }

    bool use_direct_io() const override
    {
        return direct_;
    }

    size_t GetRequiredBufferAlignment() const override
    {
        return align_;
    }

  private:
    static int AdviceOf(AccessPattern pattern)
    {
        switch (pattern) {
        case kRandom:
            return POSIX_FADV_RANDOM;
        case kSequential:
            return POSIX_FADV_SEQUENTIAL;
        case kWillNeed:
            return POSIX_FADV_WILLNEED;
        case kWontNeed:
            return POSIX_FADV_DONTNEED;
        default:
            return POSIX_FADV_NORMAL;
        }
    }

    const std::string name_;
    const int fd_;
    const bool direct_;
    const size_t align_;
};

class StoreFileSystem final : public rocksdb::FileSystemWrapper
{
  public:
    StoreFileSystem(const std::shared_ptr<rocksdb::FileSystem> &target, bool io_uring)
        : FileSystemWrapper(target), io_uring_(io_uring)
    {
    }

    const char *Name() const override
    {
        return "embtier.StoreFileSystem";
    }

    // Gives table files a ring, with a descriptor in place of RocksDB's. A file is read without a
    // ring if a second descriptor cannot be opened for that moment.
    rocksdb::IOStatus NewRandomAccessFile(const std::string &name,
                                          const rocksdb::FileOptions &options,
                                          std::unique_ptr<rocksdb::FSRandomAccessFile> *file,
                                          rocksdb::IODebugContext *dbg) override
    {
        rocksdb::IOStatus status = target()->NewRandomAccessFile(name, options, file, dbg);

        if (!status.ok() || !io_uring_ || !HasSuffix(name, ".sst"))
            return status;
        const int fd =
            open(name.c_str(), O_RDONLY | O_CLOEXEC | (options.use_direct_reads ? O_DIRECT : 0));
        if (fd >= 0)
            file->reset(new RingFile(name, fd, (*file)->use_direct_io(),
                                     (*file)->GetRequiredBufferAlignment()));
        return status;
    }

    // Replaces RocksDB's own, which assumes that access() fails only because nothing is there, or
    // with EIO or ENOMEM. Otherwise an assertion ends the process. Another assertion does so if the
    // folder of archived logs cannot be examined for a list of logs. Without assertions that list,
    // also a checkpoint's, would be empty. No archived logs are of use to us, so such a folder
    // counts as missing.
    rocksdb::IOStatus FileExists(const std::string &name, const rocksdb::IOOptions &,
                                 rocksdb::IODebugContext *) override
    {
        int error;

        do
            error = access(name.c_str(), F_OK) == 0 ? 0 : errno;
        while (error == EINTR);
        switch (error) {
        case 0:
            return rocksdb::IOStatus::OK();
        case EACCES:
        case ELOOP:
        case ENAMETOOLONG:
        case ENOENT:
        case ENOTDIR:
            return rocksdb::IOStatus::NotFound();
        default:
            return HasSuffix(name, "/archive")
                       ? rocksdb::IOStatus::NotFound()
                       : rocksdb::IOStatus::IOError("While looking for " + name, strerror(error));
        }
    }

    // A log's buffer would grow to the largest batch, and stays as long as the log. A checkpoint
    // keeps many logs: together hundreds of MiB, in no budget.
    rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions &options,
                                             const rocksdb::DBOptions &of) const override
    {
        rocksdb::FileOptions changed = target()->OptimizeForLogWrite(options, of);

        changed.writable_file_max_buffer_size =
            std::min(changed.writable_file_max_buffer_size, kLogBuffer);
        return changed;
    }

    rocksdb::IOStatus NewWritableFile(const std::string &name, const rocksdb::FileOptions &options,
                                      std::unique_ptr<rocksdb::FSWritableFile> *file,
                                      rocksdb::IODebugContext *dbg) override
    {
        return rocksdb_ext::NewWrittenFile(target(), name, options, file, dbg);
    }

  private:
    const bool io_uring_;
};

} // namespace

void rocksdb_ext_use_file_system(rocksdb_options_t *options, bool io_uring)
{
    // Databases may be closed at any time, so these live as long as the process.
    static const auto make = [](bool ring) {
        return rocksdb::NewCompositeEnv(
                   std::make_shared<StoreFileSystem>(
                       rocksdb_ext::RoomFileSystemOf(rocksdb::FileSystem::Default()), ring))
            .release();
    };
    static rocksdb::Env *const envs[] = { make(false), make(true) };

    options->rep.env = envs[io_uring];
}
