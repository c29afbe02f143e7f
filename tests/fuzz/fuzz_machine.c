/* SPDX-License-Identifier: Apache-2.0 */
/* Files of machines and of rules for plans (placement/machine/). The first byte chooses. */
#include "tests/fuzz/lib/fuzz.h"

#include "placement/machine/machine_file.h"
#include "placement/machine/rules.h"

#define TIERS 2

static const char *const tables[] = { "users", "items", "words" };

static void fill_machine(struct machine *machine)
{
    *machine = (struct machine){ .gpu_count = 2,
                                 .hbm_bytes = 16 * GIB,
                                 .hbm_bandwidth_bytes_per_s = 1e12,
                                 .tier_count = TIERS,
                                 .ssd = { .bytes = 1024 * GIB,
                                          .read_bandwidth_bytes_per_s = 1e9,
                                          .block_bytes = 4096,
                                          .write_amplification = 1 } };
    for (uint32_t i = 0; i < TIERS; i++) {
        machine->tiers[i].bytes = 64 * GIB;
        machine->tiers[i].bandwidth_bytes_per_s = 1e10;
        snprintf(machine->tiers[i].name, sizeof(machine->tiers[i].name), i ? "pmem" : "dram");
    }
}

static void read_machine(const char *path)
{
    struct machine machine;
    struct err_msg msg = { { 0 } };

    if (machine_file_load(path, &machine, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
        return;
    }
    FUZZ_CHECK(machine.tier_count >= 1 && machine.tier_count <= TIERS_MAX);
    FUZZ_CHECK(machine.gpu_count <= MACHINE_GPUS_MAX);
    (void)machine_cost(&machine);
    (void)machine_power_w(&machine);
    (void)machine_writes_per_day(&machine);
}

static void read_rules(const char *path)
{
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct machine machine;
    struct err_msg msg = { { 0 } };

    fill_machine(&machine);
    if (rules_file_load(path, &machine, tables, ARRAY_LEN(tables), &rules, &msg) != EMBTIER_OK)
        FUZZ_CHECK(msg.text[0] && !strchr(msg.text, '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    const bool is_machine = fuzz_byte(&input) % 2 == 'm' % 2;
    char path[256];

    fuzz_put_file("e.yaml", input.at, input.left);
    snprintf(path, sizeof(path), "%s/e.yaml", fuzz_folder());
    if (is_machine)
        read_machine(path);
    else
        read_rules(path);
    return 0;
}
