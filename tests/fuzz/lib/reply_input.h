/* SPDX-License-Identifier: Apache-2.0 */
/* reply_input.h: the layout of an input of fuzz_reply, for it and for its seeds.
 *
 *     offset  bytes     contents
 *          0      1     bit 0: the client's address is unix+rpc:PATH, so that it has a region
 *          1      1     calls after the hello, 0 to REPLY_CALLS_MAX; modulo
 *          2  calls     numbers of calls, in the order of REPLY_CALLS; modulo
 *       then  the rest  the server's bytes, of the hello's reply and of all others
 *
 * The hello has id 1, and the id of each later message of the client is one more. */
#ifndef EMBTIER_TESTS_FUZZ_LIB_REPLY_INPUT_H
#define EMBTIER_TESTS_FUZZ_LIB_REPLY_INPUT_H

#define REPLY_CALLS_MAX 4
#define REPLY_RPC       1

/* X(NAME, function) */
#define REPLY_CALLS(X)                                                                             \
    X(STATUS, call_status)                                                                         \
    X(TABLE_LIST, call_table_list)                                                                 \
    X(TABLE_OPEN, call_table_open)                                                                 \
    X(TABLE_CREATE, call_table_create)                                                             \
    X(TABLE_DROP, call_table_drop)                                                                 \
    X(TABLE_MOVE, call_table_move)                                                                 \
    X(CHECKPOINT_LIST, call_checkpoint_list)                                                       \
    X(CHECKPOINT_SHOW, call_checkpoint_show)                                                       \
    X(CHECKPOINT_CREATE, call_checkpoint_create)                                                   \
    X(CHECKPOINT_RESTORE, call_checkpoint_restore)                                                 \
    X(JOB_LIST, call_job_list)                                                                     \
    X(JOB_CANCEL, call_job_cancel)                                                                 \
    X(ACCOUNT_LIST, call_account_list)                                                             \
    X(PLAN, call_plan)                                                                             \
    X(PROFILE, call_profile)                                                                       \
    X(PROFILE_SAVE, call_profile_save)                                                             \
    X(GROUP_JOIN, call_group_join)                                                                 \
    X(SCAN, call_scan)                                                                             \
    X(LOAD, call_load)                                                                             \
    X(GET, call_get)                                                                               \
    X(POOL_AND_PUSH, call_pool_and_push)                                                           \
    X(SESSION_LIST, call_session_list)                                                             \
    X(SESSION_END, call_session_end)                                                               \
    X(KNOBS, call_knobs)                                                                           \
    X(COMPACTION, call_compaction)                                                                 \
    X(RESHARD, call_reshard)

enum reply_call {
#define X(name, function) REPLY_##name,
    REPLY_CALLS(X)
#undef X
        REPLY_CALL_COUNT
};

#endif
