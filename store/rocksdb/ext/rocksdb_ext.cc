// SPDX-License-Identifier: Apache-2.0
// rocksdb_ext.cc: RocksDB's version, options, statistics, memory and threads.
//
// Exceptions do not leave the files of this folder. RocksDB throws only if a thread cannot be made
// (rocksdb_ext_start_threads()). Code here throws only when out of memory, and then the process
// cannot go on anyway.
#include "store/rocksdb/rocksdb_ext.h"

#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/ext/metadata_cache.hh"
#include "store/rocksdb/ext/versions.hh"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/thread_status.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

static uint32_t TickerNumber(enum rocksdb_ext_ticker ticker)
{
    switch (ticker) {
#define X(name)                                                                                    \
    case ROCKSDB_EXT_##name:                                                                       \
        return rocksdb::name;
        ROCKSDB_EXT_TICKER_TABLE(X)
#undef X
    }
    return rocksdb::COMPACT_READ_BYTES;
}

bool rocksdb_ext_fits(void)
{
    const int files = 7654321;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(files);

    rocksdb_options_set_max_open_files(options, files);
    const bool fits = options->rep.max_open_files == files && cache->rep->GetCapacity() == files;
    rocksdb_cache_destroy(cache);
    rocksdb_options_destroy(options);
    return fits;
}

void rocksdb_ext_check_logs(rocksdb_options_t *options)
{
    options->rep.track_and_verify_wals_in_manifest = true;
}

const char *rocksdb_ext_version(void)
{
    static const std::string version = rocksdb::GetRocksVersionAsString();

    return version.c_str();
}

bool rocksdb_ext_is_tried(const char *version)
{
    return rocksdb_is_tried(version);
}

void rocksdb_ext_enable_statistics(rocksdb_options_t *options)
{
    options->rep.statistics = rocksdb::CreateDBStatistics();
    options->rep.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
}

uint64_t rocksdb_ext_ticker(const rocksdb_options_t *options, enum rocksdb_ext_ticker ticker)
{
    return options->rep.statistics->getTickerCount(TickerNumber(ticker));
}

void rocksdb_ext_share_write_buffers(rocksdb_options_t *options, size_t bytes)
{
    options->rep.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(bytes);
}

uint64_t rocksdb_ext_write_buffer_bytes(const rocksdb_options_t *options)
{
    return options->rep.write_buffer_manager->memory_usage();
}

void rocksdb_ext_set_write_buffers(const rocksdb_options_t *options, size_t bytes)
{
    options->rep.write_buffer_manager->SetBufferSize(bytes);
}

uint64_t rocksdb_ext_write_buffers_budget(const rocksdb_options_t *options)
{
    return options->rep.write_buffer_manager->buffer_size();
}

rocksdb_cache_t *rocksdb_ext_metadata_cache_new(size_t bytes)
{
    return new rocksdb_cache_t{ metadata_cache_new(bytes) };
}

bool rocksdb_ext_parse_options(const char *text,
                               bool (*each)(void *context, const char *name, const char *value),
                               void *context)
{
    std::unordered_map<std::string, std::string> parsed;

    if (!rocksdb::StringToMap(text, &parsed).ok())
        return false;
    for (const auto &option : std::map<std::string, std::string>(parsed.begin(), parsed.end()))
        if (!each(context, option.first.c_str(), option.second.c_str()))
            break;
    return true;
}

bool rocksdb_ext_each_option(const rocksdb_options_t *options,
                             bool (*each)(void *context, const char *name, const char *value),
                             void *context)
{
    rocksdb::ConfigOptions form;
    std::string of_database;
    std::string of_family;

    form.delimiter = ";";
    return rocksdb::GetStringFromDBOptions(form, rocksdb::DBOptions(options->rep), &of_database)
               .ok() &&
           rocksdb::GetStringFromColumnFamilyOptions(
               form, rocksdb::ColumnFamilyOptions(options->rep), &of_family)
               .ok() &&
           rocksdb_ext_parse_options(of_database.c_str(), each, context) &&
           rocksdb_ext_parse_options(of_family.c_str(), each, context);
}

const char *rocksdb_ext_compression(size_t index)
{
    static const struct {
        rocksdb::CompressionType type;
        const char *name;
    } names[] = {
        { rocksdb::kNoCompression, "kNoCompression" },
        { rocksdb::kSnappyCompression, "kSnappyCompression" },
        { rocksdb::kZlibCompression, "kZlibCompression" },
        { rocksdb::kBZip2Compression, "kBZip2Compression" },
        { rocksdb::kLZ4Compression, "kLZ4Compression" },
        { rocksdb::kLZ4HCCompression, "kLZ4HCCompression" },
        { rocksdb::kXpressCompression, "kXpressCompression" },
        { rocksdb::kZSTD, "kZSTD" },
#if ROCKSDB_MAJOR < 10
        { rocksdb::kZSTDNotFinalCompression, "kZSTDNotFinalCompression" },
#endif
    };
    const std::vector<rocksdb::CompressionType> can = rocksdb::GetSupportedCompressions();

    for (const auto &known : names)
        if (std::find(can.begin(), can.end(), known.type) != can.end() && index-- == 0)
            return known.name;
    return nullptr;
}

bool rocksdb_ext_start_threads(rocksdb_env_t *env, int flushing, int compacting)
{
    // Enlarging a pool makes its threads at once.
    try {
        rocksdb_env_set_high_priority_background_threads(env, flushing);
        rocksdb_env_set_background_threads(env, compacting);
    } catch (const std::system_error &) {
        return false;
    }
    return true;
}

bool rocksdb_ext_compactions_wait(const rocksdb_options_t *options)
{
    return options->rep.env->GetThreadPoolQueueLen(rocksdb::Env::LOW) > 0;
}

static rocksdb_ext_compaction CompactionOf(const rocksdb::ThreadStatus &thread)
{
    using Status = rocksdb::ThreadStatus;

    return { thread.db_name.c_str(), thread.op_properties[Status::COMPACTION_BYTES_READ],
             thread.op_properties[Status::COMPACTION_TOTAL_INPUT_BYTES],
             thread.op_elapsed_micros / 1000 };
}

void rocksdb_ext_each_compaction(const rocksdb_options_t *options, rocksdb_ext_compaction_fn *tell,
                                 void *context)
{
    std::vector<rocksdb::ThreadStatus> threads;

    if (!options->rep.env->GetThreadList(&threads).ok())
        return;
    for (const auto &thread : threads) {
        if (thread.operation_type != rocksdb::ThreadStatus::OP_COMPACTION)
            continue;
        const rocksdb_ext_compaction compaction = CompactionOf(thread);
        tell(context, &compaction);
    }
}
