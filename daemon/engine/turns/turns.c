/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/turns/turns.h"

#include "base/macros.h"

/* Merges two trees, either of which may be NULL. If their keys are equal, @a becomes the root. */
static struct turn_flow *meld(struct turn_flow *a, struct turn_flow *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->key < a->key) {
        struct turn_flow *const earlier = b;

        b = a;
        a = earlier;
    }
    b->next = a->child;
    if (b->next)
        b->next->previous = b;
    b->previous = a;
    a->child = b;
    return a;
}

/* Merges a list of trees, newest first, into one: first two by two, then these pairs from the back.
 * Among equal keys the oldest flow nearly always comes first. */
static struct turn_flow *meld_all(struct turn_flow *list)
{
    struct turn_flow *pairs = NULL;
    struct turn_flow *root = NULL;

    while (list) {
        struct turn_flow *const a = list;
        struct turn_flow *const b = a->next;
        struct turn_flow *pair;

        list = b ? b->next : NULL;
        a->next = NULL;
        if (b)
            b->next = NULL;
        pair = b ? meld(b, a) : a;
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct turn_flow *const rest = pairs->next;

        pairs->next = NULL;
        root = meld(root, pairs);
        pairs = rest;
    }
    return root;
}

static void set_root(struct turns *turns, struct turn_flow *root)
{
    turns->root = root;
    if (root)
        root->previous = root;
}

/* The flow's key is set. Its links are NULL, as in every flow that wants no turn. */
void turns_heap_add(struct turns *turns, struct turn_flow *flow)
{
    set_root(turns, meld(turns->root, flow));
}

void turns_heap_remove(struct turns *turns, struct turn_flow *flow)
{
    struct turn_flow *const below = meld_all(flow->child);

    if (flow == turns->root) {
        set_root(turns, below);
    } else {
        if (flow->previous->child == flow)
            flow->previous->child = flow->next;
        else
            flow->previous->next = flow->next;
        if (flow->next)
            flow->next->previous = flow->previous;
        set_root(turns, meld(turns->root, below));
    }
    flow->child = flow->next = flow->previous = NULL;
}

struct turn_flow *turns_first_of_several(struct turns *turns)
{
    while (turns->root->due > turns->root->key) { /* it was charged since it was placed */
        struct turn_flow *const first = turns->root;

        turns_remove(turns, first);
        turns_add(turns, first, 0);
    }
    return turns->root;
}
