/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_layout_trial.c: the program embtier-layout-trial, which tries layouts of rows for
 * `embtier tune`. Only this program of the tools is linked with RocksDB.
 *
 * Its arguments are a file with a trial as JSON (trial_spec.c), and the process number of its
 * parent, with which it ends. It prints one line of JSON for each event:
 *   {"at": WORD, "layout": NAME, "elapsed": S, "rounds": N}   several times a second; the word is
 *                                                            load, warm or rounds
 *   {"model": {...}, "turns": [{layout, round, ...}, ...]}   at the end
 *   {"error": TEXT, "number": N}                             instead
 * Layouts take turns in each round, beginning with another one each time. Their first turns do not
 * count. Its parent makes and removes the directory. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "store/files/written.h"
#include "tools/trial/layout_trial.h"
#include "tools/trial/trial_wire.h"

#define NS_PER_S     1e9
#define ROUNDS_LEAST 2
#define ROUNDS_MOST  1000
#define ROUNDS_WISH  6
#define TURN_MOST    0.5 /* of the trial's bytes, written in a turn */
#define TURN_LEAST   0.02
#define WARM_MOST    2.0 /* times that the rows are overwritten first */
#define WARM_STEP    0.125
#define WARM_TIME    0.4  /* of all time, with the load */
#define READ_TIME    0.02 /* of all time, for the reads of a turn */

static const char *const words[] = TRIAL_LAYOUT_WORDS;

struct trials {
    struct trial_spec spec;
    struct layout_trial *all[LAYOUT_COUNT];
    json_t *turns;
    uint64_t began_ns;
    const char *at;
    uint32_t rounds;
    double warm_share; /* of the layout with the least */
    double share_s;    /* to write all rows once, the layouts together */
    double turn_share;
};

static double elapsed(const struct trials *trials)
{
    return (double)clock_since(clock_now_ns(&clock_monotonic), trials->began_ns) / NS_PER_S;
}

static void print(json_t *line)
{
    if (line)
        (void)json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    fflush(stdout);
    json_decref(line);
}

static void tell(void *context, enum config_layout layout)
{
    const struct trials *const trials = context;

    print(json_pack("{s:s, s:s, s:f, s:i}", "at", trials->at, "layout", words[layout], "elapsed",
                    elapsed(trials), "rounds", (int)trials->rounds));
}

static bool is_tried(const struct trials *trials, uint32_t layout)
{
    return trials->spec.layouts >> layout & 1;
}

static json_t *turn_json(const struct trial_turn *turn, uint32_t layout, uint32_t round)
{
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}",
                     "layout", words[layout], "round", (int)round, "updates",
                     (json_int_t)turn->updates, "rows", (json_int_t)turn->rows, "row_bytes",
                     (json_int_t)turn->row_bytes, "flush_bytes", (json_int_t)turn->flush_bytes,
                     "compaction_bytes", (json_int_t)turn->compaction_bytes, "blob_bytes",
                     (json_int_t)turn->blob_bytes, "log_bytes", (json_int_t)turn->log_bytes,
                     "other_bytes", (json_int_t)turn->other_bytes, "system_bytes",
                     (json_int_t)turn->system_bytes, "stored_bytes", (json_int_t)turn->stored_bytes,
                     "stored_most_bytes", (json_int_t)turn->stored_most_bytes, "write_seconds",
                     turn->write_s, "reads_per_second", turn->reads_per_s);
}

static json_t *model_json(const struct trials *trials, bool is_direct)
{
    const struct trial_spec *const spec = &trials->spec;

    return json_pack("{s:i, s:I, s:f, s:f, s:f, s:b, s:I, s:b, s:f, s:i, s:f, s:f}", "shards",
                     (int)spec->shards, "rows", (json_int_t)spec->rows, "row_bytes",
                     spec->row_bytes, "bytes", spec->live_bytes, "scale", spec->scale, "to_scale",
                     spec->is_to_scale, "buffer_bytes", (json_int_t)spec->buffer_bytes, "direct_io",
                     is_direct, "seconds", elapsed(trials), "rounds", (int)trials->rounds,
                     "warm_share", trials->warm_share, "turn_share", trials->turn_share);
}

/* Overwrites the rows until the levels are as they stay, or the layout's part of the time is over.
 */
static enum embtier_err warm_one(struct trials *trials, uint32_t layout, double until_s,
                                 struct err_msg *msg)
{
    const double began_s = elapsed(trials);
    struct trial_turn turn;
    double share = 0;

    do {
        TRY(layout_trial_turn(trials->all[layout], WARM_STEP, 0, &turn, msg));
        share += WARM_STEP;
    } while (share < WARM_MOST && elapsed(trials) < until_s);
    trials->share_s += (elapsed(trials) - began_s) / share;
    trials->warm_share = MIN(trials->warm_share, share);
    return EMBTIER_OK;
}

static enum embtier_err warm(struct trials *trials, struct err_msg *msg)
{
    const double end_s = trials->spec.seconds * WARM_TIME;
    uint32_t left = 0;

    trials->at = "load";
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        if (!is_tried(trials, i))
            continue;
        TRY(layout_trial_new(&trials->spec, (enum config_layout)i, tell, trials, &trials->all[i],
                             msg));
        left++;
    }
    trials->at = "warm";
    trials->warm_share = WARM_MOST;
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        const double now_s = elapsed(trials);

        if (trials->all[i])
            TRY(warm_one(trials, i, now_s + (end_s - now_s) / left--, msg));
    }
    return EMBTIER_OK;
}

static enum embtier_err take_round(struct trials *trials, struct err_msg *msg)
{
    struct trial_turn turn;

    for (uint32_t i = 0; i < LAYOUT_COUNT; i++) {
        const uint32_t layout = (i + trials->rounds) % LAYOUT_COUNT;

        if (!trials->all[layout])
            continue;
        TRY(layout_trial_turn(trials->all[layout], trials->turn_share,
                              READ_TIME * trials->spec.seconds, &turn, msg));
        (void)json_array_append_new(trials->turns, turn_json(&turn, layout, trials->rounds));
    }
    return EMBTIER_OK;
}

static enum embtier_err run(struct trials *trials, struct err_msg *msg)
{
    double round_s;

    TRY(warm(trials, msg));
    trials->at = "rounds";
    round_s = (trials->spec.seconds - elapsed(trials)) / ROUNDS_WISH;
    trials->turn_share = MIN(MAX(round_s / trials->share_s, TURN_LEAST), TURN_MOST);
    while (trials->rounds < ROUNDS_LEAST ||
           (elapsed(trials) < trials->spec.seconds && trials->rounds < ROUNDS_MOST)) {
        TRY(take_round(trials, msg));
        trials->rounds++;
    }
    return EMBTIER_OK;
}

static enum embtier_err prepare(struct trials *trials, const char *path, struct err_msg *msg)
{
    struct config *config = NULL;
    char *directory;
    enum embtier_err err;

    TRY(trial_spec_read(path, &trials->spec, msg));
    directory = (char *)(uintptr_t)trials->spec.directory;
    written_begin(&directory, 1);
    TRY(config_load(trials->spec.config_path, budget_unbudgeted, &config, msg));
    err = trial_spec_scale(&trials->spec, config, msg);
    config_free(config);
    return err;
}

/* Ends this program with its parent. False: the parent has ended already. */
static bool follow_parent(const char *number)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == strtol(number, NULL, 10);
}

int main(int argc, char **argv)
{
    struct trials trials = { .began_ns = clock_now_ns(&clock_monotonic), .turns = json_array() };
    struct err_msg msg = { { 0 } };
    bool is_direct = true;
    enum embtier_err err;

    log_set_level(LOG_LEVEL_ERROR);
    if (argc != 3) {
        fprintf(stderr, "embtier-layout-trial: `embtier tune` runs this program\n");
        return 2;
    }
    if (!follow_parent(argv[2]))
        return 1;
    err = prepare(&trials, argv[1], &msg);
    if (err == EMBTIER_OK)
        err = run(&trials, &msg);
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++)
        if (trials.all[i])
            is_direct = is_direct && layout_trial_is_direct(trials.all[i]);
    if (err == EMBTIER_OK)
        print(json_pack("{s:o, s:O}", "model", model_json(&trials, is_direct), "turns",
                        trials.turns));
    else
        print(json_pack("{s:s, s:i}", "error", msg.text, "number", (int)err));
    for (uint32_t i = 0; i < LAYOUT_COUNT; i++)
        layout_trial_free(trials.all[i]);
    trial_spec_clear(&trials.spec);
    json_decref(trials.turns);
    return err == EMBTIER_OK ? 0 : 1;
}
