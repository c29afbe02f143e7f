// SPDX-License-Identifier: Apache-2.0
// activity.cc: counts the background work of databases, by RocksDB's events, and makes each table
// file note the tables of its rows.
#include "store/rocksdb/ext/activity.hh"

#include "store/rocksdb/ext/handles.hh"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace rocksdb_ext
{

thread_local EmptyMark newest_empty_mark;
TableFiles table_files;

namespace
{

using rocksdb::Slice;
using rocksdb::Status;

constexpr uint64_t kPage = 4096;

// The tables of a file's rows, and the bytes of each, as text: "7:123456 9:42".
class TableNotes final : public rocksdb::TablePropertiesCollector
{
  public:
    static constexpr const char *PROPERTY = "embtier.tables";
    using Bytes = std::map<uint32_t, uint64_t>;

    const char *Name() const override
    {
        return "embtier.TableNotes";
    }

    Status AddUserKey(const Slice &key, const Slice &value, rocksdb::EntryType,
                      rocksdb::SequenceNumber, uint64_t) override
    {
        const uint32_t table = TableOf(key);

        if (!bytes_ || table != table_) { // rows of one table lie together
            table_ = table;
            bytes_ = &tables_[table];
        }
        *bytes_ += key.size() + value.size();
        return Status::OK();
    }

    Status Finish(rocksdb::UserCollectedProperties *properties) override
    {
        (*properties)[PROPERTY] = Text();
        if (is_empty_)
            *is_empty_ = tables_.empty();
        return Status::OK();
    }

    rocksdb::UserCollectedProperties GetReadableProperties() const override
    {
        return { { PROPERTY, Text() } };
    }

    static Bytes Parse(const rocksdb::TableProperties &file)
    {
        const auto found = file.user_collected_properties.find(PROPERTY);
        Bytes tables;
        unsigned long long bytes;
        unsigned table;
        int length;

        if (found == file.user_collected_properties.end())
            return tables;
        for (const char *at = found->second.c_str();
             sscanf(at, "%u:%llu %n", &table, &bytes, &length) == 2; at += length)
            tables[table] = bytes;
        return tables;
    }

  private:
    // Keys begin with the table's id, big-endian (store/database/row_format.h).
    static uint32_t TableOf(const Slice &key)
    {
        uint32_t table = 0;

        for (size_t i = 0; i < std::min<size_t>(key.size(), 4); i++)
            table = table << 8 | static_cast<unsigned char>(key[i]);
        return table;
    }

    std::string Text() const
    {
        std::string text;

        for (const auto &[table, bytes] : tables_)
            text += std::to_string(table) + ":" + std::to_string(bytes) + " ";
        return text;
    }

    const EmptyMark is_empty_ = std::move(newest_empty_mark);
    Bytes tables_;
    uint32_t table_ = 0;
    uint64_t *bytes_ = nullptr; // of table_
};

class TableNotesFactory final : public rocksdb::TablePropertiesCollectorFactory
{
  public:
    const char *Name() const override
    {
        return "embtier.TableNotes";
    }

    rocksdb::TablePropertiesCollector *CreateTablePropertiesCollector(Context) override
    {
        return new TableNotes;
    }
};

} // namespace

TableFiles::Counter TableFiles::Begin(const std::string &path)
{
    std::lock_guard<std::mutex> lock(mutex_);
    return files_[path] = std::make_shared<std::atomic<uint64_t>>(0);
}

uint64_t TableFiles::Take(const std::string &path)
{
    std::lock_guard<std::mutex> lock(mutex_);
    const auto file = files_.find(path);
    if (file == files_.end())
        return 0;
    const uint64_t bytes = (*file->second + kPage - 1) / kPage * kPage;
    files_.erase(file);
    return bytes;
}

void Activity::AddFile(const rocksdb::TableProperties &properties, uint64_t bytes,
                       uint64_t rocksdb_ext_written::*cause)
{
    const TableNotes::Bytes tables = TableNotes::Parse(properties);
    double rows = 0;

    for (const auto &[table, row_bytes] : tables)
        rows += static_cast<double>(row_bytes);
    std::lock_guard<std::mutex> lock(mutex);
    all_written.*cause += bytes;
    for (const auto &[table, row_bytes] : tables)
        written[table].*cause += static_cast<uint64_t>(static_cast<double>(bytes) *
                                                       static_cast<double>(row_bytes) / rows);
}

} // namespace rocksdb_ext

struct rocksdb_ext_activity *rocksdb_ext_activity_new(void)
{
    return new rocksdb_ext_activity{ std::make_shared<rocksdb_ext::Activity>() };
}

void rocksdb_ext_activity_free(struct rocksdb_ext_activity *activity)
{
    delete activity;
}

void rocksdb_ext_activity_compactions(const struct rocksdb_ext_activity *activity,
                                      uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                      uint64_t *ret_completed)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    *ret_running_shards = activity->rep->running_shards;
    *ret_peak_shards = activity->rep->peak_shards;
    *ret_completed = activity->rep->completed;
}

void rocksdb_ext_activity_written(const struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  struct rocksdb_ext_written *ret_written)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    if (table_id == ROCKSDB_EXT_ALL_TABLES) {
        *ret_written = activity->rep->all_written;
        return;
    }
    const auto found = activity->rep->written.find(table_id);
    *ret_written = found == activity->rep->written.end() ? rocksdb_ext_written{} : found->second;
}

void rocksdb_ext_activity_add_log(struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  uint64_t bytes)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    activity->rep->written[table_id].log_bytes += bytes;
}

void rocksdb_ext_activity_forget(struct rocksdb_ext_activity *activity, uint32_t table_id)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    activity->rep->written.erase(table_id);
}

void rocksdb_ext_note_tables(rocksdb_options_t *options)
{
    options->rep.table_properties_collector_factories.push_back(
        std::make_shared<rocksdb_ext::TableNotesFactory>());
}
