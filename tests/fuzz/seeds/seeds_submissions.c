/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_submission: a request of each form of each table, with all that it needs before. */
#include "tests/unit/engine/ops/forms_fixture.h"

#include "tests/fuzz/lib/submission_input.h"
#include "tests/fuzz/seeds/seeds.h"

#define IDS  6
#define BAGS 2

/* A client's region without a server. */
struct region {
    uint8_t bytes[OP_ALIGN + SUBMISSION_REGION_BYTES];
    struct client client;
    struct session session; /* ends with lanes, of which there are none */
};

static struct client *client_of(struct region *region)
{
    memset(region, 0, sizeof(*region));
    region->session.channel.region = region->bytes;
    region->session.channel.region_bytes = sizeof(region->bytes);
    region->session.channel.payload = OP_ALIGN;
    region->client.session = &region->session;
    region->client.slot_bytes = SUBMISSION_REGION_BYTES;
    return &region->client;
}

static size_t used_bytes(const struct region *region)
{
    size_t bytes = sizeof(region->bytes);

    while (bytes > OP_ALIGN && region->bytes[bytes - 1] == 0)
        bytes--;
    return bytes - OP_ALIGN;
}

/* A push or a release takes the ticket of the lookup before it. */
static void write_form(uint32_t form, const struct form_shape *shape, uint32_t flags,
                       const char *name)
{
    static struct region region;
    struct client *const client = client_of(&region);
    uint8_t *const at = region.bytes + OP_ALIGN;
    const bool has_lookup = form_takes_ticket(form);
    struct form_place places[2];
    struct op_submission submissions[2];
    struct seed seed = { .bytes = NULL };

    submissions[0] =
        form_lay_out(client, has_lookup ? (uint32_t)OP_FORM_POOL : form, shape, 0, at, places);
    if (has_lookup) {
        submissions[0].flags = OP_FLAG_TICKET;
        submissions[1] =
            form_lay_out(client, form, shape, 1, at + SUBMISSION_REGION_BYTES / 2, places);
    }
    submissions[has_lookup].flags |= flags;
    seed_add_byte(&seed, has_lookup);
    seed_add_byte(&seed, 0);
    seed_add(&seed, submissions, (1 + (size_t)has_lookup) * sizeof(submissions[0]));
    seed_add(&seed, at, used_bytes(&region));
    seed_write(&seed, "fuzz_submission", name);
}

static void write_forms(const struct form_shape *shape, const char *table)
{
    char name[120];

#define FORM(form, ...)                                                                            \
    snprintf(name, sizeof(name), "%s-%s-%u", #form, table, shape->segments);                       \
    write_form(OP_FORM_##form, shape, 0, name);
    OP_FORMS(FORM)
#undef FORM
    snprintf(name, sizeof(name), "state-%s-%u", table, shape->segments);
    write_form(OP_FORM_GET, shape, OP_FLAG_STATE, name);
}

void seeds_of_submissions(void)
{
    uint32_t number = 0;

#define X(name, row_count, dim_of, ...)                                                            \
    number++;                                                                                      \
    for (uint32_t segments = 1; segments <= 2; segments++)                                         \
        write_forms(&(struct form_shape){ .table = number,                                         \
                                          .dim = (dim_of),                                         \
                                          .rows = (row_count),                                     \
                                          .segments = segments,                                    \
                                          .ids = IDS,                                              \
                                          .bags = BAGS },                                          \
                    name);
    SUBMISSION_TABLES(X)
#undef X
}
