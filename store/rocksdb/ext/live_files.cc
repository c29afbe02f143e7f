// SPDX-License-Identifier: Apache-2.0
// live_files.cc: lists the files of a database, with their checksums.
#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/ext/versions.hh"
#include "store/rocksdb/ext/watch.hh"

#include <rocksdb/db.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/metadata.h>
#include <rocksdb/sst_file_reader.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

using rocksdb::Status;
using rocksdb_ext::HasSuffix;
using rocksdb_ext::TextOf;
using rocksdb_ext::Watch;

char *rocksdb_ext_table_error(const char *path)
{
    std::vector<std::string> names;

    if (!rocksdb::Env::Default()->GetChildren(path, &names).ok())
        return nullptr;
    std::sort(names.begin(), names.end());
    for (const std::string &name : names) {
        const std::string file = std::string(path) + "/" + name;
        const Status status = HasSuffix(name, ".sst")
                                  ? rocksdb::SstFileReader(rocksdb::Options()).Open(file)
                                  : Status::OK();

        if (!status.ok())
            return strdup((name + ": " + status.ToString()).c_str());
    }
    return nullptr;
}

void rocksdb_ext_sum_files(rocksdb_options_t *options)
{
    options->rep.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
}

struct rocksdb_ext_sum {
    std::unique_ptr<rocksdb::FileChecksumGenerator> rep;
};

struct rocksdb_ext_sum *rocksdb_ext_sum_new(void)
{
    return new rocksdb_ext_sum{
        rocksdb::GetFileChecksumGenCrc32cFactory()->CreateFileChecksumGenerator({})
    };
}

void rocksdb_ext_sum_add(struct rocksdb_ext_sum *sum, const void *bytes, size_t count)
{
    sum->rep->Update(static_cast<const char *>(bytes), count);
}

// Reads a checksum from four bytes, most significant first.
static bool SumOf(const std::string &text, uint32_t *ret_sum)
{
    uint32_t sum = 0;

    for (const char c : text)
        sum = sum << 8 | static_cast<uint8_t>(c);
    *ret_sum = sum;
    return text.size() == sizeof(sum);
}

uint32_t rocksdb_ext_sum_end(struct rocksdb_ext_sum *sum)
{
    uint32_t value = 0;

    sum->rep->Finalize();
    (void)SumOf(sum->rep->GetChecksum(), &value);
    delete sum;
    return value;
}

struct rocksdb_ext_files {
    rocksdb::DB *db;
    std::shared_ptr<Watch> watch;
    uint64_t log_failures; // before the files were listed
    std::vector<rocksdb::LiveFileStorageInfo> rep;
};

// RocksDB keeps the two OPTIONS files with the highest numbers. It also counts those that it could
// not make durable, so the one that it names may be gone. No open needs it.
static void ForgetGoneOptions(std::vector<rocksdb::LiveFileStorageInfo> &files)
{
    const auto is_gone = [](const rocksdb::LiveFileStorageInfo &file) {
        const std::string path = file.directory + "/" + file.relative_filename;

        return file.file_type == rocksdb::kOptionsFile && access(path.c_str(), F_OK) != 0 &&
               errno == ENOENT;
    };

    files.erase(std::remove_if(files.begin(), files.end(), is_gone), files.end());
}

// RocksDB writes into its MANIFEST the length of each log that another has followed. It does not
// know the right length of a log that has failed (LogFile), and could never open the database
// again. It also syncs these logs, and would not hear of a failure: so they must be on disk before.
static Status ListFiles(rocksdb::DB *db, Watch *watch,
                        std::vector<rocksdb::LiveFileStorageInfo> *ret_files)
{
    rocksdb::LiveFilesStorageInfoOptions options;
    std::shared_lock<std::shared_mutex> not_resumed(watch->ResumeMutex(), std::try_to_lock);

    if (!not_resumed) {
        const Status status = watch->Error();
        if (!status.ok())
            return status;
        not_resumed.lock(); // the resume has just succeeded
    }
    if (watch->LogFailed() || watch->ManifestFailures() > 0)
        return watch->Error();
    options.include_checksum_info = true;
    options.wal_size_for_flush = UINT64_MAX; // never flush
    const Status status = db->GetLiveFilesStorageInfo(options, ret_files);
    // The call notes in the MANIFEST which logs are on disk, and ignores a failure of that.
    return status.ok() && watch->ManifestFailures() > 0 ? watch->Error() : status;
}

struct rocksdb_ext_files *rocksdb_ext_files_new(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                                                char **error)
{
    auto files = std::make_unique<rocksdb_ext_files>();

    files->db = db->rep;
    files->watch = watch->rep;
    files->log_failures = watch->rep->LogFailures();
    Status status = db->rep->DisableFileDeletions();
    if (status.ok()) {
        rocksdb_ext_sync_logs(&watch, 1, false, false);
        status = ListFiles(db->rep, watch->rep.get(), &files->rep);
        if (status.ok())
            status = watch->rep->LogError(files->log_failures);
        if (!status.ok())
            (void)rocksdb_delete_files_again(db->rep);
    }
    ForgetGoneOptions(files->rep);
    *error = TextOf(status);
    return status.ok() ? files.release() : nullptr;
}

size_t rocksdb_ext_files_count(const struct rocksdb_ext_files *files)
{
    return files->rep.size();
}

void rocksdb_ext_files_at(const struct rocksdb_ext_files *files, size_t index,
                          struct rocksdb_ext_file *ret_file)
{
    const rocksdb::LiveFileStorageInfo &file = files->rep[index];

    *ret_file = {};
    ret_file->name = file.relative_filename.c_str();
    if (!file.replacement_contents.empty())
        ret_file->contents = file.replacement_contents.c_str();
    ret_file->bytes = file.size;
    ret_file->is_table =
        file.file_type == rocksdb::kTableFile || file.file_type == rocksdb::kBlobFile;
    ret_file->has_sum = ret_file->is_table &&
                        file.file_checksum_func_name == rocksdb::kStandardDbFileChecksumFuncName &&
                        SumOf(file.file_checksum, &ret_file->sum);
}

char *rocksdb_ext_files_log_error(const struct rocksdb_ext_files *files)
{
    return TextOf(files->watch->LogError(files->log_failures));
}

void rocksdb_ext_files_free(struct rocksdb_ext_files *files)
{
    if (!files)
        return;
    (void)rocksdb_delete_files_again(files->db);
    delete files;
}
