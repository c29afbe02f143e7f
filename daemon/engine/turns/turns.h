/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h: whose turn it is, among flows that share something by cost: sessions a lane's time, or
 * request memory.
 *
 * Start-time fair queuing (Goyal, Vin, Cheng: "Start-time Fair Queuing", SIGCOMM 1996, section 2).
 * As in deficit round robin (Shreedhar, Varghese: "Efficient Fair Queuing Using Deficit Round
 * Robin", SIGCOMM 1995) a turn is charged when it is over and its cost is known. Over time all
 * flows that want turns get the same cost, however large a turn of each is. There, a flow that asks
 * for little waits for a turn of each of the others. Here it waits for as many of them as its last
 * turn was worth, and for the end of the one that has begun. (So it is if the others' turns differ.
 * If all cost the same, they march in step, and it is as there.)
 *
 * Each flow has a place in virtual time, which counts cost. The one that is furthest behind has the
 * next turn, and its cost moves it on. A flow that comes back stands where the others are by then:
 * it saves up no turns while it wants none. When no flow wants a turn, all are even again. Virtual
 * time also moves on by itself, as if a thousand shared it. So even an endless row of new flows,
 * each of which begins where it stands, keeps no other one waiting for ever.
 *
 * A flow may say what its next turn will cost. Then its place is where that turn ends: of two that
 * begin at the same place the one that asks for less is first, and one that asks for little does
 * not wait for all that ask for much.
 *
 * A pairing heap of what is embedded in the flows: one that is alone costs a few instructions, and
 * nothing is allocated. Thread: the owner. */
#ifndef EMBTIER_DAEMON_ENGINE_TURNS_TURNS_H
#define EMBTIER_DAEMON_ENGINE_TURNS_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One that takes turns. Zeroed at first. */
struct turn_flow {
    uint64_t due; /* in virtual time: where its next turn begins */
    uint64_t key; /* its place in the heap: where that ends; or less, if it was charged meanwhile */
    struct turn_flow *child;
    struct turn_flow *next;     /* sibling */
    struct turn_flow *previous; /* sibling, or the parent; of the root itself; NULL: wants none */
};

/* Zeroed at first. */
struct turns {
    struct turn_flow *root;
    uint64_t now;    /* where the last turn began, or later */
    uint64_t latest; /* of all flows' due */
    uint64_t rest;   /* of cost that has not moved `now` yet */
};

#define TURNS_SHARERS 1024 /* as many seem to share it, at most */

/* Not before those who want a turn now: nobody is paid for the time when it wanted none. */
static inline void turns_catch_up(const struct turns *turns, struct turn_flow *flow)
{
    if (flow->due < turns->now)
        flow->due = turns->now;
}

/* It has cost so much; also while it wants a turn. */
static inline void turns_charge(struct turns *turns, struct turn_flow *flow, uint64_t cost)
{
    turns->rest += cost;
    turns->now += turns->rest / TURNS_SHARERS;
    turns->rest %= TURNS_SHARERS;
    flow->due += cost;
    if (flow->due > turns->latest)
        turns->latest = flow->due;
}

static inline bool turns_has(const struct turn_flow *flow)
{
    return flow->previous != NULL;
}

/* Whether nobody else wants one. */
static inline bool turns_is_only(const struct turns *turns, const struct turn_flow *flow)
{
    return turns->root == flow && !flow->child;
}

static inline bool turns_is_empty(const struct turns *turns)
{
    return turns->root == NULL;
}

/* Parts of the functions below, for a heap of several flows. */
void turns_add_beside(struct turns *turns, struct turn_flow *flow);
void turns_remove_beside(struct turns *turns, struct turn_flow *flow);
struct turn_flow *turns_first_of_several(struct turns *turns);

/* It wants a turn, which will cost @cost, or 0: that will be seen. Nothing if it does already. */
static inline void turns_add(struct turns *turns, struct turn_flow *flow, uint64_t cost)
{
    if (turns_has(flow))
        return;
    turns_catch_up(turns, flow);
    flow->key = flow->due + cost;
    if (turns->root)
        turns_add_beside(turns, flow);
    else
        turns->root = flow->previous = flow;
}

/* It wants none any more. Nothing if it did not. */
static inline void turns_remove(struct turns *turns, struct turn_flow *flow)
{
    if (!turns_has(flow))
        return;
    if (turns_is_only(turns, flow))
        turns->root = flow->previous = NULL;
    else
        turns_remove_beside(turns, flow);
}

/* Whose turn it is; NULL: nobody wants one. */
static inline struct turn_flow *turns_first(struct turns *turns)
{
    struct turn_flow *const first = turns->root;

    if (!first && turns->now < turns->latest)
        turns->now = turns->latest;
    if (!first || first->due <= first->key)
        return first;
    if (first->child)
        return turns_first_of_several(turns);
    turns_catch_up(turns, first);
    first->key = first->due;
    return first;
}

/* The same, and its turn begins. It wants the next one too. */
static inline struct turn_flow *turns_begin(struct turns *turns)
{
    struct turn_flow *const first = turns_first(turns);

    if (first && turns->now < first->due)
        turns->now = first->due;
    return first;
}

/* The same, and it wants none until it is added again. */
static inline struct turn_flow *turns_next(struct turns *turns)
{
    struct turn_flow *const first = turns_begin(turns);

    if (first)
        turns_remove(turns, first);
    return first;
}

#endif
