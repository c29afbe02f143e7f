/* SPDX-License-Identifier: Apache-2.0 */
/* The commands for traces, profiles and plans, with their help. */
#include "tools/cli/commands/commands.h"

#include <stddef.h>

#include "tools/cli/cli.h"

/* clang-format off: tables read better in columns */
const struct command placement_commands[] = {
    { "profile show", "TRACE [--cache BYTES[,BYTES]] [--plot FILE.svg] [--save FILE]",
      "show how a trace looks up its tables",
      "TRACE: a file of lookups, which docs/internals/placement/trace-format.md describes, or a\n"
      "saved profile. No server is needed.\n"
      "\n"
      "  -c, --cache BYTES     predict the hit rates of an LRU cache that all tables share, such\n"
      "                        as 4GiB; several sizes are its tiers, fastest first: 4GiB,16GiB\n"
      "      --optimizer NAME  the cached rows also have this optimizer's state (default: the\n"
      "                        table's, if a server made the profile, else none)\n"
      "  -p, --plot FILE.svg   draw the tables' CDFs; an old picture is replaced\n"
      "      --save FILE       save the profile: a new file of JSON, much smaller than the trace\n"
      "\n"
      "Rows: those that were looked up. Batch rows: different rows in a batch. Updated: the part\n"
      "of these that the batch updates. 50%, 80%, 95%: number of hottest rows that take this\n"
      "part of the lookups. CDF: the part that the hottest 1 to all rows take, on a logarithmic\n"
      "scale. Memory: 1 MiB a table, 1 GiB at most, 8192 tables at most. Rows of large tables\n"
      "are sampled.\n"
      "\n"
      "With -o json: {trace, lookups, batches, tier_bytes, hit_rates, tables: [{name, rows, dim,\n"
      "dtype, lookups, batches, pooling_factor, distinct_rows, batch_rows, updated_share,\n"
      "sampling_rate, working_sets: {PERCENT: ROWS}, cdf: [[ROWS, SHARE]], hit_rates,\n"
      "cache_bytes}]}; rows of an unbounded table are null.\n",
      "  embtier profile show run.trace --cache 4GiB,16GiB --plot run.svg\n"
      "  embtier profile show run.trace --save run.profile\n"
      "  embtier profile show run.profile --cache 8GiB\n"
      "  embtier -o json profile show run.trace | jq '.tables[] | {name, working_sets}'\n",
      command_profile_show, NULL },
    { "plan make", "PLAN --profile FILE --machine FILE [options]",
      "make a plan: a home for each table on a machine",
      "PLAN: the file to write; it may not exist. No server is needed. Files that are read may "
      "not\n"
      "be pipes, as their hashes are part of the plan.\n"
      "\n"
      "      --profile FILE    what `embtier profile show TRACE --save FILE` or `embtier profile\n"
      "                        record --save FILE` wrote\n"
      "      --machine FILE    GPUs, tiers and SSD: sizes, bandwidths, limits (YAML)\n"
      "      --row-wise        split tables by hotness: hot rows in memory, the rest in the "
      "cache;\n"
      "                        tables stay whole where no split helps; `embtier apply` needs the\n"
      "                        profile's trace then, so record one: a server's profile has none\n"
      "      --rules FILE      pins, forbidden memories, tables kept together or unsplit, "
      "reserved\n"
      "                        bytes, a target of samples/s, limits that only warn (YAML)\n"
      "      --previous FILE   the plan in force: the new one has the next generation, and moves\n"
      "                        no more bytes than the rules allow\n"
      "      --optimizer LIST  the tables' optimizer, whose state is part of a row: NAME, or\n"
      "                        NAME,TABLE=NAME,... for some tables (default: the profile's, if\n"
      "                        a server made it, else none)\n"
      "      --samples-per-batch N\n"
      "                        samples in a batch of the profile (default: the most bags that a\n"
      "                        table has in a batch)\n"
      "      --from-empty      hit rates of a cache that starts empty and sees only the profile's\n"
      "                        lookups (default: of a server that has long run)\n"
      "      --solver WORD     auto (default): HiGHS or CBC improves the placement if one is\n"
      "                        installed; none: it is not asked. The plan's inputs name it\n"
      "\n"
      "Each table lies whole in the memory of a GPU, in an array in a tier, or behind the cache,\n"
      "which has the memory that arrays leave of each tier. With --row-wise a table may have one\n"
      "range of its rows, sorted by hotness, in each of them; `embtier apply` takes plans\n"
      "with at most one range of a table in an array. The search minimises the time of the\n"
      "slowest GPU's lookups. The limits are bytes, reads/s and bytes written a day. The plan is\n"
      "printed as `embtier plan show` prints it. docs/internals/placement/planning.md describes\n"
      "the keys of the files, and the model.\n"
      "\n"
      "With -o json: as `embtier plan show`.\n",
      "  embtier plan make run.plan --profile run.profile --machine machine.yaml --optimizer adam\n"
      "  embtier plan make rows.plan --profile run.profile --machine machine.yaml --row-wise\n"
      "  embtier plan make new.plan --profile run.profile --machine machine.yaml \\\n"
      "    --rules rules.yaml --previous run.plan\n",
      command_plan_make, NULL },
    { "plan show", "FILE [--table NAME] [--svg FILE.svg]", "show where a plan puts tables, and why",
      "FILE: a plan, which docs/internals/placement/plan-format.md describes. All its numbers are\n"
      "checked; a mistake is one line with file, line and key. No server is needed.\n"
      "\n"
      "      --table NAME    show one table, with all figures of its parts\n"
      "      --svg FILE.svg  draw each table's bandwidth against its size, coloured by memory; a\n"
      "                      split table has a sector for each range; an old picture is replaced\n"
      "\n"
      "Tables with the longest lookup time come first. Home: the memory; that of a split table\n"
      "with the share of its lookups. Hits: lookups that need no SSD. Reads/s and writes a day\n"
      "(in bytes): of SSD, at the predicted samples/s. All figures are predictions.\n"
      "\n"
      "With -o json: {generation, samples_per_s, samples_per_batch, time_s, bound_s, gpu_count,\n"
      "inputs: [{name, hash}], memories: [{name, gpu, capacity_bytes, array_bytes, cache_bytes,\n"
      "left_bytes, bandwidth_bytes_per_s, read_bytes, time_s}], tables: [{name, rows, dim, dtype,\n"
      "optimizer, gpu, unsplit, bytes, read_bytes, time_s, reason, parts: [{home, memory, rows,\n"
      "bytes, lookup_share, hit_rates, cache_bytes, time_s, reads_per_s, "
      "writes_bytes_per_day}]}]}; with\n"
      "--table, one of the tables. Null: no GPU, no bound, rows without a limit.\n",
      "  embtier plan show run.plan --svg run.svg\n"
      "  embtier plan show run.plan --table users\n"
      "  embtier -o json plan show run.plan | jq '.tables[] | {name, reason}'\n",
      command_plan_show, NULL },
    { "plan diff", "OLD NEW", "show what moves from one plan to another",
      "A row moves if its rank by hotness lies in another memory in the new plan. Bytes: rows and\n"
      "optimizer state. Altered: rows, dim, dtype or optimizer differ, so it is another table.\n"
      "\n"
      "With -o json: {generation_before, generation_after, rows_moved, bytes_moved, same_tables,\n"
      "memories: [{name, gpu, in_bytes, out_bytes, array_bytes_before, array_bytes_after,\n"
      "cache_bytes_before, cache_bytes_after}], tables: [{name, change, rows_moved, bytes_moved,\n"
      "before, after}]}; change is moved, altered, added or dropped; before and after are tables\n"
      "as `embtier plan show` prints them, or null.\n",
      "  embtier plan diff old.plan new.plan\n"
      "  embtier -o json plan diff old.plan new.plan | jq .bytes_moved\n",
      command_plan_diff, NULL },
    { "apply", "PLAN [--dry-run] [options]", "move tables to where a plan wants them",
      "      --dry-run        show what would move, and how long it would take at most\n"
      "      --rate MIB       move at most this many MiB of rows a second (default 256). The\n"
      "                       server spends at most a fifth of each lane's time on it\n"
      "      --trace FILE     the trace that the plan's profile was made from: it has the hot\n"
      "                       rows of tables that are cut by hotness\n"
      "      --without-gpu    put rows that the plan has in GPU memory into arrays, or else the\n"
      "                       cache\n"
      "\n"
      "Clients go on meanwhile, and each row can be read and written at all times. A run first\n"
      "waits for moves of the plan's tables. An interrupted or failed run leaves each table\n"
      "whole, in its old or its new home, or in the cache if it gave way to others; a further\n"
      "run goes on. Every plan for GPUs needs --without-gpu.\n"
      "When all tables have moved, the plan is in force: an older one is refused from then on.\n"
      "With -o json: {generation, applied, moves: [{table, from: {home, tier, hot_rows},\n"
      "to: {home, tier, hot_rows}, rows, bytes, array_bytes}], same, unplanned, bytes,\n"
      "moved_rows, detours}. hot_rows: of splits only.\n",
      "  embtier apply run.plan --dry-run\n"
      "  embtier apply rows.plan --rate 64 --trace run.trace\n",
      command_apply, NULL },
    { "plan check", "PLAN [--for TIME] [options]",
      "compare a plan's predictions with the running server",
      "Counts for a time how clients use the server, and compares it with the plan: hit rates,\n"
      "lookup time of a batch, reads/s of SSD, bytes written to SSD an hour; by memory and table.\n"
      "\n"
      "      --for TIME           how long to count: 60s (default), 10m, 1h\n"
      "      --hit-points N       most points by which a hit rate may differ (default 2)\n"
      "      --time-percent N     the same for lookup times, in percent (default 15)\n"
      "      --iops-percent N     the same for reads/s (default 15)\n"
      "      --written-percent N  the same for bytes written (default 10)\n"
      "      --json               as -o json\n"
      "\n"
      "Predicted rates are those at the pace of the clients. Hits: lookups that need no SSD; of a\n"
      "memory, the share of lookups that it serves. A difference beyond its bar has a !. Tables\n"
      "whose home is not the plan's, or that only one of the two has, are named. A figure with\n"
      "too little traffic is not compared. Exit status: 0 within the bars; 1 beyond, or a table\n"
      "is not as planned; 2 a failure, such as a server that cannot be reached, or too little\n"
      "traffic for any figure.\n"
      "\n"
      "With -o json: {generation, seconds, lookups, batches_per_s, bars, within, compared, "
      "beyond,\n"
      "misplaced, memories: [{name, FIGURES}], tables: [{name, place, planned, actual, "
      "FIGURES}]}.\n"
      "FIGURES: hit_rate, time_s, reads_per_s and written_bytes_per_hour, each {state, predicted,\n"
      "measured, difference, beyond}. State is compared, too_few, idle (nothing predicted) or\n"
      "unknown (not measured). Place is as_planned, elsewhere, altered, changed (meanwhile),\n"
      "missing or unplanned. A split also has planned_tier, planned_hot_rows, actual_tier and\n"
      "actual_hot_rows.\n",
      "  embtier plan check run.plan --for 10m\n"
      "  embtier plan check run.plan --for 60s --time-percent 30 --json | jq .within\n",
      command_plan_check, NULL },
    { "plan what-if", "MACHINE... --profile FILE [options]",
      "find the cheapest machine that reaches a target",
      "MACHINE: files as for `embtier plan make`, 1 to 64. Each one is planned as it is, with\n"
      "each tier doubled, and with its drives doubled. No server is needed, and nothing is\n"
      "written. A memory or drive to add is one more MACHINE: docs/machine-pmem.yaml and\n"
      "docs/machine-optane.yaml are docs/machine.yaml with PMEM and with Optane-class drives.\n"
      "\n"
      "      --profile FILE    a profile that `embtier profile show --save` wrote\n"
      "      --target N        samples/s to reach (default: the target of the rules)\n"
      "      --as-they-are     plan the machines without changes\n"
      "      --row-wise        tables may be split by hotness, as for `embtier plan make`\n"
      "      --rules FILE, --optimizer LIST, --samples-per-batch N\n"
      "                        as for `embtier plan make`\n"
      "\n"
      "Costs and watts are sums over the memories, from the machines' keys; a question mark\n"
      "stands for a machine that lacks one of them. Reaches: a plan was found that is fast\n"
      "enough within all limits; without a target, within all limits.\n"
      "\n"
      "With -o json: {plans: [{machine, change, cost, power_w, samples_per_s, time_s, reaches,\n"
      "why}], cheapest: its number in plans or null}.\n",
      "  embtier plan what-if small.yaml large.yaml --profile run.profile --target 200000\n",
      command_plan_what_if, NULL },
    { "profile record", "--seconds N --save FILE [--memory SIZE]",
      "measure how clients look up the server's tables",
      "Starts a profile, stops it after N seconds, and saves it. Ctrl-C, SIGTERM and SIGHUP stop\n"
      "it at once, without saving it; `embtier profile save` still can. The exit status is then\n"
      "130, 143 or 129. If the server is silent, --timeout, 10 s, or a signal that comes a second\n"
      "after the first one or later, end the command; the server may then go on profiling.\n"
      "\n"
      "      --seconds N    0.1 to 86400\n"
      "      --save FILE    a new file; `embtier profile show FILE` prints it\n"
      "      --memory SIZE  as for `embtier profile start`\n"
      "\n"
      "With -o json: as `embtier profile stop`.\n",
      "  embtier profile record --seconds 60 --save run.profile\n"
      "  embtier profile show run.profile --cache 8GiB\n",
      command_profile_record, NULL },
    { "profile start", "[--memory SIZE]", "begin to measure how clients look up the tables",
      "  -m, --memory SIZE  memory of the server, such as 32MiB: about 1.1 MiB is of use for each\n"
      "                     table. It is taken from checkpoints.transfer_bytes (default: as much\n"
      "                     as is of use, but a quarter of that)\n"
      "\n"
      "The server counts GETs and pooled lookups, of all clients, and rows that pushes and SETs\n"
      "change; prefetches do not count. There is one profile at a time, which goes on without\n"
      "this program. `embtier stats` shows the metrics profile_*. Rows are sampled: the\n"
      "busier the server, the fewer, so that its rate falls by 2 % at most.\n"
      "\n"
      "With -o json: {state, age_ms, memory_bytes, tables, lookups, samples, lost_samples, exact,\n"
      "saved}.\n",
      "  embtier profile start --memory 32MiB\n", command_profile_start, NULL },
    { "profile stop", "[--save FILE]", "end the measurement",
      "      --save FILE  save the profile, as `embtier profile save` does\n"
      "\n"
      "The results stay until the next start, or until the server stops. Root and the server's\n"
      "user may stop a profile that another user began.\n"
      "\n"
      "Lost samples: those for which the server had no room. With -o json: as for `profile\n"
      "start`.\n",
      "  embtier profile stop --save run.profile\n", command_profile_stop, NULL },
    { "profile save", "FILE", "save the profile of the server, so far or of the last run",
      "FILE: a new file of JSON, for `embtier profile show`. A dropped table is in it, unless a\n"
      "later one has its name.\n"
      "\n"
      "With -o json: {saved}, the FILE.\n",
      "  embtier profile save run.profile\n", command_profile_save, NULL },
    { "trace generate", "FILE [options]", "write a synthetic trace of lookups",
      "      --tables N       number of tables (default 4)\n"
      "      --rows N         rows of each table (default 1000000)\n"
      "      --pooling P      mean ids per bag, 0 to 10000 (default 10)\n"
      "  -d, --dim D          numbers per row (default 64)\n"
      "      --dtype TYPE     f32 (default), f16, bf16\n"
      "      --batches N      number of batches (default 100)\n"
      "      --bags N         bags of each table in a batch (default 512)\n"
      "      --zipf S         exponent of the rows' popularity, 0 (all alike) to 10\n"
      "                       (default 1.05)\n"
      "      --locality NAME  rows are used as often in a batch as Meta published, instead:\n"
      "                       meta-2021, meta-2022\n"
      "      --like NAME      take all of these from Meta's traces, except where an option is\n"
      "                       given: 856 or 788 tables of different rows and pooling factors,\n"
      "                       the locality, and 1 batch of 65536 or 131072 bags. Its file has\n"
      "                       4 or 11 GB: lower --bags or --tables for a smaller one\n"
      "      --seed N         the same seed and options give the same trace (default 0)\n"
      "      --no-update      batches only look rows up; without it each batch updates its rows\n"
      "\n"
      "Meta's traces themselves are not used: a model was fitted to their published histograms.\n"
      "With -o json: {path, tables, batches, lookups}.\n",
      "  embtier trace generate zipf.trace --tables 8 --zipf 1.2\n"
      "  embtier trace generate meta.trace --like meta-2021 --tables 50 --bags 2048 --batches 32\n",
      command_trace_generate, NULL },
    { "trace hottest", "TRACE --table NAME [options]", "show the rows that a trace looks up most",
      "      --table NAME   the table\n"
      "      --rows N       at most this many rows (default 100000)\n"
      "      --save FILE    save them: a new .safetensors file with the tensors ids and lookups,\n"
      "                     the hottest row first\n"
      "      --memory SIZE  at most this much memory (default 1GiB). A trace of more rows is read\n"
      "                     several times, and cannot be a pipe\n"
      "\n"
      "Counts are exact. Rows with equally many lookups come by id.\n"
      "With -o json: {trace, table, lookups, distinct_rows, count, share, rows: [{id, lookups}]};\n"
      "rows is empty with --save.\n",
      "  embtier trace hottest run.trace --table users\n"
      "  embtier trace hottest run.trace --table users --rows 1000000 --save users.safetensors\n",
      command_trace_hottest, NULL },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */
