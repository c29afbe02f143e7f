/* SPDX-License-Identifier: Apache-2.0 */
/* test_node_memory.c: tests that the memory a node could give is computed right from the kernel's
 * texts. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/system/node_memory.h"

#define PAGE 4096

/* From a machine with 24 GiB and Linux 6.18. */
static const char meminfo[] = "Node 0 MemTotal:       24684092 kB\n"
                              "Node 0 MemFree:        11031848 kB\n"
                              "Node 0 MemUsed:        13652244 kB\n"
                              "Node 0 Active:          3858492 kB\n"
                              "Node 0 Active(anon):       1996 kB\n"
                              "Node 0 Inactive(anon):  1293636 kB\n"
                              "Node 0 Active(file):    3856496 kB\n"
                              "Node 0 Inactive(file):  7245320 kB\n"
                              "Node 0 FilePages:      11503908 kB\n"
                              "Node 0 KReclaimable:     791176 kB\n"
                              "Node 0 SReclaimable:     791176 kB\n"
                              "Node 0 SUnreclaim:        79072 kB\n"
                              "Node 0 HugePages_Total:     0\n";

/* From the same machine, with a node 1 added that the test does not ask for. */
static const char zoneinfo[] = "Node 0, zone      DMA\n"
                               "  per-node stats\n"
                               "      nr_inactive_file 1830092\n"
                               "      nr_slab_reclaimable 197651\n"
                               "  pages free     3840\n"
                               "        boost    0\n"
                               "        min      10\n"
                               "        low      13\n"
                               "        high     16\n"
                               "        promo    19\n"
                               "        spanned  4095\n"
                               "        present  3998\n"
                               "        managed  3840\n"
                               "        cma      0\n"
                               "        protection: (0, 3019, 24090, 24090, 24090)\n"
                               "      nr_free_pages 3840\n"
                               "  pagesets\n"
                               "    cpu: 0\n"
                               "              count:    0\n"
                               "              high:     0\n"
                               "              high_min: 6\n"
                               "Node 0, zone    DMA32\n"
                               "  pages free     771645\n"
                               "        min      2116\n"
                               "        low      2888\n"
                               "        high     3660\n"
                               "        present  782336\n"
                               "        managed  772917\n"
                               "        protection: (0, 0, 21071, 21071, 21071)\n"
                               "  pagesets\n"
                               "    cpu: 0\n"
                               "              high:     1444\n"
                               "Node 0, zone   Normal\n"
                               "  pages free     1982477\n"
                               "        min      14769\n"
                               "        low      20163\n"
                               "        high     25557\n"
                               "        present  5505024\n"
                               "        managed  5394266\n"
                               "        protection: (0, 0, 0, 0, 0)\n"
                               "  pagesets\n"
                               "    cpu: 0\n"
                               "              high:     60916\n"
                               "Node 0, zone  Movable\n"
                               "  pages free     0\n"
                               "        min      32\n"
                               "        low      32\n"
                               "        high     32\n"
                               "        present  0\n"
                               "        managed  0\n"
                               "        protection: (0, 0, 0, 0, 0)\n"
                               "Node 1, zone   Normal\n"
                               "        low      9000000\n"
                               "        high     9000000\n"
                               "        managed  9000000\n"
                               "        protection: (0, 0, 0, 0, 0)\n";

static uint64_t available_bytes(const char *meminfo_text, const char *zoneinfo_text)
{
    FILE *const memory = fmemopen((void *)meminfo_text, strlen(meminfo_text), "r");
    FILE *const zones =
        zoneinfo_text ? fmemopen((void *)zoneinfo_text, strlen(zoneinfo_text), "r") : NULL;
    uint64_t bytes;

    assert_non_null(memory);
    bytes = node_memory_available_bytes(memory, zones, 0, PAGE);
    fclose(memory);
    if (zones)
        fclose(zones);
    return bytes;
}

static void test_watermarks_and_reserves_of_the_zones_are_not_available(void **state)
{
    const uint64_t low = (13 + 2888 + 20163) * PAGE;
    /* All managed pages of DMA, since its reserve is larger. */
    const uint64_t kept = (3840 + (3660 + 21071) + 25557) * PAGE;

    (void)state;
    assert_int_equal(available_bytes(meminfo, zoneinfo),
                     11031848 * KIB + (3856496 + 7245320) * KIB - low + 791176 * KIB - low - kept);
}

static void test_half_of_few_file_pages_is_available(void **state)
{
    (void)state;
    assert_int_equal(available_bytes("Node 0 MemTotal: 4096000 kB\nNode 0 MemFree: 2048000 kB\n"
                                     "Node 0 Active(file): 4000 kB\nNode 0 SReclaimable: 400 kB\n",
                                     "Node 0, zone Normal\n        low      10000\n"
                                     "        high     12000\n        managed  1000000\n"
                                     "        protection: (0, 0)\n"),
                     (2048000 + 2000 + 200) * KIB - 12000 * PAGE);
}

static void test_a_node_that_is_full_has_nothing(void **state)
{
    (void)state;
    assert_int_equal(available_bytes("Node 0 MemTotal: 65536 kB\nNode 0 MemFree: 8192 kB\n",
                                     "Node 0, zone Movable\n        low      2500\n"
                                     "        high     3000\n        managed  16384\n"
                                     "        protection: (0)\n"),
                     0);
}

static void test_texts_that_are_not_there_limit_nothing(void **state)
{
    (void)state;
    assert_int_equal(available_bytes(meminfo, NULL), (11031848 + 3856496 + 7245320 + 791176) * KIB);
    assert_int_equal(available_bytes("no such node\n", zoneinfo), UINT64_MAX);
    assert_int_equal(node_memory_available_bytes(NULL, NULL, 0, PAGE), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watermarks_and_reserves_of_the_zones_are_not_available),
        cmocka_unit_test(test_half_of_few_file_pages_is_available),
        cmocka_unit_test(test_a_node_that_is_full_has_nothing),
        cmocka_unit_test(test_texts_that_are_not_there_limit_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
