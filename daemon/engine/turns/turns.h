/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h: decides which flow has the next turn, among flows that share something by cost. Sessions
 * share a lane's time, a caster and request memory in this way.
 *
 * The method is start-time fair queuing (Goyal, Vin, Cheng: "Start-time Fair Queuing", SIGCOMM
 * 1996, section 2). As in deficit round robin (Shreedhar, Varghese: "Efficient Fair Queuing Using
 * Deficit Round Robin", SIGCOMM 1995), a turn is charged when it is over and its cost is known.
 * Over time all flows that want turns get the same cost, however large each one's turns are. In
 * deficit round robin a flow that asks for little waits for a turn of each of the others. Here it
 * waits for as many turns as its own last turn was worth, and for the end of the current one. (This
 * holds if the others' turns differ. If all turns cost the same, the flows march in step, and the
 * wait is the same as there.)
 *
 * Each flow has a place in virtual time, which counts cost. The flow that is furthest behind has
 * the next turn, and the cost of that turn moves it on. A flow that comes back starts where the
 * others are by then: it saves up no turns while it wants none. When no flow wants a turn, all are
 * even again. Virtual time also moves on by itself, as if TURNS_SHARERS flows shared it. So even an
 * endless row of new flows, each of which starts at the present time, cannot keep another flow
 * waiting for ever.
 *
 * A flow may state the cost of its next turn. Then its place is where that turn ends. If two
 * flows begin at the same place, the one that asks for less goes first. So a flow that asks for
 * little does not wait for all that ask for much.
 *
 * The heap is a pairing heap, embedded in the flows. A flow that is alone costs a few instructions,
 * and nothing is allocated. Thread: the owner. */
#ifndef EMBTIER_DAEMON_ENGINE_TURNS_TURNS_H
#define EMBTIER_DAEMON_ENGINE_TURNS_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One that takes turns. Initially zero. */
struct turn_flow {
    uint64_t due; /* where its next turn begins, in virtual time */
    uint64_t key; /* its place in the heap: that turn's end; or less, if it was charged since */
    struct turn_flow *child;
    struct turn_flow *next;     /* sibling */
    struct turn_flow *previous; /* sibling, or parent; the root's is itself; NULL: wants no turn */
};

/* Initially zero. */
struct turns {
    struct turn_flow *root;
    uint64_t now;    /* where the last turn began, or later */
    uint64_t latest; /* the greatest `due` of all flows */
    uint64_t rest;   /* cost that has not moved `now` yet */
};

#define TURNS_SHARERS 1024 /* virtual time moves as if no more flows shared it */

/* Moves a flow up to those that want a turn now: it earns nothing while it wants none. */
static inline void turns_catch_up(const struct turns *turns, struct turn_flow *flow)
{
    if (flow->due < turns->now)
        flow->due = turns->now;
}

/* Charges @flow, which may be waiting for a turn. */
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

/* True if @flow wants a turn and no other flow does. */
static inline bool turns_is_only(const struct turns *turns, const struct turn_flow *flow)
{
    return turns->root == flow && !flow->child;
}

static inline bool turns_is_empty(const struct turns *turns)
{
    return turns->root == NULL;
}

/* Parts of the functions below, for a heap of several flows. */
void turns_heap_add(struct turns *turns, struct turn_flow *flow);
void turns_heap_remove(struct turns *turns, struct turn_flow *flow);
struct turn_flow *turns_first_of_several(struct turns *turns);

/* Makes @flow wait for a turn. @cost is the turn's expected cost, or 0 if that is not known. Does
 * nothing if the flow waits already. */
static inline void turns_add(struct turns *turns, struct turn_flow *flow, uint64_t cost)
{
    if (turns_has(flow))
        return;
    turns_catch_up(turns, flow);
    flow->key = flow->due + cost;
    if (turns->root)
        turns_heap_add(turns, flow);
    else
        turns->root = flow->previous = flow;
}

/* Removes @flow from the heap. Does nothing if it waits for no turn. */
static inline void turns_remove(struct turns *turns, struct turn_flow *flow)
{
    if (!turns_has(flow))
        return;
    if (turns_is_only(turns, flow))
        turns->root = flow->previous = NULL;
    else
        turns_heap_remove(turns, flow);
}

/* Returns the flow whose turn it is, or NULL if none wants one. */
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

/* The same, and begins the flow's turn. The flow goes on to wait for its next one. */
static inline struct turn_flow *turns_begin(struct turns *turns)
{
    struct turn_flow *const first = turns_first(turns);

    if (first && turns->now < first->due)
        turns->now = first->due;
    return first;
}

/* The same, but the flow waits for no turn until it is added again. */
static inline struct turn_flow *turns_next(struct turns *turns)
{
    struct turn_flow *const first = turns_begin(turns);

    if (first)
        turns_remove(turns, first);
    return first;
}

#endif
