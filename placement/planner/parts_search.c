/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/parts_search.h"

const double parts_prices[PARTS_PRICES] = { 0.25, 1, 4, 16 };

/* Tries a tier's parts from @from to @to, and keeps the best one. */
static enum embtier_err try_tier(struct parts_search *s, uint32_t tier, uint32_t from, uint32_t to,
                                 uint32_t step)
{
    uint32_t best = s->parts[tier];

    for (uint32_t part = from; part <= to; part += step) {
        const struct evaluation *now = s->best(s->ctx);
        const bool had_best = now != NULL;
        const struct evaluation before = had_best ? *now : (struct evaluation){ 0 };

        s->parts[tier] = part;
        TRY(s->try(s->ctx));
        now = s->best(s->ctx);
        if (now && (!had_best || evaluation_is_better(now, &before)))
            best = part;
    }
    s->parts[tier] = best;
    return EMBTIER_OK;
}

void parts_fill(struct parts_search *search)
{
    for (uint32_t k = 0; k < TIERS_MAX; k++)
        search->parts[k] = PARTS;
}

enum embtier_err parts_search(struct parts_search *search)
{
    parts_fill(search);
    for (uint32_t k = 0; k < search->tier_count; k++)
        TRY(try_tier(search, k, 0, PARTS, PARTS_COARSE_STEP));
    for (uint32_t k = 0; k < search->tier_count; k++) {
        const uint32_t part = search->parts[k];

        TRY(try_tier(search, k, part - MIN(part, 1u), MIN(part + 1, (uint32_t)PARTS), 1));
    }
    return EMBTIER_OK;
}
