/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of embtier, with their help, and their order. The man page is made from it. */
#include "tools/cli/commands/commands.h"

#include <stddef.h>

#include "tools/cli/cli.h"

/* clang-format off: tables read better in columns */
static const struct command server_commands[] = {
    { "status", "[--all] [--sort traffic|size] [--watch SECONDS]",
      "tell whether the server is well, on one screen",
      "      --all            show all warnings and tables, not the first ten, and whole names\n"
      "      --sort ORDER     order of the tables: traffic (default), rows looked up and updated\n"
      "                       since the server's start; size, of all their rows\n"
      "  -w, --watch SECONDS  repeat at this interval, and show rates too\n",
      "  embtier status\n"
      "  embtier status --watch 2\n"
      "  embtier -o json status | jq -r .health\n",
      command_status, help_status },
    { "stats", "[--watch SECONDS]", "show all figures of the server",
      "  -w, --watch SECONDS  repeat at this interval, and show counters as rates\n"
      "\n"
      "Users: how much of each limited resource a user has, and how much it may have now.\n"
      "Resources of which a user has none are left out.\n"
      "\n"
      "Latencies: the time from a lane's first look at a request to its answer, since the start.\n"
      "\n"
      "With -o json: {version, libraries, uptime_ms, plan: {generation, tables, applied_ms,\n"
      "applying_pid, applying_generation}, metrics: {NAME: value, or {LABEL: value}},\n"
      "hit_rates: {TIER: 0 to 1}, latencies: [{op, transport, requests, seconds, p50_seconds,\n"
      "p99_seconds}], users: {UID: {THING: {used, most}}}}; with --watch, one line\n"
      "per interval. The generation is 0 if no plan is in force.\n",
      "  embtier stats\n"
      "  embtier stats --watch 2\n"
      "  embtier -o json stats | jq .metrics.cache_hit_rows.dram\n",
      command_stats, NULL },
    { "clients end", "NUMBER", "end the session of a client",
      "That client's calls fail, and the message says that an administrator has ended the\n"
      "session. It may connect again. Requests under way are finished. With an access file this\n"
      "is for administrators of all tables; without one, root and the server's user may end all\n"
      "sessions, and others those of their own user.\n"
      "\n"
      "With -o json: {ended: NUMBER}.\n",
      "  embtier clients end 12\n", command_clients_end, NULL },
    { "clients", "[--sort COLUMN]", "list the sessions of clients",
      "      --sort COLUMN  number (default), user, from, transport, age, requests, rows, arena,\n"
      "                     in-flight, tickets; the largest first, but for numbers and texts\n"
      "\n"
      "REQUESTS, ROWS: for rows, since the client connected; a push with a ticket counts bags.\n"
      "TICKETS: of lookups that wait for their push, and of prefetches. A user of the access\n"
      "file sees its own sessions; an administrator of all tables sees all.\n"
      "\n"
      "With -o json: [{number, user, uid, pid, address, transport: shm or unix+rpc or tcp or\n"
      "tls, client, age_ms, connections, arena_bytes, requests, rows, in_flight, tickets, own}];\n"
      "user is a name of the access file, or \"\"; uid and pid are null if they are unknown.\n",
      "  embtier clients --sort arena\n"
      "  embtier -o json clients | jq '.[] | select(.in_flight > 0)'\n",
      command_clients, NULL },
    { "top", "[--delay SECONDS] [--panel PANEL] [--batch [-n N]]",
      "watch what the server does now, refreshed each second",
      "  -d, --delay SECONDS  time between two frames, 0.1 to 86400 (default 1)\n"
      "      --panel PANEL    requests|tiers|ssd|shards|clients|tables: the first one shown, or\n"
      "                       with --batch the only one\n"
      "  -b, --batch          print frames as plain text, without a terminal; the first frame has\n"
      "                       no rates\n"
      "  -n, --frames N       end after N frames; with --batch\n",
      "  embtier top\n"
      "  embtier top --panel tables --delay 5\n"
      "  embtier -o json top --batch -n 2 --delay 10 | jq -s '.[1].requests'\n",
      command_top, help_top },
    { "endurance forecast", "PROFILE [--tier NAME=SIZE]... [--drive DRIVE]... [options]",
      "show what another cache, layout or drive would write",
      "PROFILE: a profile of this server (`embtier profile record`). The alternatives come side "
      "by\n"
      "side with the server as it is. Without any of the first four options they are: each tier\n"
      "twice as large, a tier pmem if there is one tier, the other layouts, and no deferred\n"
      "initialization.\n",
      "  embtier profile record --seconds 600 --save run.profile\n"
      "  embtier endurance forecast run.profile --interval 600\n"
      "  embtier endurance forecast run.profile --tier dram=256GiB --tier pmem=1TiB --eager\n"
      "  embtier endurance forecast run.profile --drive name=new,bytes=3.84TB,dwpd=3,years=5\n",
      command_endurance_forecast, help_endurance_forecast },
    { "endurance", "[--interval SECONDS]",
      "show the bytes written to SSD, and how long the drives last",
      "  -i, --interval SECONDS  measure from now on, for this time; without it, since the\n"
      "                          server's start. Flushes and compactions come in bursts, so\n"
      "                          choose an interval that spans many of them\n",
      "  embtier endurance\n"
      "  embtier endurance --interval 600\n",
      command_endurance, help_endurance },
    { "table create", "NAME --rows N|unbounded --dim D [options]", "make a table",
      "  -r, --rows N            number of rows; unbounded: any 64-bit id is a row\n"
      "  -d, --dim D             numbers per row\n"
      "      --dtype TYPE        f32 (default), f16, bf16\n"
      "      --optimizer NAME    optimizer whose state is kept: none (default), sgd, adagrad,\n"
      "                          rowwise_adagrad, rmsprop, adam, momentum, adamw,\n"
      "                          sparse_adam\n"
      "      --init INIT         first values: zeros (default), constant:VALUE,\n"
      "                          uniform:LOW,HIGH, normal:MEAN,STDDEV\n"
      "      --seed SEED         seed of the first values (default 0)\n"
      "      --eager             write every row now, not when it is first touched\n"
      "      --if-not-exists     succeed if the same table already exists; without --home, in\n"
      "                          whatever home\n"
      "      --rounding ROUNDING rounding of updated f16 and bf16 weights: stochastic (default),\n"
      "                          nearest\n"
      "      --allow-nonfinite   accept gradients with NaN or infinity, and updates that make a\n"
      "                          row NaN or infinite; without it such a push is refused\n"
      "      --durability MODE   when updates are safe from a crash: replay (default), once a\n"
      "                          checkpoint has them; async, when acknowledged, but not from loss\n"
      "                          of power; sync, when acknowledged\n"
      "      --home HOME         place of the rows in memory: cache (default), the row cache;\n"
      "                          array, memory kept for arrays, in which each row has its own\n"
      "                          place (array_bytes in embtierd.yaml(5))\n"
      "      --tier TIER         tier of an array (default the fastest with room)\n"
      "\n"
      "With -o json: as `embtier table show`.\n",
      "  embtier table create users --rows 1000000 --dim 64 --init uniform:-0.1,0.1\n"
      "  embtier table create ads --rows 100000 --dim 64 --home array --tier dram\n"
      "  embtier table create words --rows unbounded --dim 128 --dtype bf16 \\\n"
      "          --optimizer adagrad --eps 1e-8 --init normal:0,0.01 --seed 7\n",
      command_table_create, help_table_create },
    { "table list", "", "list the tables",
      "With -o json: a list of tables, each as `embtier table show`.\n",
      "  embtier table list\n"
      "  embtier -o json table list | jq -r '.[].name'\n",
      command_table_list, NULL },
    { "table show", "TABLE", "describe one table",
      "With -o json: {name, table_id, rows, dim, dtype, optimizer, init, seed, eager,\n"
      "weight_bytes, state_bytes, state, rounding, allow_nonfinite, durability, uuid, step, home,\n"
      "tier, hot_rows, lookup_rows, missed_lookup_rows, read_lookup_rows, lookup_ns}; rows may be\n"
      "the text unbounded, and bytes are those of a row. An init has its numbers too, such as\n"
      "init_low, and an optimizer its hyperparameters, under their names.\n",
      "  embtier table show users\n", command_table_show, NULL },
    { "table drop", "TABLE [--yes]", "delete a table and all its rows",
      "  -y, --yes  do not ask; without a terminal nothing is asked\n"
      "\n"
      "With -o json: {dropped}, the table's name.\n",
      "  embtier table drop users --yes\n", command_table_drop, NULL },
    { "table move", "TABLE --home cache|array|split [--tier T] [--hot-rows FILE] [--rate MIB]",
      "move a table's rows to another home in memory while clients work",
      "      --home HOME      where the rows go: cache, the row cache; array, memory kept for\n"
      "                       arrays (array_bytes in embtierd.yaml(5)); split, the hot rows into\n"
      "                       such memory and all others into the row cache\n"
      "      --tier TIER      tier of an array or a split (default the one it is in, or the\n"
      "                       fastest with room)\n"
      "      --hot-rows FILE  for home split: the ids of the hot rows, a file as\n"
      "                       `embtier trace hottest --save` writes it, or a NumPy file\n"
      "      --rate MIB       move at most this many MiB of rows a second. A move takes at most\n"
      "                       a fifth of each lane's time, with or without this option\n"
      "\n"
      "All clients go on, and lose no update. Ctrl-C, `embtier jobs cancel` and a drop of the\n"
      "table move the rows back. A move pauses while a checkpoint is made.\n"
      "\n"
      "An array takes 8 bytes a row beside the rows, and whole pieces of 2 MiB. A split takes 20\n"
      "bytes a hot row beside these. Unbounded tables can be split too. To name other hot rows,\n"
      "move the table to home cache first.\n"
      "\n"
      "With -o json: {table, home, tier, rows, was_there}.\n",
      "  embtier table move users --home array --tier dram\n"
      "  embtier table move users --home cache --rate 100\n"
      "  embtier trace hottest run.trace --table users --save hot.safetensors\n"
      "  embtier table move users --home split --hot-rows hot.safetensors\n",
      command_table_move, NULL },
    { "checkpoint create", "[--step N] [--metadata JSON] [--keep N]",
      "save all tables as they are now",
      "      --step N         record the trainer's step with the checkpoint\n"
      "      --metadata JSON  record this JSON with the checkpoint, at most 4096 bytes\n"
      "      --keep N         then delete your user's oldest checkpoints, except the newest N\n"
      "\n"
      "Returns when the checkpoint is complete on disk; the server keeps serving. After a crash,\n"
      "tables of durability replay have the rows of the newest checkpoint.\n"
      "\n"
      "With -o json: {id, created, made_by, uid, user, step, metadata, table_count,\n"
      "tables, bytes, new_bytes, pause_us, held_rows, spent_ms, tries, cut_updates}; step,\n"
      "metadata and uid may be null; user is a name of the access file, or \"\".\n",
      "  embtier checkpoint create --step 2000 --metadata '{\"epoch\": 3}'\n"
      "  embtier checkpoint create --keep 5\n",
      command_checkpoint_create, NULL },
    { "checkpoint list", "", "list the checkpoints, oldest first",
      "NEW: bytes of files that a checkpoint does not share with the one before it.\n"
      "\n"
      "With -o json: as `embtier checkpoint create`, without tables.\n",
      "  embtier checkpoint list\n"
      "  embtier -o json checkpoint list | jq '.[] | {id, step}'\n",
      command_checkpoint_list, NULL },
    { "checkpoint show", "ID", "describe one checkpoint",
      "Held rows: updates that waited for room while the checkpoint's rows were written.\n"
      "\n"
      "With -o json: as `embtier checkpoint create`.\n",
      "  embtier checkpoint show 7\n", command_checkpoint_show, NULL },
    { "checkpoint verify", "ID", "read every byte of a checkpoint and compare checksums",
      "Exit status 1: the checkpoint is damaged, and a message names the file, or it could not be "
      "read.\n"
      "\n"
      "With -o json: {verified}, the ID of a checkpoint that is whole.\n",
      "  embtier checkpoint verify 7\n", command_checkpoint_verify, NULL },
    { "checkpoint restore", "ID [TABLE...] [--as NAME]", "restore tables from a checkpoint",
      "Without TABLE: all tables of the checkpoint. They become new tables with the rows,\n"
      "optimizer state and description of that time; the server keeps serving. If a table of\n"
      "one of these names exists, none is restored: drop it first, or give another name.\n"
      "\n"
      "      --as NAME  name of the restored table, if one TABLE is named; the old rows can then\n"
      "                 stand beside the current ones\n"
      "\n"
      "Prints the restored tables as `embtier table list` does, also with -o json.\n",
      "  embtier checkpoint restore 7 users --as users.before\n"
      "  embtier table drop users --yes && embtier checkpoint restore 7 users\n",
      command_checkpoint_restore, NULL },
    { "checkpoint delete", "ID [--yes]", "delete a checkpoint",
      "  -y, --yes  do not ask; without a terminal nothing is asked\n"
      "\n"
      "The newest checkpoint cannot be deleted, because a crash restores it. Only root and the\n"
      "server's user may delete another user's checkpoint.\n"
      "\n"
      "With -o json: {deleted}, the ID.\n",
      "  embtier checkpoint delete 7 --yes\n", command_checkpoint_delete, NULL },
    { "compaction status", "[--all]", "show why shards compact, or do not",
      "  --all  also databases that have nothing to compact\n"
      "\n"
      "RocksDB merges the files of a shard in the background. At most\n"
      "rocksdb.compaction_parallel shards of each device do so at a time, those furthest behind\n"
      "first. A shard waits while lookups wait for the drives, while compaction is paused, and\n"
      "outside its hours. It is urgent near the limit at which it takes no more updates, and then\n"
      "compacts all the same.\n"
      "\n"
      "With rocksdb.compaction_bytes_per_second, a line tells whether that limit holds. It is\n"
      "raised while a shard is behind, and suspended before one is urgent and while no client\n"
      "reads or writes rows on SSD.\n"
      "\n"
      "READ and LEFT: bytes that the compactions under way have read of their files, and the time\n"
      "that the slowest still takes at its speed so far. They count only what runs: BEHIND waits\n"
      "for its turn.\n"
      "\n"
      "With -o json: {parallel, paused, lanes_wait, no_space, in_hours, minutes_to_hours, hours,\n"
      "limit: {bytes_per_second, bytes_per_second_now, state, why}, progress: {done_bytes,\n"
      "total_bytes, remaining_s}, databases: [{path, state, why, urgent, level0_files,\n"
      "pending_bytes, running, done_bytes, total_bytes, elapsed_s, remaining_s}]}.\n",
      "  embtier compaction status\n"
      "  embtier -o json compaction status | jq '[.databases[].pending_bytes] | add'\n",
      command_compaction_status, NULL },
    { "compaction run", "[--full]", "have all shards catch up now",
      "  --full  rewrite all files of all shards, which takes as long as reading and writing them\n"
      "\n"
      "All databases that are due compact until they have caught up, one after the other,\n"
      "although compaction may be paused or wait for its hours. Run it before a busy time.\n"
      "Ctrl-C and `embtier jobs cancel` end it; the rest then compacts as before.\n"
      "With --full, space of old versions comes back, and another rocksdb.layout takes effect in\n"
      "all files. Clients read and write meanwhile, and shards that are urgent come first.\n"
      "\n"
      "With -o json: {done}, which is true.\n",
      "  embtier compaction run\n"
      "  embtier compaction run --full\n",
      command_compaction_run, NULL },
    { "compaction pause", "", "put compaction off",
      "Shards compact no more, until `embtier compaction resume` or the server's next start.\n"
      "Compactions that run go on to their end. Shards near the limit at which they take no\n"
      "more updates compact all the same.\n"
      "\n"
      "With -o json: {paused}, true.\n",
      "  embtier compaction pause\n", command_compaction_pause, NULL },
    { "compaction resume", "", "end a pause of compaction", "With -o json: {paused}, false.\n",
      "  embtier compaction resume\n", command_compaction_resume, NULL },
    { "compaction schedule", "HOURS", "let shards compact at some hours only",
      "HOURS are ranges of the server's local time: 22:00-06:00, or 12:00-13:00,20:00-24:00.\n"
      "An empty text means all day. At other times only shards near the limit at which they\n"
      "take no more updates compact. The hours hold until the server's next start; the key\n"
      "rocksdb.compaction_hours keeps them.\n"
      "\n"
      "With -o json: {hours}, as given.\n",
      "  embtier compaction schedule 22:00-06:00\n"
      "  embtier compaction schedule ''\n",
      command_compaction_schedule, NULL },
    { "reshard", "[--shards N [--rate MIB]]", "move rows to more shards, or to fewer",
      "      --shards N  keep rows in N shards, with as many in each; without it, show how many\n"
      "                  there are\n"
      "      --rate MIB  read at most this many MiB a second (default 64; 0: no limit); a short\n"
      "                  row counts as 512 bytes\n"
      "\n"
      "Clients go on meanwhile, and lose nothing. New shards lie in the directories with the\n"
      "fewest. A checkpoint is made for each shard that gives rows away. Ctrl-C ends the command\n"
      "only; `embtier jobs cancel` ends the move, and each row stays where it is by then. A stop\n"
      "of the server interrupts it, and the next start goes on. Emptied shards are removed at the\n"
      "next start. Their number is no key of the configuration: data.shards_per_directory stays.\n"
      "\n"
      "With -o json: {shards, runs, wanted, moved, total}; moved and total count buckets of "
      "rows.\n",
      "  embtier reshard --shards 16\n"
      "  embtier reshard --shards 16 --rate 200\n"
      "  embtier reshard\n",
      command_reshard, NULL },
    { "data list", "", "show the data directories",
      "With -o json: {directories: [{number, path, shards, buckets, stored_bytes, free_bytes,\n"
      "capacity_bytes, device}], order}; buckets: of 16384; directories on one file system have\n"
      "the same device. order: null, or {what: add or remove, path, runs, moved, total}.\n",
      "  embtier data list\n"
      "  embtier -o json data list | jq -r '.directories[].path'\n",
      command_data_list, NULL },
    { "data add", "DIR [--rate MIB]", "add a data directory, and move rows to it",
      "DIR: an absolute path on the server's machine. It is made if it is not there, and must be\n"
      "empty.\n"
      "\n"
      "      --rate MIB  read at most this many MiB a second (default 64; 0: no limit)\n"
      "\n"
      "It gets as many shards as the others have on average. Clients go on meanwhile. Ctrl-C ends\n"
      "the command only; `embtier jobs cancel` ends the move, and the directory stays with the\n"
      "rows that it has by then. A stop of the server interrupts it, and the next start goes on.\n"
      "\n"
      "The store keeps the list of its directories. Add DIR to data.directories: until then each\n"
      "start opens it all the same, and warns. With -o json: as `embtier data list`.\n",
      "  embtier data add /mnt/nvme2/embtier\n", command_data_add, NULL },
    { "data remove", "DIR [--rate MIB] [--delete-checkpoints]",
      "move all rows away from a data directory, and remove it",
      "      --rate MIB            read at most this many MiB a second (default 64; 0: no limit)\n"
      "      --delete-checkpoints  delete those of users, too, that have files in DIR\n"
      "\n"
      "Checkpoints with files in DIR cannot be restored without it. Those of the server's own are\n"
      "deleted at the end; if one is a user's, the command is refused without the option. The\n"
      "first directory has the catalog, and stays.\n"
      "\n"
      "Take DIR out of data.directories, and restart the server: until then it has files open\n"
      "there. Then the drive can be taken away, or DIR deleted: old rows stay in its files until\n"
      "then. A start before data.directories is changed ignores DIR, and warns. With -o json: as "
      "`embtier data list`.\n",
      "  embtier data remove /mnt/nvme2/embtier --rate 200\n", command_data_remove, NULL },
    { "jobs cancel", "ID", "end a job that waits or runs",
      "A waiting job is removed from the queue. A running job stops soon, by its kind:\n"
      "  table create, checkpoint restore, import\n"
      "                     undoes its work: no table is made\n"
      "  table move         undoes its work: the rows that it moved go back\n"
      "  reshard            rows stay where they are by then, those that it moved in their new\n"
      "                     shards; `embtier data add` and `data remove` are of this kind too\n"
      "  compaction run     what is compacted by then stays so\n"
      "  checkpoint verify, export\n"
      "                     changes nothing on the server\n"
      "All other kinds are finished once they have begun, such as drops and checkpoints, and\n"
      "cannot be cancelled then. The client that asked for the job gets the error CANCELLED. Root\n"
      "and the server's user may cancel jobs of all users.\n"
      "\n"
      "With -o json: {cancelled, state}: the ID, and running or waiting, as the job was.\n",
      "  embtier jobs cancel 12\n", command_jobs_cancel, NULL },
    { "jobs", "", "list long work that waits or runs",
      "Jobs run side by side, and checkpoints never wait for long ones. Jobs of one kind wait\n"
      "for each other, and users take turns.\n"
      "\n"
      "With -o json: [{id, kind, what, uid, pid, server, state, age_ms, done, total, unit}].\n",
      "  embtier jobs\n"
      "  embtier -o json jobs | jq '.[] | select(.state == \"waiting\")'\n",
      command_jobs, NULL },
    { "export", "TABLE PATH [options]", "write a table to files",
      "Makes the folder PATH. It holds safetensors or .npy files with the tensors `weight`\n"
      "[rows, dim] and `ids` [rows], ordered by id, and table.json, which describes the table.\n"
      "All rows are of one moment between two updates; the server keeps serving. The folder is\n"
      "PATH.partial until it is complete. To export several tables as of one moment, make a\n"
      "checkpoint and export each with --checkpoint.\n"
      "\n"
      "      --checkpoint ID    export the rows of this checkpoint, or of the `newest`; without\n"
      "                         it a checkpoint of the current rows is made first\n"
      "      --state            export the optimizer's state too, as the tensor `state`\n"
      "      --all-rows         also export rows that were never written, with their initial\n"
      "                         values; there are then no `ids`, and row 0 is the first\n"
      "      --format FORMAT    safetensors (default), npy\n"
      "      --file-bytes SIZE  largest size of a file, roughly, such as 512MiB (default 4GiB)\n"
      "\n"
      "With -o json: {table, path, checkpoint, rows, bytes, parts}; parts is the number of files\n"
      "with rows.\n",
      "  embtier export users /backup/users --state\n"
      "  embtier export users /tmp/users --all-rows --format npy\n",
      command_export, NULL },
    { "import", "PATH [--as NAME] [options]", "make a table from files",
      "PATH is a folder that `embtier export` made, a safetensors file, a folder of those with\n"
      "an index (NAME.safetensors.index.json) or a .npy file. The table appears when it is\n"
      "complete; after an error there is no table.\n"
      "\n"
      "      --as NAME          name of the table (default: the export's)\n"
      "      --no-state         leave out the optimizer's state, which then begins as zeros\n"
      "      --durability MODE  durability of the table (default: the export's)\n"
      "      --home HOME        as for `embtier table create`; the export's is not taken over\n"
      "      --tier TIER        tier of an array\n"
      "\n"
      "For files that are not an export:\n"
      "      --tensor TENSOR    the weights in a safetensors file (default weight, or the only\n"
      "                         two-dimensional tensor)\n"
      "      --ids FILE         a .npy file of the rows' ids (default the tensor `ids`; if there\n"
      "                         is none, rows 0, 1, ...)\n"
      "      --rows N|unbounded rows of the table (default: as in the file; unbounded with ids)\n"
      "and --optimizer, --init, --seed, --rounding and --allow-nonfinite, as for `embtier table\n"
      "create`.\n"
      "\n"
      "With -o json: {table, path, rows, bytes}.\n",
      "  embtier import /backup/users --as users.before\n"
      "  embtier import embeddings.npy --as words --optimizer adagrad\n",
      command_import, help_table_create },
    { "get", "[--state] TABLE ID...", "print rows",
      "Prints lines of the form ID=NUMBER,NUMBER,…, which `embtier set` reads. `-` reads ids\n"
      "from standard input, separated by spaces or line breaks.\n"
      "\n"
      "      --state  print the optimizer's state too: ID=NUMBER,…:NUMBER,…\n"
      "\n"
      "With -o json: {table, rows: [{id, values: [...], state: [...]}]}, state with --state only.\n"
      "JSON has no NaN and no infinity: they are the strings \"nan\", \"inf\" and \"-inf\"; an id\n"
      "above 2^63-1 is a string too.\n",
      "  embtier get users 7 9\n"
      "  seq 0 99 | embtier get --state users - >rows.txt\n",
      command_get, NULL },
    { "set", "[--state] TABLE ID=NUMBER,NUMBER,... ...", "store rows",
      "Each word has one decimal number per column; nan, inf and -inf are numbers. `-` reads such\n"
      "words from standard input, one per line. If an id occurs twice, the last one wins.\n"
      "A number that does not fit the table's dtype is a mistake, and nothing is set: one that is\n"
      "too large, or not 0 and so small that it would become 0.\n"
      "The optimizer's state does not change.\n"
      "\n"
      "      --state  set the state too: ID=NUMBER,…:NUMBER,…, if the optimizer has any\n"
      "\n"
      "With -o json: {table, rows_set}.\n",
      "  embtier set pairs 7=0.5,-1 9=0,2e-3\n"
      "  embtier set --state users - <rows.txt\n",
      command_set, NULL },
    { "config check", "[FILE]", "find mistakes in a configuration of embtierd",
      "Runs the checks of a start with the embtierd beside this program, and changes nothing. A\n"
      "start accepts a configuration that passes. It also looks at certificates and users: one\n"
      "that will keep clients out gets a warning on standard error, which changes no exit status.\n"
      "Without FILE: checks the defaults. A mistake is reported as one line with file, line and\n"
      "key.\n"
      "\n"
      "With -o json: {ok, complete, warnings: [...]}, or {ok, error}.\n",
      "  embtier config check /etc/embtier/embtierd.yaml\n", command_config_check, NULL },
    { "config keys", "", "list the keys of embtierd's configuration",
      "With -o json: {keys: [{name, changes, allowed, default, text}]}, as `embtier knob list`.\n",
      "  embtier config keys\n", command_config_keys, NULL },
    { "config show", "", "show the configuration that is in force",
      "Prints each key with the value that the server has in force, and where that is from: the\n"
      "default, the file, the command line (option), or `embtier knob set` since the start (set).\n"
      "Live keys are read back from where they work. Data directories are those that the store\n"
      "has now; one that was added, and that the file lacks, is set, too. No key is a secret:\n"
      "certificates, keys and tokens are files, of which the path is shown.\n"
      "\n"
      "With -o json: {keys: [{name, value, source, changes}]}. The value is null if there is "
      "none;\n"
      "changes is as in `embtier knob list`.\n",
      "  embtier config show\n", command_config_show, NULL },
    { "config diff", "[FILE]", "compare the configuration that is in force with a file",
      "Without FILE: with the file that the server was started with, as it is now. The server\n"
      "reads it, with the defaults of its machine. FILE is read here, and checked there.\n"
      "\n"
      "Prints the keys whose values differ. Exit status: 0 if none does, else 1. Defaults that\n"
      "follow other values are left out.\n"
      "\n"
      "With -o json: {same, differences: [{name, running, file}]}. A value that one side does not\n"
      "have is null.\n",
      "  embtier config diff\n"
      "  embtier config diff /etc/embtier/embtierd.yaml.new\n",
      command_config_diff, NULL },
    { "knob list", "", "list the knobs of the server",
      "Each key of the configuration is a knob, and each item of a list. A knob that changes live\n"
      "takes a new value while the server serves. With start, the next start takes it. With hand,\n"
      "that is so too, and only the file's owner writes it: the key says where the server is, or\n"
      "whom it lets in.\n"
      "\n"
      "With -o json: {knobs: [{name, value, source, changes, allowed, default, text}]}. Names and\n"
      "sources are those of `embtier config show`.\n",
      "  embtier knob list\n", command_knob_list, NULL },
    { "knob get", "NAME", "print the value of a knob, read from where it works",
      "With -o json: as an item of `embtier knob list`.\n",
      "  embtier knob get rocksdb.compaction_parallel\n", command_knob_get, NULL },
    { "knob set", "NAME VALUE [--persist]", "set a knob while the server serves",
      "VALUE: as in the file, such as 512MiB; null: the default. It passes all checks of a\n"
      "start, with the other values that are in force, before anything changes. The command\n"
      "prints the value before and the one that was read back from where it works. Both are told\n"
      "if this is not VALUE: a tier has whole slabs of 2 MiB, as many on each lane.\n"
      "\n"
      "      --persist  write the value into the server's file, too. Only that value changes\n"
      "                 there: comments, layout, mode and owner stay. A file that a start would\n"
      "                 refuse is not written. A knob that is not live needs a restart then\n"
      "\n"
      "With -o json: {name, old, asked, value, applied, file}. Asked is VALUE. Applied is false "
      "if\n"
      "the knob is not live; file is null without --persist.\n",
      "  embtier knob set log.level debug\n"
      "  embtier knob set rocksdb.memtable_bytes 512MiB --persist\n",
      command_knob_set, NULL },
    { "size", "[NAME] --rows N --dim D [options]", "work out the memory and SSD that tables take",
      "  -c, --config FILE    the configuration of embtierd (default: the defaults)\n"
      "      --tables FILE    a JSON list, as `embtier -o json table list` prints it; of each\n"
      "                       table, name, rows and dim are enough\n"
      "  -r, --rows N         number of rows of one more table; all are taken to be written\n"
      "  -d, --dim D          numbers per row\n"
      "      --copies N       so many tables like this one\n"
      "      --dtype, --optimizer, --durability, --home, --tier\n"
      "                       as for `embtier table create`\n",
      "  embtier size --rows 100000000 --dim 64 --optimizer adagrad --config embtierd.yaml\n"
      "  embtier size ads --rows 1000000 --dim 64 --copies 20 --home array\n"
      "  embtier -o json size --tables tables.json | jq .ssd.bytes\n",
      command_size, help_size },
    { "tune", "--directory DIR --rows N --dim D --updates N [options]",
      "try the layouts of rows on this drive, and recommend one",
      "      --directory DIR      a folder on the drive to be tried\n"
      "  -c, --config FILE        the configuration of embtierd (default: the defaults)\n"
      "  -r, --rows N             number of rows\n"
      "  -d, --dim D              numbers per row\n"
      "      --dtype, --optimizer, --durability\n"
      "                           as for `embtier table create`\n"
      "      --row-bytes BYTES    length of a row with its state, instead of these\n"
      "      --updates N          rows that clients update in a second, all tables together\n"
      "      --reads PERCENT      lookups among all rows that pass through the cache (default 0)\n"
      "      --zipf S             exponent of the rows' popularity, 0 (all alike, default) to 10\n"
      "      --profile FILE       a saved profile: tables, and the exponent nearest to their CDFs\n"
      "      --cache BYTES        memory of the row cache (default: as configured)\n"
      "      --layouts LIST       leveled,universal,blob (default: all)\n"
      "      --prefer WORD        balance (default), writes, reads, space\n"
      "      --minutes M          time of the trial, 0.05 to 1440 (default 10)\n",
      "  embtier tune --directory /mnt/nvme0 --rows 100000000 --dim 128 --updates 50000 --zipf "
      "1.05\n"
      "  embtier tune --directory /mnt/nvme0 --updates 50000 --config /etc/embtier/embtierd.yaml\n",
      command_tune, help_tune },
    { "doctor", "[--config FILE]", "look at this machine as embtierd would use it",
      "  -c, --config FILE  the configuration of embtierd (default: the defaults)\n",
      "  embtier doctor --config /etc/embtier/embtierd.yaml\n"
      "  embtier -o json doctor | jq '.findings[] | select(.state != \"good\")'\n",
      command_doctor, help_doctor },
    { "keys ca", "DIR [--name NAME] [--days N] [--force]",
      "make a private CA, which signs certificates",
      "DIR/ca.key: the CA's key. Keep it where neither the server nor a trainer can read it. With\n"
      "it anyone can make certificates that your servers and trainers accept.\n"
      "DIR/ca.crt: the CA's certificate. Servers and trainers have it and check others by it.\n"
      "\n"
      "      --name NAME  name of the CA (default: embtier CA)\n"
      "      --days N     valid for N days, 1 to 36500 (default 3650)\n"
      "      --force      replace files that exist. Certificates of a CA that is replaced are no\n"
      "                   longer accepted\n"
      "\n"
      "DIR is made if it is missing. Keys and tokens are files of the user alone (mode 0600),\n"
      "whatever the umask.\n"
      "\n"
      "With -o json: as an item of `embtier keys show`, and certificate_file and key_file.\n",
      "  embtier keys ca keys\n", command_keys_ca, NULL },
    { "keys server", "DIR NAME... [--days N] [--out NAME] [--force]",
      "make a server's certificate, signed by the CA in DIR",
      "NAME: a DNS name or IP address by which clients reach the server. A name such as\n"
      "*.example.org stands for all hosts of that domain.\n"
      "\n"
      "DIR/server.crt: the server's certificate. The CA's follows it only if another CA signed "
      "that\n"
      "one, as clients have the certificate of the CA that signed itself.\n"
      "DIR/server.key: its key.\n"
      "\n"
      "      --days N    valid for N days, 1 to 36500 (default 365, or as long as the CA is)\n"
      "      --out NAME  name of the files in DIR, before .crt and .key (default: server)\n"
      "      --force     replace files that exist\n"
      "\n"
      "With -o json: as `embtier keys ca`.\n",
      "  embtier keys server keys trainer-db.example.org 192.0.2.7 localhost\n",
      command_keys_server, NULL },
    { "keys client", "DIR NAME [--san TYPE:VALUE]... [--days N] [--out NAME] [--force]",
      "make a client's certificate, signed by the CA in DIR",
      "NAME: the certificate's common name. The access file calls its owner CN=NAME.\n"
      "\n"
      "DIR/NAME.crt, DIR/NAME.key: the client's certificate and key.\n"
      "\n"
      "      --san TYPE:VALUE  one more name: DNS:name, URI:uri, EMAIL:address or IP:address\n"
      "      --days N          valid for N days, 1 to 36500 (default 365, or as long as the CA\n"
      "                        is)\n"
      "      --out NAME        name of the files in DIR, before .crt and .key\n"
      "      --force           replace files that exist\n"
      "\n"
      "With -o json: as `embtier keys ca`.\n",
      "  embtier keys client keys trainer-1\n"
      "  embtier keys client keys trainer-1 --san URI:spiffe://example.org/trainer --days 30\n",
      command_keys_client, NULL },
    { "keys token", "[FILE] [--force]", "make a token, and print its hash for the access file",
      "FILE: a new file for the token, which a client names in its address (token=FILE). Without\n"
      "it the token is printed.\n"
      "\n"
      "      --force  replace a file that exists\n"
      "\n"
      "A token is embt_ and 43 characters. The access file has the hash only, from which nobody\n"
      "gets the token back. With -o json: {file, hash}, or {token, hash} without FILE.\n",
      "  embtier keys token trainer-1.token\n", command_keys_token, NULL },
    { "keys hash", "FILE", "print the hash of a token, for the access file",
      "With -o json: {file, hash}.\n", "  embtier keys hash trainer-1.token\n", command_keys_hash,
      NULL },
    { "keys reload", "", "have the server read its access file and certificates again",
      "SIGHUP does the same. Connections stay, and have their users' new rights at once. If a "
      "file\n"
      "is wrong, the old one stays in force, and the message says why.\n"
      "\n"
      "With -o json: {users}, the number of users in the access file; 0 without one.\n",
      "  embtier keys reload\n", command_keys_reload, NULL },
    { "keys show", "FILE...", "describe files with certificates, keys and tokens",
      "Names: as the access file has them. Key, certificate: whether the other half, in the file\n"
      "itself or beside it (server.key for server.crt), matches. Keys and tokens are not printed.\n"
      "\n"
      "A certificate that expires within 30 days, or within a third of its life if that is less,\n"
      "brings a warning. So do halves of different pairs, keys and tokens that all users may\n"
      "read, and bad names. Warnings do not change the exit status. It is 1 if a file cannot\n"
      "be read, or holds none of these.\n"
      "\n"
      "With -o json: [{file, items: [ITEM]}], or {file, error}. An ITEM has kind and warnings.\n"
      "  certificate: uses (ca, server, client), subject, issuer, names, addresses, not_before,\n"
      "               not_after, days_left, state (valid, soon, expired, not_yet, damaged),\n"
      "               serial, sha256, key: {file, state}\n"
      "  key:         algorithm, locked, public_sha256, certificate: {file, state}\n"
      "  token:       hash\n"
      "  other:       label\n"
      "The state of a half: matches, differs, missing or unreadable.\n",
      "  embtier keys show keys/*\n"
      "  embtier -o json keys show server.crt | jq '.[].items[].days_left'\n",
      command_keys_show, NULL },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};

static const struct command own_commands[] = {
    { "support-bundle", "[options]", "collect what others need to understand this server",
      "  -f, --file FILE    the archive, a new file; default: embtier-support-DATE.tar.gz\n"
      "  -c, --config FILE  the server's configuration (default: the installed one, if there is\n"
      "                     one)\n"
      "      --log FILE     the server's log, of which the last 4 MiB are taken; default: the\n"
      "                     last 5,000 lines of the journal\n",
      "  embtier support-bundle\n"
      "  embtier support-bundle --file help.tar.gz --config embtierd.yaml --log embtierd.log\n",
      command_support_bundle, help_support_bundle },
    { "completion", "bash|zsh", "print a script with which a shell completes these commands",
      "Packages and `meson install` put the scripts where shells look for them. Else:\n"
      "bash: a line in ~/.bashrc loads it. zsh: it is the file _embtier in a folder of fpath.\n"
      "\n"
      "Names of tables are asked of the server, which has one second to answer.\n",
      "  source <(embtier completion bash)\n"
      "  embtier completion zsh >~/.zfunc/_embtier\n",
      command_completion, NULL },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
/* clang-format on */

static const struct command *const groups[] = { server_commands, placement_commands, own_commands };

static const struct command *end_of(const struct command *group)
{
    while (group->words)
        group++;
    return group;
}

const struct command *command_first(void)
{
    return groups[0];
}

const struct command *command_next(const struct command *command)
{
    command++;
    for (size_t i = 0; !command->words && i + 1 < sizeof(groups) / sizeof(groups[0]); i++)
        if (command == end_of(groups[i]))
            return groups[i + 1];
    return command->words ? command : NULL;
}
