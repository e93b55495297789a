/*
 * test_cuda_split.c - communicators of a job: every rank makes the same calls, every
 * transfer finds its communicator, and what NCCL would make of the calls is it.
 */
#include "exec/calls.h"
#include "exec/cuda_comm_split.h"
#include "tests/split_job.h"

enum { TAGS_MAX = 16 };

static const struct {
    const char *model, *settings;
} jobs[] = {
    { JOB_MLP, "strategy=single" },
    { JOB_MLP, "strategy=dp dp=3" },
    { JOB_MLP, "strategy=ddp dp=4 sync_batchnorm=true" },
    { JOB_GPT, "strategy=zero1 dp=4" },
    { JOB_GPT, "strategy=zero2 dp=3 training.grad_clip=1" },
    { JOB_GPT, "strategy=fsdp dp=4 tp=2" },
    { JOB_LLAMA, "strategy=hsdp dp=4 shard_size=2" },
    { JOB_LLAMA, "strategy=ddp dp=2 tp=2 sequence_parallel=true" },
    { JOB_LLAMA, "strategy=ddp cp=4 dp=2" },
    { JOB_GPT, "strategy=ddp pp=2 schedule=gpipe dp=2" },
    { JOB_GPT, "strategy=ddp pp=4 schedule=1f1b" },
    { JOB_GPT, "strategy=zero1 pp=2 virtual_stages=2 schedule=interleaved dp=2 tp=2" },
    { JOB_LLAMA, "strategy=ddp pp=2 schedule=1f1b dp=2 training.grad_clip=1" },
    { JOB_LLAMA, "strategy=fsdp pp=2 dp=2 cp=2 tp=2" },
};

/* ---- what NCCL makes of a call ---- */

/* Ranks of one color, by key: the members of the new communicator. */
static uint32_t split(const SplitPlan *x, uint32_t call, int color, uint32_t *members)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < x->world_n; r++)
        if (split_plan_color(x, call, r).color == color)
            n++;
    for (uint32_t r = 0; r < x->world_n; r++) {
        SplitColor c = split_plan_color(x, call, r);
        if (c.color == color && CHECK(c.key >= 0 && (uint32_t)c.key < n))
            members[c.key] = r;
    }
    return n;
}

static void check_calls(const SplitPlan *x)
{
    for (uint32_t i = 0; i < x->comms_n; i++) {
        const SplitComm *c = &x->comms[i];
        uint32_t members[JOB_RANKS_MAX];
        memset(members, 0xff, sizeof members);
        CHECK(c->call < x->calls_n);
        if (CHECK_U64(c->members_n, split(x, c->call, (int)c->color, members)))
            CHECK_INT(0, memcmp(members, x->members + c->members_first,
                                c->members_n * sizeof *members));
        CHECK(c->members_n > 1 && (!c->channel || c->members_n == 2));
        for (uint32_t k = 0; k < i; k++)
            CHECK(x->comms[k].call != c->call || x->comms[k].color != c->color);
    }
}

static void every_transfer_has_a_communicator_of_its_members(void)
{
    for (size_t i = 0; i < ARRAY_N(jobs); i++) {
        Job j;
        if (!job_open(&j, jobs[i].model, jobs[i].settings))
            continue;
        SplitPlan x;
        split_plan_make(&x, &j.split.g);
        check_calls(&x);
        bool *used = mem_zero((size_t)x.comms_n + 1, sizeof *used);
        for (uint32_t r = 0; r < j.ranks_n; r++) {
            const Program *p = &j.program[r];
            for (uint32_t t = 0; t < p->tasks_n; t++) {
                const Task *task = &p->tasks[t];
                const uint32_t *members = p->members + task->members_first;
                uint32_t comm = NONE_U32, peer;
                if (!op_is_comm(task->op->kind))
                    continue;
                peer = members[op_is_p2p(task->op->kind) ? task->op->u.comm.peer : 0];
                if (task->op->kind == OP_SEND)
                    comm = split_plan_channel(&x, r, peer, task->op->u.comm.tag);
                else if (task->op->kind == OP_RECV)
                    comm = split_plan_channel(&x, peer, r, task->op->u.comm.tag);
                else
                    comm = split_plan_collective(&x, task->lane, members, task->members_n);
                if (!CHECK(comm != NONE_U32 || task->members_n == 1)) {
                    fprintf(stderr, "%s: rank %u op %u\n", jobs[i].settings, r, task->id);
                    break;
                }
                if (comm != NONE_U32)
                    used[comm] = true;
                CHECK(!op_is_p2p(task->op->kind) || peer != r);
            }
        }
        for (uint32_t k = 0; k < x.comms_n; k++)
            CHECK(used[k]);
        free(used);
        split_plan_free(&x);
        job_close(&j);
    }
}

/* NCCL matches the k-th send of a channel with its k-th receive, piece by piece. */
static void both_ends_of_a_channel_cut_their_messages_alike(void)
{
    for (size_t i = 0; i < ARRAY_N(jobs); i++) {
        Job j;
        Err err = { 0 };
        uint64_t sums[2] = { 0, 0 }, sends_n = 0, recvs_n = 0;
        if (!job_open(&j, jobs[i].model, jobs[i].settings))
            continue;
        for (uint32_t r = 0; r < j.ranks_n; r++) {
            CommCalls calls;
            CHECK(calls_make(&calls, &j.program[r], &err));
            uint64_t nth[JOB_RANKS_MAX][TAGS_MAX][2] = { 0 };
            for (uint32_t c = 0; c < calls.calls_n; c++) {
                const CommCall *call = &calls.calls[c];
                if (!op_is_p2p(call->kind))
                    continue;
                bool sends = call->kind == OP_SEND;
                uint32_t peer = call->members[call->peer];
                ASSERT(call->tag < TAGS_MAX);
                uint64_t h = mix_u64((sends ? r : peer) * 100 + (sends ? peer : r));
                h = mix_u64(h + call->tag * 1000 + nth[peer][call->tag][sends]++);
                for (uint32_t k = 0; k < call->in_n; k++)
                    sums[sends] += mix_u64(h + k) * mix_u64(call->in[k].elements) *
                                   dtype_bytes(call->in[k].dtype);
                (*(sends ? &sends_n : &recvs_n))++;
            }
            calls_free(&calls);
        }
        CHECK_U64(sends_n, recvs_n);
        CHECK_U64(sums[0], sums[1]);
        job_close(&j);
    }
}

/* ---- closed forms ---- */

typedef struct Counts {
    uint32_t collectives, channels, calls;
} Counts;

static Counts count(const char *model, const char *settings)
{
    Counts n = { 0 };
    Job j;
    SplitPlan x;
    if (!job_open(&j, model, settings))
        return n;
    split_plan_make(&x, &j.split.g);
    for (uint32_t i = 0; i < x.comms_n; i++)
        (*(x.comms[i].channel ? &n.channels : &n.collectives))++;
    n.calls = x.calls_n;
    split_plan_free(&x);
    job_close(&j);
    return n;
}

static void counts_follow_from_the_split(void)
{
    Counts n = count(JOB_MLP, "strategy=single");
    CHECK_U64(0, n.collectives + n.channels + n.calls);

    /* ddp: gradients of all ranks together. */
    n = count(JOB_LINE, "strategy=ddp dp=4");
    CHECK_U64(1, n.collectives);
    CHECK_U64(0, n.channels);
    CHECK_U64(1, n.calls);

    /* A pipeline of 4: 3 borders, there and back; no two of a direction that share a rank fit
     * into one call, and none can do with less than two.  Tied embeddings: a group of the two
     * ends. */
    n = count(JOB_GPT, "strategy=ddp pp=4 schedule=1f1b");
    CHECK_U64(2 * 3, n.channels);
    CHECK_U64(1, n.collectives);

    /* Twice as many pipelines need as many calls. */
    Counts two = count(JOB_GPT, "strategy=ddp pp=4 schedule=1f1b dp=2");
    CHECK_U64(2 * n.channels, two.channels);

    /* tp 2 beside dp 4: four pairs, and two groups of four. */
    n = count(JOB_GPT, "strategy=ddp dp=4 tp=2");
    CHECK_U64(0, n.channels);
    CHECK_U64(4 + 2, n.collectives);
    CHECK_U64(2, n.calls);
}

int main(void)
{
    RUN(every_transfer_has_a_communicator_of_its_members);
    RUN(both_ends_of_a_channel_cut_their_messages_alike);
    RUN(counts_follow_from_the_split);
    return check_report();
}
