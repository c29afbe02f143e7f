/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files/written.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "config/config.h"

#define NO_PLACE CONFIG_DIRECTORIES_MAX

/* RocksDB makes files on its own threads, and durable_file.h knows no store. */
static struct {
    pthread_mutex_t lock; /* guards the paths */
    char *paths[CONFIG_DIRECTORIES_MAX];
    bool has_left[CONFIG_DIRECTORIES_MAX];
    uint32_t count;
    _Atomic uint64_t bytes[CONFIG_DIRECTORIES_MAX + 1]; /* the last: of no directory */
} places = { .lock = PTHREAD_MUTEX_INITIALIZER };

void written_begin(char *const *directories, uint32_t count)
{
    pthread_mutex_lock(&places.lock);
    for (uint32_t i = 0; i < CONFIG_DIRECTORIES_MAX; i++) {
        free(places.paths[i]);
        places.paths[i] = i < count ? strdup(directories[i]) : NULL;
        places.has_left[i] = false;
        atomic_store(&places.bytes[i], 0);
    }
    places.count = MIN(count, (uint32_t)CONFIG_DIRECTORIES_MAX);
    pthread_mutex_unlock(&places.lock);
}

/* Returns the last number with the path, or places.count if none has it. */
static uint32_t number_of(const char *directory)
{
    for (uint32_t i = places.count; i > 0; i--)
        if (places.paths[i - 1] && strcmp(places.paths[i - 1], directory) == 0)
            return i - 1;
    return places.count;
}

void written_add_directory(const char *directory)
{
    uint32_t i;

    pthread_mutex_lock(&places.lock);
    i = number_of(directory);
    if (places.count < CONFIG_DIRECTORIES_MAX && (i == places.count || places.has_left[i])) {
        places.paths[places.count] = strdup(directory);
        if (places.paths[places.count])
            places.count++;
    } else if (i < places.count) {
        places.has_left[i] = false;
    }
    pthread_mutex_unlock(&places.lock);
}

void written_leave_directory(const char *directory)
{
    uint32_t i;

    pthread_mutex_lock(&places.lock);
    i = number_of(directory);
    if (i < places.count)
        places.has_left[i] = true;
    pthread_mutex_unlock(&places.lock);
}

uint32_t written_directory_count(void)
{
    uint32_t count;

    pthread_mutex_lock(&places.lock);
    count = places.count;
    pthread_mutex_unlock(&places.lock);
    return count;
}

bool written_has_left(uint32_t directory)
{
    bool has_left;

    pthread_mutex_lock(&places.lock);
    has_left = places.has_left[directory];
    pthread_mutex_unlock(&places.lock);
    return has_left;
}

char *written_directory(uint32_t directory)
{
    char *path;

    pthread_mutex_lock(&places.lock);
    path = places.paths[directory] ? strdup(places.paths[directory]) : NULL;
    pthread_mutex_unlock(&places.lock);
    return path;
}

void written_end(void)
{
    written_begin(NULL, 0);
}

/* Returns the length of @directory if @path lies in it, else 0. */
static size_t match(const char *directory, const char *path)
{
    size_t length = directory ? strlen(directory) : 0;

    while (length > 1 && directory[length - 1] == '/')
        length--;
    return length > 0 && strncmp(directory, path, length) == 0 && path[length] == '/' ? length : 0;
}

uint32_t written_place(const char *path)
{
    uint32_t place = NO_PLACE;
    size_t longest = 0;

    pthread_mutex_lock(&places.lock);
    if (places.count == 1)
        place = 0;
    for (uint32_t i = 0; places.count > 1 && i < places.count; i++) {
        const size_t length = match(places.paths[i], path);

        if (length > 0 && length >= longest) { /* the last one, if it came again */
            longest = length;
            place = i;
        }
    }
    pthread_mutex_unlock(&places.lock);
    return place;
}

void written_add(uint32_t place, uint64_t bytes)
{
    atomic_fetch_add_explicit(&places.bytes[place], bytes, memory_order_relaxed);
}

uint64_t written_below(uint32_t directory)
{
    return atomic_load_explicit(&places.bytes[directory], memory_order_relaxed);
}
