/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/live.h"

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "tools/cli/cli.h"
#include "tools/cli/top/source.h"
#include "tools/cli/top/terminal.h"
#include "tools/cli/top/view.h"

#define LINES_MIN   8
#define COLUMNS_MIN 40
/* The most of a text that a column shows on a narrow screen; wider ones show more. */
#define TEXT_COLUMNS    22
#define WIDE_COLUMNS    120
#define WIDE_TEXT       48
#define LINE_CHARACTERS 512
#define ESCAPE_MS       25
#define FOOT            "1-6 panel  < > sort  r reverse  p pause  h help  q quit"

enum color { COLOR_PLAIN, COLOR_LOOK, COLOR_ACT };

struct live {
    struct source source;
    struct view view;
    uint64_t delay_ns;
    uint64_t next_ns; /* when the server is asked again */
    bool has_color;
};

/* ---- Signals ---- */

static int stop_fd = -1; /* an eventfd that the handler raises */
static volatile sig_atomic_t stop_signal;

static void on_stop(int number)
{
    const uint64_t one = 1;
    const int saved = errno;

    stop_signal = number;
    if (write(stop_fd, &one, sizeof(one)) < 0)
        stop_signal = number; /* the eventfd is raised already */
    errno = saved;
}

static const int stop_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static void catch_signals(struct sigaction *ret_before)
{
    const struct sigaction action = { .sa_handler = on_stop };

    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaction(stop_signals[i], &action, &ret_before[i]);
}

static void leave_signals(const struct sigaction *before)
{
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaction(stop_signals[i], &before[i], NULL);
}

/* ---- Drawing ---- */

/* Puts as much of @bytes of @text on line @y as fits. Text is escaped already, so no character
 * moves the cursor. */
static void put(int y, const char *text, size_t bytes)
{
    char line[LINE_CHARACTERS];
    wchar_t wide[LINE_CHARACTERS];
    size_t count;
    int columns = 0;
    size_t shown = 0;

    bytes = MIN(bytes, sizeof(line) - 1);
    memcpy(line, text, bytes);
    line[bytes] = '\0';
    count = mbstowcs(wide, line, ARRAY_LEN(wide));
    if (count == (size_t)-1) { /* the locale has not these characters */
        for (count = 0; line[count]; count++)
            wide[count] = (unsigned char)line[count] < 0x80 ? (wchar_t)line[count] : L'?';
    }
    while (shown < count && columns + MAX(wcwidth(wide[shown]), 0) <= COLS)
        columns += MAX(wcwidth(wide[shown++]), 0);
    mvaddnwstr(y, 0, wide, (int)shown);
}

static void put_text(int y, const char *text)
{
    put(y, text, strlen(text));
}

/* Puts the lines of @text from line @y on, without the first @skipped, up to line @end. Returns the
 * line behind the last. */
static int put_lines(int y, int end, const char *text, size_t skipped)
{
    for (; *text && y < end; text += strcspn(text, "\n"), text += *text == '\n') {
        if (skipped > 0)
            skipped--;
        else
            put(y++, text, strcspn(text, "\n"));
    }
    return y;
}

static void color(const struct live *live, enum color color, bool on)
{
    const attr_t attributes =
        (live->has_color ? (attr_t)COLOR_PAIR(color) : 0) | (color == COLOR_PLAIN ? 0 : A_BOLD);

    if (on)
        attron(attributes);
    else
        attroff(attributes);
}

/* Shows the names of the panels, the present one in reverse. */
static void draw_bar(const struct live *live, int y)
{
    const size_t panel = live->view.panel;
    const size_t sorted_by = live->view.of[panel].sorted_by;

    move(y, 0);
    for (size_t i = 0; i < PANEL_COUNT; i++) {
        if (i == panel)
            attron(A_REVERSE);
        printw(" %zu %s ", i + 1, panels[i].name);
        attroff(A_REVERSE);
    }
    if (sorted_by != NOT_SORTED)
        printw("  by %s%s", panels[panel].columns[sorted_by].title,
               live->view.of[panel].is_reversed ? ", reversed" : "");
}

static const char empty_text[] = "nothing to show";

/* Draws the panel's grid from line @y on. Returns false when out of memory. */
static bool draw_grid(struct live *live, struct frame *frame, int y)
{
    struct grid *const grid = &frame->grids[live->view.panel];
    const int end = LINES - 1;
    const size_t page = (size_t)MAX(end - y - 1, 0);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out;
    bool ok;

    view_apply(&live->view, grid, page);
    out = open_memstream(&text, &bytes);
    if (!out)
        return false;
    ok = grid_print(grid, COLS >= WIDE_COLUMNS ? WIDE_TEXT : TEXT_COLUMNS, out);
    if (fclose(out) == 0 && ok) {
        const size_t title_bytes = strcspn(text, "\n");

        attron(A_BOLD);
        put(y, text, title_bytes);
        attroff(A_BOLD);
        put_lines(y + 1, end, text + title_bytes + (text[title_bytes] == '\n'),
                  live->view.of[live->view.panel].first_row);
        if (grid_row_count(grid) == 0)
            put_text(y + 1, empty_text);
    }
    free(text);
    return ok;
}

/* Draws the lines about the whole server. Returns the next line; -1: out of memory. */
static int draw_head(const struct live *live, const struct frame *frame)
{
    static const enum color of_health[] = {
        [HEALTH_OK] = COLOR_PLAIN, [HEALTH_WARNING] = COLOR_LOOK, [HEALTH_BAD] = COLOR_ACT
    };
    const enum color shade = of_health[frame->overview.health];
    char *text = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&text, &bytes);
    int y = -1;

    if (!out)
        return -1;
    frame_print_head(frame, out);
    if (fclose(out) == 0) {
        color(live, shade, true);
        put(0, text, strcspn(text, "\n"));
        color(live, shade, false);
        y = put_lines(1, LINES - 1, text, 1);
    }
    free(text);
    return y;
}

static void draw_state(const struct live *live)
{
    struct lost_text lost;

    if (live->source.is_lost) {
        color(live, COLOR_ACT, true);
        put_text(LINES - 1, source_lost_text(&lost, &live->source));
        color(live, COLOR_ACT, false);
    } else {
        put_text(LINES - 1, live->view.is_paused ? "paused: p goes on  " FOOT : FOOT);
    }
}

static void draw_too_small(void)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "the terminal has %dx%d: at least %dx%d", COLS, LINES,
                   COLUMNS_MIN, LINES_MIN);
    put_text(0, text);
    refresh();
}

static bool draw(struct live *live)
{
    struct frame frame;
    bool ok;
    int y;

    erase();
    if (LINES < LINES_MIN || COLS < COLUMNS_MIN) {
        draw_too_small();
        return true;
    }
    if (source_frame(&live->source, &frame) != EMBTIER_OK)
        return false;
    y = draw_head(live, &frame);
    ok = y >= 0;
    if (ok && live->view.shows_help) {
        put_lines(y + 1, LINES - 1, view_help, 0);
    } else if (ok) {
        draw_bar(live, y);
        ok = draw_grid(live, &frame, y + 1);
    }
    draw_state(live);
    refresh();
    frame_clear(&frame);
    return ok;
}

/* ---- Keys ---- */

static const struct {
    int code;
    enum view_key key;
} keys[] = {
    { KEY_UP, VIEW_KEY_UP },           { KEY_DOWN, VIEW_KEY_DOWN }, { KEY_PPAGE, VIEW_KEY_PAGE_UP },
    { KEY_NPAGE, VIEW_KEY_PAGE_DOWN }, { KEY_HOME, VIEW_KEY_HOME }, { KEY_END, VIEW_KEY_END },
    { KEY_BTAB, VIEW_KEY_BACK_TAB },
};

static int key_of(int code)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (keys[i].code == code)
            return keys[i].key;
    return code < VIEW_KEY_UP ? code : 0;
}

/* Takes the keys that have come. ncurses also learns of a new size here. False: the user quits. */
static bool take_keys(struct live *live)
{
    int code;

    while ((code = getch()) != ERR)
        if (!view_press(&live->view, key_of(code), (size_t)MAX(LINES / 2, 1)))
            return false;
    return true;
}

/* Waits for a key, a signal, or the time of the next frame. False: the terminal is gone. */
static bool wait_for_news(const struct live *live)
{
    struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                            { .fd = stop_fd, .events = POLLIN } };
    const uint64_t left_ns = clock_since(live->next_ns, clock_now_ns(&clock_monotonic));
    const int left_ms = live->view.is_paused ? -1 : (int)(left_ns / 1000000 + 1);

    if (poll(fds, ARRAY_LEN(fds), left_ms) < 0)
        return errno == EINTR; /* a new size, or a signal of ours */
    return (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

/* ---- The loop ---- */

static enum embtier_err ask(struct live *live)
{
    TRY(source_next(&live->source));
    live->next_ns = clock_now_ns(&clock_monotonic) + live->delay_ns;
    return EMBTIER_OK;
}

static enum embtier_err ask_if_due(struct live *live)
{
    if (live->view.is_paused || clock_now_ns(&clock_monotonic) < live->next_ns)
        return EMBTIER_OK;
    return ask(live);
}

static enum embtier_err loop(struct live *live)
{
    while (stop_signal == 0) {
        TRY(ask_if_due(live));
        if (!draw(live))
            return EMBTIER_NO_MEMORY;
        if (stop_signal != 0 || !wait_for_news(live) || !take_keys(live))
            return EMBTIER_OK;
    }
    return EMBTIER_OK;
}

/* NO_COLOR: https://no-color.org/. */
static void begin_colors(struct live *live)
{
    const char *const none = getenv("NO_COLOR"); // NOLINT(concurrency-mt-unsafe)

    live->has_color = !(none && *none) && has_colors() && start_color() == OK &&
                      use_default_colors() == OK && init_pair(COLOR_LOOK, COLOR_YELLOW, -1) == OK &&
                      init_pair(COLOR_ACT, COLOR_RED, -1) == OK;
}

/* Returns NULL if the terminal is of a kind that ncurses does not know. */
static SCREEN *begin_screen(struct live *live)
{
    SCREEN *const screen = terminal_is_known() ? newterm(NULL, stdout, stdin) : NULL;

    if (!screen)
        return NULL;
    begin_colors(live);
    cbreak();
    noecho();
    nodelay(stdscr, true);
    keypad(stdscr, true);
    set_escdelay(ESCAPE_MS);
    curs_set(0);
    return screen;
}

static int run_screen(struct live *live)
{
    struct sigaction before[ARRAY_LEN(stop_signals)];
    enum embtier_err err;
    SCREEN *screen;

    catch_signals(before);
    screen = begin_screen(live);
    if (!screen) {
        leave_signals(before);
        return cli_fail(EMBTIER_UNSUPPORTED,
                        "top: the kind of this terminal is unknown: set TERM to one that "
                        "`infocmp` knows, or use `embtier top --batch`");
    }
    err = loop(live);
    endwin();
    delscreen(screen);
    leave_signals(before);
    if (stop_signal != 0)
        raise(stop_signal); /* ends the program as the sender expects, unless it is ignored */
    return err == EMBTIER_OK ? EXIT_DONE : cli_fail(err, "");
}

int live_run(struct cli *cli, double delay_s, size_t panel)
{
    struct live live = { .source = SOURCE_INIT(cli->server),
                         .delay_ns = (uint64_t)(delay_s * 1e9) };
    int exit_code;

    (void)setlocale(LC_CTYPE, ""); /* names may have characters beyond ASCII */
    view_init(&live.view, panel);
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd < 0)
        return cli_fail(EMBTIER_IO, "top: cannot make an eventfd: too many files are open");
    if (ask(&live) != EMBTIER_OK)
        exit_code = cli_fail(EMBTIER_NO_MEMORY, "");
    else if (live.source.is_lost)
        exit_code = cli_fail(live.source.err, live.source.why.text);
    else
        exit_code = run_screen(&live);
    source_clear(&live.source);
    close(stop_fd);
    return exit_code;
}
