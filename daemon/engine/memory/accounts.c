/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/memory/accounts.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text/bytes.h"
#include "config/config.h"

struct account {
    struct accounts *accounts;
    struct account *next;
    struct account **link; /* points here: `next` of the account before, or the list's head */
    uint64_t user;
    uint32_t opened;
    _Atomic uint64_t quotas[ACCOUNT_ROWS]; /* of the access file; 0: none */
    /* Lanes write here in each push, so these are not on a cache line that others read. */
    _Alignas(CACHE_LINE) _Atomic uint64_t has[ACCOUNT_ROWS];
};

struct accounts {
    pthread_mutex_t lock; /* guards the list, and `opened` of each account */
    struct account *first;
    struct limit {
        _Atomic uint64_t all;
        _Atomic uint64_t user; /* 0: the shared rule */
    } limits[ACCOUNT_ROWS];
    _Alignas(CACHE_LINE) _Atomic uint64_t used[ACCOUNT_ROWS];
};

enum { COUNTED, IN_BYTES };

static const struct {
    const char *key;
    const char *word;
    int unit;
} rows[] = {
#define X(name, key, word, unit) { key, word, unit },
    ACCOUNT_TABLE(X)
#undef X
};

enum embtier_err accounts_new(struct accounts **ret_accounts, struct err_msg *msg)
{
    struct accounts *const accounts =
        aligned_alloc(CACHE_LINE, align_up(sizeof(*accounts), CACHE_LINE));

    if (!accounts)
        return err_set(msg, EMBTIER_NO_MEMORY, "accounts: out of memory");
    *accounts = (struct accounts){ .first = NULL };
    pthread_mutex_init(&accounts->lock, NULL);
    *ret_accounts = accounts;
    return EMBTIER_OK;
}

static struct account *unlink_account(struct account *account)
{
    *account->link = account->next;
    if (account->next)
        account->next->link = account->link;
    return account;
}

void accounts_free(struct accounts *accounts)
{
    if (!accounts)
        return;
    while (accounts->first)
        free(unlink_account(accounts->first));
    pthread_mutex_destroy(&accounts->lock);
    free(accounts);
}

void accounts_limit(struct accounts *accounts, enum account_row row, uint64_t all, uint64_t user)
{
    atomic_store_explicit(&accounts->limits[row].all, all, memory_order_relaxed);
    atomic_store_explicit(&accounts->limits[row].user, user, memory_order_relaxed);
}

static uint64_t limit_of_all(const struct accounts *accounts, enum account_row row)
{
    return atomic_load_explicit(&accounts->limits[row].all, memory_order_relaxed);
}

static uint64_t limit_of_user(const struct accounts *accounts, enum account_row row)
{
    return atomic_load_explicit(&accounts->limits[row].user, memory_order_relaxed);
}

uint64_t accounts_limit_of(const struct accounts *accounts, enum account_row row,
                           uint64_t *ret_user)
{
    *ret_user = limit_of_user(accounts, row);
    return limit_of_all(accounts, row);
}

/* ---- Opening ---- */

static struct account *new_account(struct accounts *accounts, uint64_t user)
{
    struct account *const account =
        aligned_alloc(CACHE_LINE, align_up(sizeof(*account), CACHE_LINE));

    if (!account)
        return NULL;
    *account = (struct account){
        .accounts = accounts, .next = accounts->first, .link = &accounts->first, .user = user
    };
    if (account->next)
        account->next->link = &account->next;
    accounts->first = account;
    return account;
}

struct account *account_open(struct accounts *accounts, uint64_t user)
{
    struct account *account;

    pthread_mutex_lock(&accounts->lock);
    for (account = accounts->first; account && account->user != user; account = account->next)
        ;
    if (!account)
        account = new_account(accounts, user);
    if (account)
        account->opened++;
    pthread_mutex_unlock(&accounts->lock);
    return account;
}

void account_close(struct account *account)
{
    struct accounts *const accounts = account ? account->accounts : NULL;
    bool is_last;

    if (!account)
        return;
    pthread_mutex_lock(&accounts->lock);
    assert(account->opened > 0);
    is_last = --account->opened == 0;
    if (is_last)
        unlink_account(account);
    pthread_mutex_unlock(&accounts->lock);
    if (!is_last)
        return;
    for (uint32_t row = 0; row < ACCOUNT_ROWS; row++)
        assert(account_has(account, row) == 0);
    free(account);
}

/* ---- Amounts ---- */

uint64_t account_has(const struct account *account, enum account_row row)
{
    return atomic_load_explicit(&account->has[row], memory_order_relaxed);
}

uint64_t accounts_used(const struct accounts *accounts, enum account_row row)
{
    return atomic_load_explicit(&accounts->used[row], memory_order_relaxed);
}

uint64_t account_user(const struct account *account)
{
    return account->user;
}

void account_set_quota(struct account *account, enum account_row row, uint64_t most)
{
    atomic_store_explicit(&account->quotas[row], most, memory_order_relaxed);
}

static uint64_t quota_of(const struct account *account, enum account_row row)
{
    return atomic_load_explicit(&account->quotas[row], memory_order_relaxed);
}

static uint64_t shared_part(uint64_t left)
{
    return left > 1 ? left - left / 4 - (left % 4 > 0) : left;
}

uint64_t accounts_part_alone(const struct accounts *accounts, enum account_row row)
{
    const uint64_t user = limit_of_user(accounts, row);

    return user > 0 ? user : shared_part(limit_of_all(accounts, row));
}

/* Returns the user's part by the configuration. */
static uint64_t configured_part(const struct account *account, enum account_row row)
{
    const uint64_t all = limit_of_all(account->accounts, row);
    const uint64_t user = limit_of_user(account->accounts, row);
    const uint64_t used = accounts_used(account->accounts, row);
    const uint64_t has = account_has(account, row);
    /* Another thread may be changing both, so `used` may be older than `has`. */
    const uint64_t others = used > has ? used - has : 0;
    /* Others have at most `all`, unless account_add() has taken more. */
    const uint64_t left = all > others ? all - others : 0;

    if (user > 0)
        return user;
    return shared_part(left);
}

static bool has_less(const struct account *account, enum account_row row)
{
    const uint64_t quota = quota_of(account, row);

    return quota > 0 && quota < configured_part(account, row);
}

uint64_t account_part(const struct account *account, enum account_row row)
{
    return has_less(account, row) ? quota_of(account, row) : configured_part(account, row);
}

uint64_t account_quota(const struct account *account, enum account_row row)
{
    return has_less(account, row) ? quota_of(account, row) : 0;
}

const char *account_key(const struct account *account, enum account_row row, const char *key)
{
    static const char *const quotas[ACCOUNT_ROWS] = {
        [ACCOUNT_SESSIONS] = "quotas.connections of the access file",
        [ACCOUNT_ARENA_BYTES] = "quotas.arena_bytes of the access file",
        [ACCOUNT_TICKET_BYTES] = "quotas.ticket_bytes of the access file",
        [ACCOUNT_PINNED_BYTES] = "quotas.pinned_bytes of the access file",
    };

    return has_less(account, row) && quotas[row] ? quotas[row] : key;
}

uint64_t accounts_part(struct accounts *accounts, uint64_t user, enum account_row row)
{
    const struct account *account;
    uint64_t part = 0;

    pthread_mutex_lock(&accounts->lock);
    for (account = accounts->first; account && account->user != user; account = account->next)
        ;
    if (account)
        part = account_part(account, row);
    pthread_mutex_unlock(&accounts->lock);
    return part;
}

const char *account_rule(const struct account *account, enum account_row row)
{
    return limit_of_user(account->accounts, row) > 0 || has_less(account, row)
               ? ""
               : ", three quarters of what others leave";
}

enum account_answer account_ask(const struct account *account, enum account_row row,
                                uint64_t amount)
{
    const uint64_t all = limit_of_all(account->accounts, row);
    const uint64_t used = accounts_used(account->accounts, row);
    const uint64_t has = account_has(account, row);
    const uint64_t part = account_part(account, row);

    if (amount > all)
        return ACCOUNT_TOO_LARGE;
    if (used > all || amount > all - used)
        return ACCOUNT_ALL_HAVE;
    return has > part || amount > part - has ? ACCOUNT_USER_HAS : ACCOUNT_TAKEN;
}

/* Only one thread writes at a time, so no atomic read-modify-write is needed. */
static void change(_Atomic uint64_t *amount, uint64_t by)
{
    atomic_store_explicit(amount, atomic_load_explicit(amount, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

void account_add(struct account *account, enum account_row row, uint64_t amount)
{
    change(&account->has[row], amount);
    change(&account->accounts->used[row], amount);
}

void account_give(struct account *account, enum account_row row, uint64_t amount)
{
    assert(amount <= account_has(account, row));
    assert(amount <= accounts_used(account->accounts, row));
    account_add(account, row, -amount);
}

enum account_answer account_take(struct account *account, enum account_row row, uint64_t amount)
{
    const enum account_answer answer = account_ask(account, row, amount);

    if (answer == ACCOUNT_TAKEN)
        account_add(account, row, amount);
    return answer;
}

/* ---- Messages and lists ---- */

static const char *amount_text(struct bytes_text *buffer, enum account_row row, uint64_t amount)
{
    if (rows[row].unit == IN_BYTES)
        return format_bytes(buffer, amount);
    snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64, amount);
    return buffer->text;
}

enum embtier_err account_refuse(const struct account *account, enum account_row row,
                                uint64_t amount, enum account_answer answer, const char *key,
                                struct err_msg *msg)
{
    const uint64_t all = limit_of_all(account->accounts, row);
    struct bytes_text more, has, most;

    amount_text(&more, row, amount);
    amount_text(&most, row, answer == ACCOUNT_USER_HAS ? account_part(account, row) : all);
    if (answer == ACCOUNT_TOO_LARGE)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%s: %s is more than the limit of all users, %s (%s)", rows[row].word,
                       more.text, most.text, key);
    if (answer == ACCOUNT_ALL_HAVE)
        return err_set(msg, EMBTIER_BUSY,
                       "%s: all users together have %s, and %s more would exceed the limit of %s "
                       "(%s): try again when some is released",
                       rows[row].word,
                       amount_text(&has, row, accounts_used(account->accounts, row)), more.text,
                       most.text, key);
    return err_set(msg, EMBTIER_BUSY,
                   "%s: your user's clients have %s, and %s more would exceed the %s that one user "
                   "may have%s (%s): end some of these clients first",
                   rows[row].word, amount_text(&has, row, account_has(account, row)), more.text,
                   most.text, account_rule(account, row), key);
}

const char *account_row_name(enum account_row row)
{
    return rows[row].key;
}

const char *account_row_word(enum account_row row)
{
    return rows[row].word;
}

bool account_row_is_bytes(enum account_row row)
{
    return rows[row].unit == IN_BYTES;
}

static int compare_users(const void *a, const void *b)
{
    const uint64_t left = ((const struct account_info *)a)->user;
    const uint64_t right = ((const struct account_info *)b)->user;

    return (left > right) - (left < right);
}

/* The caller holds the lock. Counts the accounts with numbers from @from on. Fills in @infos unless
 * it is NULL. */
static uint32_t collect(const struct accounts *accounts, uint64_t from, struct account_info *infos)
{
    uint32_t count = 0;

    for (const struct account *account = accounts->first; account; account = account->next) {
        if (account->user < from)
            continue;
        if (infos) {
            infos[count].user = account->user;
            for (uint32_t row = 0; row < ACCOUNT_ROWS; row++) {
                infos[count].has[row] = account_has(account, row);
                infos[count].part[row] = account_part(account, row);
            }
        }
        count++;
    }
    return count;
}

enum embtier_err accounts_page(struct accounts *accounts, uint64_t from, uint32_t most,
                               struct account_info **ret_infos, uint32_t *ret_count, bool *ret_more)
{
    struct account_info *infos;
    uint32_t count = 0;

    pthread_mutex_lock(&accounts->lock);
    infos = calloc((size_t)collect(accounts, from, NULL) + 1, sizeof(*infos));
    if (infos)
        count = collect(accounts, from, infos);
    pthread_mutex_unlock(&accounts->lock);
    if (!infos)
        return EMBTIER_NO_MEMORY;
    qsort(infos, count, sizeof(*infos), compare_users);
    *ret_infos = infos;
    *ret_count = MIN(count, most);
    *ret_more = count > most;
    return EMBTIER_OK;
}
