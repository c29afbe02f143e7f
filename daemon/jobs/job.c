/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

uid_t job_acts_as(const struct job *job)
{
    return job->may_all ? geteuid() : job->uid;
}

void job_set_table(struct job *job, const char *name)
{
    if (table_name_is_valid(name))
        snprintf(job->what, sizeof(job->what), "%s", name);
}

void job_set_checkpoint(struct job *job, uint64_t id)
{
    if (id != 0)
        snprintf(job->what, sizeof(job->what), "%" PRIu64, id);
}

void job_free(struct job *job)
{
    if (job)
        job->kind->free(job);
}
