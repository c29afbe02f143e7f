/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds that people write: configurations, machines, rules, addresses, words. */
#include <stddef.h>
#include <stdio.h>

#include "base/macros.h"
#include "tests/fuzz/seeds/seeds.h"

static const char *const configs[] = {
    "",
    "data:\n  directories: [/a, /b]\n  shards_per_directory: 4\n  reserve_bytes: 1GiB\n",
    "lanes:\n  count: 4\n  readers_per_lane: 2\n  request_bytes: 64MiB\n  ticket_bytes: 64MiB\n"
    "  ticket_seconds: 60\n  group_seconds: 60\n  write_queue_bytes: 64MiB\n",
    "cache:\n  map_percent: 5\n  tiers:\n    - {name: dram, kind: dram, bytes: 1GiB, "
    "max_bytes: 2GiB, array_bytes: 256MiB}\n    - {name: pmem, kind: file, bytes: 2GiB, path: "
    "/mnt/pmem}\n"
    "    - {name: cxl, kind: numa, bytes: 1GiB, numa_node: 1}\n",
    "rocksdb:\n  memtable_bytes: 64MiB\n  metadata_cache_bytes: 64MiB\n  background_threads: 2\n"
    "  bloom_bits_per_key: 10\n  compaction_parallel: 1\n  direct_io: auto\n  io_uring: on\n"
    "  options: 'max_open_files=100'\n  layout: blob\n  compaction_hours: 22:00-06:00\n"
    "  compaction_bytes_per_second: 100MiB\n",
    "checkpoints:\n  interval_seconds: 600\n  keep: 2\n  max_checkpoints: 10\n"
    "  max_user_checkpoints: 5\n  transfer_bytes: 64MiB\n  transfer_idle_seconds: 60\n"
    "endurance:\n  capacity_bytes: 1TB\n  rated_written_bytes: 100TB\n  rated_years: 5\n"
    "  max_dwpd: 0.5\n",
    "socket:\n  path: /tmp/e.sock\n  mode: 0660\n  max_arena_bytes: 1GiB\n"
    "  max_total_arena_bytes: 4GiB\n  max_user_arena_bytes: 2GiB\n  max_sessions: 100\n"
    "  max_user_sessions: 50\n  max_batch_rows: 10000\n",
    "rpc:\n  listen: ['tcp://127.0.0.1:7000', 'unix+rpc:/tmp/r.sock']\n  threads: 2\n"
    "  io_uring: auto\n  insecure: false\nlog:\n  level: info\n"
    "  slow_request_ms: 100\nhttp:\n  listen: ['127.0.0.1:9100']\n  max_connections: 8\n  tables: "
    "20\n",
};

#define TIERS                                                                                      \
    "tiers:\n  - {name: dram, bytes: 192GiB, bandwidth_bytes_per_s: 200GB, cost_per_gb: 4}\n"      \
    "  - {name: pmem, bytes: 1TB, bandwidth_bytes_per_s: 30.5GB, power_w_per_gb: 0.01}\n"

/* The first byte of these: m for a machine, r for rules. */
static const char *const machines[] = {
    "mlanes: 5\ngpus:\n  count: 2\n  hbm_bytes: 40GB\n  hbm_bandwidth_bytes_per_s: 1.6TB\n" TIERS
    "ssd:\n  bytes: 8TB\n  read_bandwidth_bytes_per_s: 6GB\n  write_bandwidth_bytes_per_s: 2GB\n"
    "  read_iops: 1.5e6\n  block_bytes: 512\n  drive_writes_per_day: 0.5\n  drive_bytes: 10TB\n"
    "  write_amplification: 4.5\n",
    "m" TIERS "ssd: {bytes: 8TB, read_bandwidth_bytes_per_s: 6GB}\n",
    "rpin:\n  - {table: users, memory: dram}\nforbid:\n  - {table: items, memory: hbm, gpu: 1}\n"
    "reserve:\n  - {memory: dram, bytes: 1GiB}\n  - {memory: hbm, gpu: 0, bytes: 1GB}\n"
    "cache_least:\n  - {memory: pmem, bytes: 1GiB}\n",
    "rtarget_samples_per_s: 1000\nmoved_bytes_max: 1GiB\nleast_gain: 0.05\n"
    "limits: {read_iops: warn, target: refuse}\nunsplit: [users]\n"
    "together:\n  - {tables: [users, words]}\n",
};

static const char *const addresses[] = {
    "/run/embtier/embtier.sock",
    "unix:/run/e.sock",
    "unix+rpc:/run/e.sock",
    "tcp://localhost:7000",
    "tcp://[fe80::1%eth0]:1",
    "tcp://127.0.0.1:65535",
    "tls://trainer.lan:7411?ca=/a.pem&cert=/b.pem&key=/c.pem&token=/t",
    "unix+rpc:/run/e.sock?token=/t",
    "tcp://a:7411,tls://[::1]:7411?ca=/a,unix:/run/e.sock",
};

static const char *const words[] = {
    "f32",
    "bf16",
    "rowwise_adagrad",
    "uniform",
    "replay",
    "split",
    "stochastic",
    "192GiB",
    "1.5MB",
    "18446744073709551615",
    "-0.5e-3",
    "1e999",
    "nan",
    "users_v2.1-a",
    "00112233445566778899aabbccddeeff",
};

static const char json_of_table[] =
    "\x01{\"name\": \"users\", \"rows\": \"100\", \"dim\": 4, \"dtype\": \"f32\", "
    "\"optimizer\": \"adam\", \"init\": \"uniform\", \"init_params\": [-1.0, 1.0], "
    "\"seed\": \"1\", \"eager\": false, \"init_version\": 1, \"eps\": 1e-8, \"beta1\": 0.9, "
    "\"beta2\": 0.999, \"weight_decay\": 0.0, \"clip_norm\": 0.0, \"rounding\": \"nearest\", "
    "\"durability\": \"sync\", \"home\": \"array\", \"home_tier\": \"dram\", \"step\": \"5\"}";

static void write_all(const char *const *texts, size_t count, const char *target, int kind,
                      const char *name)
{
    for (size_t i = 0; i < count; i++) {
        char numbered[80];

        snprintf(numbered, sizeof(numbered), "%s-%zu", name, i);
        seed_write_text(target, numbered, kind, texts[i]);
    }
}

void seeds_of_texts(void)
{
    write_all(configs, ARRAY_LEN(configs), "fuzz_config", -1, "config");
    write_all(machines, ARRAY_LEN(machines), "fuzz_machine", -1, "text");
    write_all(addresses, ARRAY_LEN(addresses), "fuzz_address", -1, "address");
    write_all(words, ARRAY_LEN(words), "fuzz_table_spec", 2, "word");
    seed_write_text("fuzz_table_spec", "json", -1, json_of_table);
}
