/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of embtier, with their help. The man page is made from it. */
#include "tools/cli/cli.h"

/* clang-format off: tables read better in columns */
const struct command commands[] = {
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
      "PROFILE: a profile of this server (`embtier profile record`). The alternatives come side by\n"
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
      "      --tier TIER         tier of an array (default the fastest with room)\n",
      "  embtier table create users --rows 1000000 --dim 64 --init uniform:-0.1,0.1\n"
      "  embtier table create ads --rows 100000 --dim 64 --home array --tier dram\n"
      "  embtier table create words --rows unbounded --dim 128 --dtype bf16 \\\n"
      "          --optimizer adagrad --eps 1e-8 --init normal:0,0.01 --seed 7\n",
      command_table_create, help_table_create },
    { "table list", "", "list the tables", "",
      "  embtier table list\n"
      "  embtier -o json table list | jq -r '.[].name'\n",
      command_table_list, NULL },
    { "table show", "TABLE", "describe one table", "", "  embtier table show users\n",
      command_table_show, NULL },
    { "table drop", "TABLE [--yes]", "delete a table and all its rows",
      "  -y, --yes  do not ask; without a terminal nothing is asked\n",
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
      "With -o json: as `embtier checkpoint create`, without the names of tables.\n",
      "  embtier checkpoint list\n"
      "  embtier -o json checkpoint list | jq '.[] | {id, step}'\n",
      command_checkpoint_list, NULL },
    { "checkpoint show", "ID", "describe one checkpoint",
      "Held rows: updates that waited for room while the checkpoint's rows were written.\n",
      "  embtier checkpoint show 7\n", command_checkpoint_show, NULL },
    { "checkpoint verify", "ID", "read every byte of a checkpoint and compare checksums",
      "Exit status 1: the checkpoint is damaged, and a message names the file, or it could not be "
      "read.\n",
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
      "server's user may delete another user's checkpoint.\n",
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
      "With -o json: {parallel, paused, lanes_wait, no_space, in_hours, minutes_to_hours, hours,\n"
      "limit: {bytes_per_second, bytes_per_second_now, state, why},\n"
      "databases: [{path, state, why, urgent, level0_files, pending_bytes, running}]}.\n",
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
      "all files. Clients read and write meanwhile, and shards that are urgent come first.\n",
      "  embtier compaction run\n"
      "  embtier compaction run --full\n",
      command_compaction_run, NULL },
    { "compaction pause", "", "put compaction off",
      "Shards compact no more, until `embtier compaction resume` or the server's next start.\n"
      "Compactions that run go on to their end. Shards near the limit at which they take no\n"
      "more updates compact all the same.\n",
      "  embtier compaction pause\n", command_compaction_pause, NULL },
    { "compaction resume", "", "end a pause of compaction", "", "  embtier compaction resume\n",
      command_compaction_resume, NULL },
    { "compaction schedule", "HOURS", "let shards compact at some hours only",
      "HOURS are ranges of the server's local time: 22:00-06:00, or 12:00-13:00,20:00-24:00.\n"
      "An empty text means all day. At other times only shards near the limit at which they\n"
      "take no more updates compact. The hours hold until the server's next start; the key\n"
      "rocksdb.compaction_hours keeps them.\n",
      "  embtier compaction schedule 22:00-06:00\n"
      "  embtier compaction schedule ''\n",
      command_compaction_schedule, NULL },
    { "jobs cancel", "ID", "end a job that waits or runs",
      "A waiting job is removed from the queue. A running job soon stops and undoes its work:\n"
      "the creation of a table's rows, a restore, a verification, an import or an export. Drops\n"
      "and checkpoints that have begun are finished. The client that asked for the job gets the\n"
      "error CANCELLED. Root and the server's user may cancel jobs of all users.\n",
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
      "      --file-bytes SIZE  largest size of a file, roughly, such as 512MiB (default 4GiB)\n",
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
      "create`.\n",
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
      "      --state  set the state too: ID=NUMBER,…:NUMBER,…, if the optimizer has any\n",
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
      "default, the file, the command line (option), or `embtier knob set` since the start. Live\n"
      "keys are read back from where they work. No key is a secret: certificates, keys and tokens\n"
      "are files, of which the path is shown.\n"
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
      "VALUE: as in the file, such as 512MiB. It passes all checks of a start, with the other\n"
      "values that are in force, before anything changes. The command prints the value before\n"
      "and the one that was read back from where it works.\n"
      "\n"
      "      --persist  write the value into the server's file, too. Only that value changes\n"
      "                 there: comments, layout, mode and owner stay. A file that a start would\n"
      "                 refuse is not written. A knob that is not live needs a restart then\n"
      "\n"
      "With -o json: {name, old, value, applied, file}. Applied is false if the knob is not live;\n"
      "file is null without --persist.\n",
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
      "  embtier tune --directory /mnt/nvme0 --rows 100000000 --dim 128 --updates 50000 --zipf 1.05\n"
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
      "the keys of the files, and the model.\n",
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
      "why}], cheapest: its number in plans, or null}.\n",
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
      "later one has its name.\n",
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
