/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/batch.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/text/text_escape.h"
#include "tools/cli/cli.h"
#include "tools/cli/status/pieces.h"
#include "tools/cli/top/source.h"

static int print_text(const struct frame *frame, size_t panel)
{
    frame_print_head(frame, stdout);
    for (size_t i = 0; i < PANEL_COUNT; i++) {
        if (panel != PANEL_COUNT && i != panel)
            continue;
        printf("\n%s\n", panels[i].name);
        if (!grid_print(&frame->grids[i], 0, stdout))
            return cli_fail(EMBTIER_NO_MEMORY, "");
    }
    putchar('\n');
    return EXIT_DONE;
}

static int print_lost(const struct cli *cli, const struct source *source)
{
    struct lost_text text;

    if (cli->json)
        return pieces_print_json(
            json_pack("{s:n, s:o}", "health", "error", cli_json_text(source->why.text)), true);
    text_print(stdout, "%s\n", source_lost_text(&text, source));
    putchar('\n');
    return EXIT_DONE;
}

static int print_frame(const struct cli *cli, const struct source *source, size_t panel)
{
    struct frame frame;
    int exit_code;

    if (source->is_lost)
        return print_lost(cli, source);
    if (source_frame(source, &frame) != EMBTIER_OK)
        return cli_fail(EMBTIER_NO_MEMORY, "");
    exit_code = cli->json ? pieces_print_json(frame_to_json(&frame, panel), true)
                          : print_text(&frame, panel);
    frame_clear(&frame);
    return exit_code;
}

int batch_run(struct cli *cli, double delay_s, uint64_t frame_count, size_t panel)
{
    const struct timespec pause = { .tv_sec = (time_t)delay_s,
                                    .tv_nsec = (long)((delay_s - floor(delay_s)) * 1e9) };
    struct source source = SOURCE_INIT(cli->server);
    int exit_code = EXIT_DONE;

    for (uint64_t i = 0; exit_code == EXIT_DONE && (frame_count == 0 || i < frame_count); i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        if (source_next(&source) != EMBTIER_OK)
            exit_code = cli_fail(EMBTIER_NO_MEMORY, "");
        else if (!source.has_now)
            exit_code = cli_fail(source.err, source.why.text);
        else
            exit_code = print_frame(cli, &source, panel);
        if (fflush(stdout) != 0 && exit_code == EXIT_DONE)
            exit_code = cli_fail(EMBTIER_IO, "cannot write the output");
    }
    source_clear(&source);
    return exit_code;
}
