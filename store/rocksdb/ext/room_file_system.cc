// SPDX-License-Identifier: Apache-2.0
// room_file_system.cc: passes all calls on, and changes errors that come from a lack of room.
#include "store/rocksdb/ext/room_file_system.hh"

#include "store/rocksdb/ext/handles.hh"

#include <rocksdb/file_system.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rocksdb_ext
{

namespace
{

using rocksdb::Slice;

constexpr size_t kLogAhead = 1 << 20; // disk space that a log allocates ahead (store/files/space.c)

// RocksDB takes only ENOSPC for a full disk. It reports a used-up quota, and a file at its length
// limit, as a broken disk, which is another error to RocksDB and to users.
rocksdb::IOStatus RoomOf(rocksdb::IOStatus status)
{
    if (status.ok() || !status.IsIOError() || status.IsNoSpace())
        return status;
    const std::string text = status.getState() ? status.getState() : "";
    for (const int error : { EDQUOT, EFBIG })
        if (HasSuffix(text, strerror(error)))
            return rocksdb::IOStatus::NoSpace(text);
    return status;
}

#define IO_ARGUMENTS const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg

class RoomFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    RoomFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, bool is_log)
        : FSWritableFileOwnerWrapper(std::move(file)), is_log_(is_log)
    {
    }

    // At its first record, RocksDB allocates more than a whole write buffer for a log. On a full
    // disk the logs of few shards took the reserve of all, and gave nothing back.
    void SetPreallocationBlockSize(size_t bytes) override
    {
        target()->SetPreallocationBlockSize(is_log_ ? std::min(bytes, kLogAhead) : bytes);
    }

    rocksdb::IOStatus Append(const Slice &data, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Append(data, options, dbg));
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        return RoomOf(target()->Append(data, options, verification, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset, IO_ARGUMENTS) override
    {
        return RoomOf(target()->PositionedAppend(data, offset, options, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       const rocksdb::DataVerificationInfo &verification,
                                       rocksdb::IODebugContext *dbg) override
    {
        return RoomOf(target()->PositionedAppend(data, offset, options, verification, dbg));
    }

    rocksdb::IOStatus Truncate(uint64_t size, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Truncate(size, options, dbg));
    }

    rocksdb::IOStatus Flush(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Flush(options, dbg));
    }

    rocksdb::IOStatus Sync(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Sync(options, dbg));
    }

    rocksdb::IOStatus Fsync(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Fsync(options, dbg));
    }

    rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t bytes, IO_ARGUMENTS) override
    {
        return RoomOf(target()->RangeSync(offset, bytes, options, dbg));
    }

    rocksdb::IOStatus Close(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Close(options, dbg));
    }

  private:
    const bool is_log_;
};

class RoomDirectory final : public rocksdb::FSDirectoryWrapper
{
  public:
    explicit RoomDirectory(std::unique_ptr<rocksdb::FSDirectory> &&directory)
        : FSDirectoryWrapper(std::move(directory))
    {
    }

    rocksdb::IOStatus Fsync(IO_ARGUMENTS) override
    {
        return RoomOf(FSDirectoryWrapper::Fsync(options, dbg));
    }

    rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions &options,
                                          rocksdb::IODebugContext *dbg,
                                          const rocksdb::DirFsyncOptions &how) override
    {
        return RoomOf(FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, how));
    }
};

// Lies beneath all our other file systems.
class RoomFileSystem final : public rocksdb::FileSystemWrapper
{
  public:
    explicit RoomFileSystem(const std::shared_ptr<rocksdb::FileSystem> &target)
        : FileSystemWrapper(target)
    {
    }

    const char *Name() const override
    {
        return "embtier.RoomFileSystem";
    }

    rocksdb::IOStatus NewWritableFile(const std::string &name, const rocksdb::FileOptions &options,
                                      std::unique_ptr<rocksdb::FSWritableFile> *file,
                                      rocksdb::IODebugContext *dbg) override
    {
        return Wrapped(target()->NewWritableFile(name, options, file, dbg), name, file);
    }

    rocksdb::IOStatus ReopenWritableFile(const std::string &name,
                                         const rocksdb::FileOptions &options,
                                         std::unique_ptr<rocksdb::FSWritableFile> *file,
                                         rocksdb::IODebugContext *dbg) override
    {
        return Wrapped(target()->ReopenWritableFile(name, options, file, dbg), name, file);
    }

    rocksdb::IOStatus NewDirectory(const std::string &name, const rocksdb::IOOptions &options,
                                   std::unique_ptr<rocksdb::FSDirectory> *directory,
                                   rocksdb::IODebugContext *dbg) override
    {
        const rocksdb::IOStatus status = target()->NewDirectory(name, options, directory, dbg);

        if (status.ok())
            directory->reset(new RoomDirectory(std::move(*directory)));
        return RoomOf(status);
    }

    rocksdb::IOStatus CreateDir(const std::string &name, IO_ARGUMENTS) override
    {
        return RoomOf(target()->CreateDir(name, options, dbg));
    }

    rocksdb::IOStatus CreateDirIfMissing(const std::string &name, IO_ARGUMENTS) override
    {
        return RoomOf(target()->CreateDirIfMissing(name, options, dbg));
    }

    rocksdb::IOStatus RenameFile(const std::string &from, const std::string &to,
                                 IO_ARGUMENTS) override
    {
        return RoomOf(target()->RenameFile(from, to, options, dbg));
    }

    rocksdb::IOStatus LinkFile(const std::string &from, const std::string &to,
                               IO_ARGUMENTS) override
    {
        return RoomOf(target()->LinkFile(from, to, options, dbg));
    }

    rocksdb::IOStatus Truncate(const std::string &name, size_t size, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Truncate(name, size, options, dbg));
    }

  private:
    static rocksdb::IOStatus Wrapped(const rocksdb::IOStatus &status, const std::string &name,
                                     std::unique_ptr<rocksdb::FSWritableFile> *file)
    {
        if (status.ok())
            file->reset(new RoomFile(std::move(*file), HasSuffix(name, ".log")));
        return RoomOf(status);
    }
};

#undef IO_ARGUMENTS

} // namespace

std::shared_ptr<rocksdb::FileSystem>
RoomFileSystemOf(const std::shared_ptr<rocksdb::FileSystem> &target)
{
    return std::make_shared<RoomFileSystem>(target);
}

} // namespace rocksdb_ext
