/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_access, fuzz_credential and fuzz_control: access files, tokens, certificates, and
 * what an administrator of some tables asks for. */
#include <openssl/x509v3.h>

#include "base/macros.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "tests/fuzz/seeds/seeds.h"
#include "tests/unit/base/authority.h"

#define TOKEN  "embt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define HASH_A "sha256:f85b94fde8daf5415b0d5b77c004acf2c09418359676c537b1fe99e601c95e26"
#define HASH_B "sha256:6bcb999141d5a47a23faf11762c6306a3c4ef6929371bf447a8bb6a7ef75659f"

static const char *const files[] = {
    "users:\n  - {name: a, role: read, tokens: ['" HASH_A "', '" HASH_B "']}\n",
    "users:\n  - {name: a.b@c-d_e, role: admin, tables: ['*'], unix_users: [root, 1000]}\n"
    "  - {name: b, role: train, tables: ['ads*', 'users.v?-x', aab], unix_groups: [0, 7]}\n",
    "users:\n  - name: trainer\n    role: train\n    tables: ['a*b', '?', 'a*s_*']\n"
    "    certificates: [CN=one, 'DNS:two.example.org', 'URI:spiffe://x/y', 'EMAIL:a@b']\n"
    "    quotas: {connections: 4, arena_bytes: 64MiB, ticket_bytes: 1MiB, pinned_bytes: 1MiB,\n"
    "      requests_per_second: 100, bytes_in_flight: 1GiB}\n",
};

static void write_certificate(const char *name, const char *common, const char *alternative)
{
    struct holder holder = holder_make(common, NULL, alternative, 0, 86400);
    struct seed seed = { .bytes = NULL };
    unsigned char *der = NULL;
    const int bytes = i2d_X509(holder.certificate, &der);

    must(bytes > 0);
    seed_add_byte(&seed, 'c');
    seed_add(&seed, der, (size_t)bytes);
    seed_write(&seed, "fuzz_credential", name);
    OPENSSL_free(der);
    holder_free(&holder);
}

static void add_name(struct seed *seed, uint8_t kind, const char *text)
{
    seed_add_byte(seed, kind);
    seed_add_byte(seed, 0);
    seed_add_byte(seed, (uint8_t)strlen(text));
    seed_add(seed, text, strlen(text));
}

static void write_names(void)
{
    struct seed seed = { .bytes = NULL };

    seed_add_byte(&seed, 'n');
    add_name(&seed, 0, "trainer-1");
    add_name(&seed, 1, "trainer-1.lan");
    add_name(&seed, 2, "spiffe://a/b");
    add_name(&seed, 3, "a@example.org");
    add_name(&seed, 4, "ffff");
    add_name(&seed, 0, "caf\xc3\xa9");
    seed_write(&seed, "fuzz_credential", "names");
}

/* ---- Control messages ---- */

/* The table is one that fuzz_control's client is granted. */
static Embtier__TableSpec *table_spec_of(const char *name)
{
    static Embtier__TableSpec spec = EMBTIER__TABLE_SPEC__INIT;

    spec.name = (char *)(uintptr_t)name;
    spec.rows = 100;
    spec.dim = 4;
    spec.dtype = 1;
    return &spec;
}

static void add_request(struct seed *seed, Embtier__Request *request)
{
    _cleanup_(freep) uint8_t *bytes = NULL;
    size_t count;

    must(frame_encode_request(request, &bytes, &count) == EMBTIER_OK);
    count -= FRAME_HEADER_BYTES;
    seed_add_byte(seed, (uint8_t)count);
    seed_add_byte(seed, (uint8_t)(count >> 8));
    seed_add(seed, bytes + FRAME_HEADER_BYTES, count);
}

#define ADD(seed, CASE, field, Type, ...)                                                          \
    do {                                                                                           \
        Embtier__##Type body_ = EMBTIER__##CASE##__INIT;                                           \
        Embtier__Request request_ = EMBTIER__REQUEST__INIT;                                        \
        Embtier__##Type *const body = &body_;                                                      \
        __VA_ARGS__;                                                                               \
        request_.id = 1;                                                                           \
        request_.body_case = EMBTIER__REQUEST__BODY_##CASE;                                        \
        request_.field = body;                                                                     \
        add_request((seed), &request_);                                                            \
    } while (0)

static void write_tables_of_a_client(void)
{
    static char h[] = "h1", *names[] = { h };
    struct seed seed = { .bytes = NULL };

    ADD(&seed, TABLE_CREATE, table_create, TableCreate, body->spec = table_spec_of("h1"));
    ADD(&seed, TABLE_OPEN, table_open, TableOpen, body->name = h);
    ADD(&seed, TABLE_LIST, table_list, TableList, body->most = 10);
    ADD(&seed, SCAN_OPEN, scan_open, ScanOpen, body->table = h);
    ADD(&seed, SCAN_NEXT, scan_next, ScanNext, body->offset = 4096, body->bytes = 8192);
    ADD(&seed, SCAN_CLOSE, scan_close, ScanClose, (void)body);
    ADD(&seed, TABLE_MOVE, table_move, TableMove, body->name = h);
    ADD(&seed, CHECKPOINT_RESTORE, checkpoint_restore, CheckpointRestore, body->tables = names,
        body->n_tables = 1);
    ADD(&seed, TABLE_DROP, table_drop, TableDrop, body->name = h);
    seed_write(&seed, "fuzz_control", "tables");
}

static void write_load_of_a_client(void)
{
    struct seed seed = { .bytes = NULL };

    ADD(&seed, LOAD_OPEN, load_open, LoadOpen, body->spec = table_spec_of("h2"));
    ADD(&seed, LOAD_ROWS, load_rows, LoadRows, body->offset = 4096, body->bytes = 24,
        body->rows = 1, body->rows_at = 8);
    ADD(&seed, JOB_LIST, job_list, JobList, body->most = 10);
    ADD(&seed, LOAD_END, load_end, LoadEnd, (void)body);
    ADD(&seed, LOAD_OPEN, load_open, LoadOpen, body->spec = table_spec_of("h3"));
    ADD(&seed, LOAD_CLOSE, load_close, LoadClose, (void)body);
    seed_write(&seed, "fuzz_control", "load");
}

static void write_other_requests_of_a_client(void)
{
    static char g[] = "g", kept[] = "kept", level[] = "log.level", loud[] = "loud",
                night[] = "22:00-06:00", more[] = "/data/more";
    struct seed seed = { .bytes = NULL };

    ADD(&seed, GROUP_JOIN, group_join, GroupJoin, body->name = g, body->size = 2);
    ADD(&seed, GROUP_LEAVE, group_leave, GroupLeave, (void)body);
    ADD(&seed, STATUS, status, Status, (void)body);
    ADD(&seed, ACCOUNT_LIST, account_list, AccountList, (void)body);
    ADD(&seed, JOB_CANCEL, job_cancel, JobCancel, body->id = 1);
    ADD(&seed, CHECKPOINT_LIST, checkpoint_list, CheckpointList, (void)body);
    ADD(&seed, PLAN_SHOW, plan_show, PlanShow, (void)body);
    ADD(&seed, TABLE_DROP, table_drop, TableDrop, body->name = kept);
    ADD(&seed, RELOAD, reload, Reload, (void)body);
    ADD(&seed, SESSION_LIST, session_list, SessionList, body->most = 10);
    ADD(&seed, SESSION_END, session_end, SessionEnd, body->number = 1);
    ADD(&seed, KNOB_LIST, knob_list, KnobList, (void)body);
    ADD(&seed, KNOB_SET, knob_set, KnobSet, body->name = level, body->value = loud);
    ADD(&seed, COMPACTION_SHOW, compaction_show, CompactionShow, body->most = 1);
    ADD(&seed, COMPACTION_SET, compaction_set, CompactionSet, body->deferral = 1,
        body->hours = night);
    ADD(&seed, COMPACTION_RUN, compaction_run, CompactionRun, (void)body);
    ADD(&seed, RESHARD, reshard, Reshard, body->shards = 3);
    ADD(&seed, RESHARD, reshard, Reshard, body->add = more);
    ADD(&seed, RESHARD, reshard, Reshard, body->remove = more, body->deletes_checkpoints = 1);
    ADD(&seed, COMPACTION_RUN, compaction_run, CompactionRun, body->full = 1);
    ADD(&seed, CHECKPOINT_CREATE, checkpoint_create, CheckpointCreate, (void)body);
    seed_write(&seed, "fuzz_control", "others");
}

void seeds_of_access(void)
{
    write_tables_of_a_client();
    write_load_of_a_client();
    write_other_requests_of_a_client();
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[16];

        snprintf(name, sizeof(name), "file-%zu", i);
        seed_write_text("fuzz_access", name, -1, files[i]);
    }
    seed_write_text("fuzz_credential", "token", 't', TOKEN "\n");
    seed_write_text("fuzz_credential", "hash", 'h', HASH_A);
    write_certificate("certificate-0", "trainer-1", NULL);
    write_certificate("certificate-1", "a", "DNS:b.lan,URI:spiffe://c/d,email:e@f,IP:127.0.0.1");
    write_names();
}
