/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/process/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log/log.h"

enum use {
    USE_NONE, /* ignored */
    USE_STOP,
    USE_RELOAD,
    USE_SYSTEM, /* left as it is */
};

/* Signals that are not named here are USE_NONE. */
static const struct {
    int number;
    enum use use;
} uses[] = {
    { SIGTERM, USE_STOP },
    { SIGINT, USE_STOP },
    { SIGQUIT, USE_STOP },
    { SIGHUP, USE_RELOAD },
    /* The system allows nothing else. */
    { SIGKILL, USE_SYSTEM },
    { SIGSTOP, USE_SYSTEM },
    { SIGCONT, USE_SYSTEM },
    /* The program cannot go on. */
    { SIGILL, USE_SYSTEM },
    { SIGTRAP, USE_SYSTEM },
    { SIGABRT, USE_SYSTEM },
    { SIGBUS, USE_SYSTEM },
    { SIGFPE, USE_SYSTEM },
    { SIGSEGV, USE_SYSTEM },
    { SIGSYS, USE_SYSTEM },
    /* These do nothing; ignoring SIGCHLD would change what a library sees of its children. */
    { SIGCHLD, USE_SYSTEM },
    { SIGURG, USE_SYSTEM },
    { SIGWINCH, USE_SYSTEM },
};

static enum use use_of(int number)
{
    for (size_t i = 0; i < ARRAY_LEN(uses); i++)
        if (uses[i].number == number)
            return uses[i].use;
    return USE_NONE;
}

/* The struct of rt_sigaction(2), for the signals between the usual and the real-time ones. The C
 * library keeps these to itself and refuses calls for them, yet one that comes before the library
 * handles it ends the process. The rest is 0. */
struct system_action {
    void (*handler)(int);
    unsigned long rest[15];
};

static void ignore_reserved(int number)
{
    const struct system_action ignore = { .handler = SIG_IGN };
    struct system_action before = { 0 };

    if (syscall(SYS_rt_sigaction, number, NULL, &before, sizeof(uint64_t)) == 0 &&
        before.handler == SIG_DFL)
        (void)syscall(SYS_rt_sigaction, number, &ignore, NULL, sizeof(uint64_t));
}

/* Ignores a signal, unless it is handled already, such as by a profiler that was loaded before. */
static void ignore(int number)
{
    struct sigaction action;

    if (number > SIGSYS && number < SIGRTMIN)
        ignore_reserved(number);
    else if (sigaction(number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
             action.sa_handler == SIG_DFL)
        (void)signal(number, SIG_IGN);
}

static void heeded(sigset_t *ret_signals)
{
    sigemptyset(ret_signals);
    for (size_t i = 0; i < ARRAY_LEN(uses); i++)
        if (uses[i].use != USE_SYSTEM)
            sigaddset(ret_signals, uses[i].number);
}

void signals_begin(void)
{
    sigset_t signals;

    heeded(&signals);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    for (int number = 1; number <= SIGRTMAX; number++)
        if (use_of(number) == USE_NONE)
            ignore(number);
}

enum embtier_err signals_open(int *ret_fd, struct err_msg *msg)
{
    sigset_t signals;
    int fd;

    heeded(&signals);
    fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return err_set_errno(msg, errno, "signals");
    *ret_fd = fd;
    return EMBTIER_OK;
}

static const char *const stop_texts[] = {
    [SIGNAL_STOPS] = "signal: the server stops",
    [SIGNAL_STOPS_ALREADY] =
        "signal: the server is already stopping, and continues while the disk accepts rows; "
        "SIGKILL would end it like a crash, and `replay` tables would lose the updates since the "
        "newest checkpoint",
};

static void take_reload(const struct signalfd_siginfo *info, bool *ret_reloads)
{
    log_info(ret_reloads ? "signal: the server reads its access file and certificates again; the "
                           "configuration is not read again"
                         : "signal: the server does not reload any file now",
             "signal=SIG%s from_pid=%d from_uid=%u", sigabbrev_np((int)info->ssi_signo),
             (int)info->ssi_pid, (unsigned)info->ssi_uid);
    if (ret_reloads)
        *ret_reloads = true;
}

bool signals_take_stop(int fd, enum signal_effect effect, bool *ret_reloads)
{
    struct signalfd_siginfo info;

    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const int number = (int)info.ssi_signo;

        if (use_of(number) == USE_STOP) {
            log_info(stop_texts[effect], "signal=SIG%s from_pid=%d from_uid=%u",
                     sigabbrev_np(number), (int)info.ssi_pid, (unsigned)info.ssi_uid);
            return true;
        }
        take_reload(&info, ret_reloads);
    }
    return false;
}
