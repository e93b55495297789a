/*
 * Recordings of the collector: what each record becomes, how labels find kernels, what NCCL
 * says, clocks that drift, and files that are damaged in every way.  No toolkit is needed.
 */
#include "tests/check.h"
#include "tests/unit/raw_world.h"

#include <unistd.h>

typedef struct Read {
    Timeline t;
    RecordsInfo info;
    Err err;
    bool ok;
} Read;

static Read read_world(const RawWorld *w, const RecordsOptions *o)
{
    Read r = { .ok = false };
    r.ok = raw_read(w, &r.t, &r.info, o, &r.err);
    if (r.ok) {
        timeline_seal(&r.t);
        CHECK(timeline_check(&r.t, &r.err));
    }
    return r;
}

/* Number of the span with this name; UINT64_MAX and a failed check. */
static uint64_t span_named(const Timeline *t, const char *name)
{
    for (uint64_t i = 0; i < t->spans_n; i++)
        if (strcmp(timeline_text(t, t->span_name[i]), name) == 0)
            return i;
    CHECK_STR(name, "among the spans");
    return 0;
}

static const Track *track_of(const Timeline *t, const char *span)
{
    return &t->tracks[t->span_track[span_named(t, span)]];
}

/* ---- single records ---- */

/* Files from before grid and block were kept have shorter records. */
static void kernels_know_how_they_were_launched(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1000, 1000000);
    uint32_t new = raw_text(&w, "new"), old = raw_text(&w, "old");
    RawKernel *k = RAW_OF(&any, RAW_KERNEL, kernel, new);
    *k = (RawKernel){ .top = k->top,
                      .start_ns = 2000,
                      .end_ns = 2500,
                      .stream = 7,
                      .grid_x = 70000,
                      .grid_y = 2,
                      .grid_z = 1,
                      .block_x = 256,
                      .block_y = 1,
                      .block_z = 1,
                      .registers_n = 128,
                      .shared_bytes = 4096 };
    raw_add(&w, &any.top);
    k->top.a = old;
    k->top.bytes = RAW_KERNEL_BYTES_OLD;
    k->start_ns = 3000;
    k->end_ns = 3100;
    raw_add(&w, &any.top);
    Read r = read_world(&w, NULL);
    const KernelLaunch *l = timeline_launch_of(&r.t, span_named(&r.t, "new"));
    CHECK(l && l->grid[0] == 70000 && l->grid[1] == 2 && l->block[0] == 256);
    CHECK(l && l->registers_n == 128 && l->shared_bytes == 4096);
    CHECK(timeline_launch_of(&r.t, span_named(&r.t, "old")) == NULL);
    CHECK_INT(3000 + 999000, r.t.start_ns[span_named(&r.t, "old")]);
    timeline_free(&r.t);
}

static void what_ran_on_the_gpu_stands_on_its_stream(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1000, 1000000);
    raw_kernel_of(&w, "gemm", 7, 2000, 2500, 11, 0);
    RawMove *m = RAW_OF(&any, RAW_COPY, move, 1); /* host to device */
    m->start_ns = 3000;
    m->end_ns = 3100;
    m->context = 1;
    m->stream = 9;
    raw_add(&w, &any.top);
    m = RAW_OF(&any, RAW_SET, move, 0);
    m->start_ns = 3200;
    m->end_ns = 3300;
    m->context = 1;
    m->stream = 9;
    raw_add(&w, &any.top);

    Read r = read_world(&w, NULL);
    CHECK(r.ok);
    CHECK_U64(3, r.t.spans_n);
    uint64_t i = span_named(&r.t, "gemm");
    CHECK_INT(SPAN_COMPUTE, r.t.span_class[i]);
    CHECK_INT(1001000, r.t.start_ns[i]);
    CHECK_INT(500, r.t.dur_ns[i]);
    CHECK_U64(11, r.t.correlation[i]);
    CHECK_STR("GPU 0 stream 7", timeline_text(&r.t, track_of(&r.t, "gemm")->name));
    CHECK_INT(SPAN_MEMORY, r.t.span_class[span_named(&r.t, "Memcpy HtoD")]);
    CHECK(track_of(&r.t, "Memset") == track_of(&r.t, "Memcpy HtoD"));
    CHECK_U64(1, r.info.kernels_n);
    CHECK_U64(2, r.info.copies_n);
    CHECK_INT(1001000, r.info.begin_ns);
    CHECK_INT(1002300, r.info.end_ns);
    CHECK_U64(0, r.info.findings_n);
    timeline_free(&r.t);
}

static void calls_stand_on_their_threads_by_name_launch_or_wait(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_call(&w, "cudaLaunchKernel", 41, 100, 130, 1);
    raw_call(&w, "cudaStreamSynchronize", 42, 140, 180, 2);
    raw_call(&w, "cudaMalloc", 41, 150, 160, 3);
    raw_call(&w, "cudaLaunchHostFunc", 41, 170, 175, 4);
    RawThread *thread = RAW_OF(&any, RAW_THREAD, thread, 42);
    thread->name = w.texts_n + 1;
    raw_text(&w, "autograd");
    raw_add(&w, &any.top);
    Read r = read_world(&w, NULL);
    CHECK_INT(SPAN_LAUNCH, r.t.span_class[span_named(&r.t, "cudaLaunchKernel")]);
    CHECK_INT(SPAN_SYNC, r.t.span_class[span_named(&r.t, "cudaStreamSynchronize")]);
    CHECK_INT(SPAN_HOST, r.t.span_class[span_named(&r.t, "cudaMalloc")]);
    CHECK_INT(SPAN_HOST, r.t.span_class[span_named(&r.t, "cudaLaunchHostFunc")]);
    CHECK_STR("thread 42 autograd",
              timeline_text(&r.t, track_of(&r.t, "cudaStreamSynchronize")->name));
    CHECK_INT(TRACK_HOST, track_of(&r.t, "cudaMalloc")->kind);
    CHECK(track_of(&r.t, "cudaMalloc") == track_of(&r.t, "cudaLaunchKernel"));
    CHECK_U64(0, r.info.kernels_n);
    timeline_free(&r.t);

    const RecordsOptions gpu_only = { .rank = 0, .gpu_only = true };
    r = read_world(&w, &gpu_only); /* what launches and what waits */
    CHECK_U64(2, r.t.spans_n);
    CHECK_INT(SPAN_LAUNCH, r.t.span_class[span_named(&r.t, "cudaLaunchKernel")]);
    CHECK_INT(SPAN_SYNC, r.t.span_class[span_named(&r.t, "cudaStreamSynchronize")]);
    timeline_free(&r.t);
}

/* What a run copies before its first step is of no step. */
static void what_began_too_early_is_left_out(void)
{
    RawWorld w = raw_world();
    const RecordsOptions o = { .rank = 0, .from_ns = 200 };
    RawAny any;
    RawMove *m = RAW_OF(&any, RAW_COPY, move, 1);
    m->start_ns = 190;
    m->end_ns = 300;
    raw_add(&w, &any.top);
    raw_call(&w, "cudaMemcpyAsync", 42, 180, 185, 1);
    raw_kernel(&w, "early", 7, 150, 160);
    raw_kernel(&w, "first", 7, 200, 210);
    raw_call(&w, "cudaLaunchKernel", 42, 250, 255, 2);
    Read r = read_world(&w, &o);
    CHECK_U64(2, r.t.spans_n);
    CHECK_U64(1, r.info.kernels_n);
    CHECK_INT(200, r.t.start_ns[span_named(&r.t, "first")]);
    timeline_free(&r.t);
}

static void put_mark(RawWorld *w, const char *name, uint32_t id, uint32_t flags, int64_t at_ns)
{
    RawAny any;
    uint32_t text = name ? raw_text(w, name) : 0;
    RawMark *m = RAW_OF(&any, RAW_MARK, mark, text);
    m->at_ns = at_ns;
    m->id = id;
    m->thread = 5;
    m->flags = flags;
    raw_add(w, &any.top);
}

static void nvtx_ranges_are_notes_and_numbered_steps_are_steps(void)
{
    RawWorld w = raw_world();
    put_mark(&w, "step 3", 1, RAW_MARK_START, 100);
    put_mark(&w, "forward", 2, RAW_MARK_START, 110);
    put_mark(&w, "here", 3, RAW_MARK_POINT, 120);
    put_mark(&w, NULL, 2, RAW_MARK_END, 150);
    put_mark(&w, NULL, 1, RAW_MARK_END, 200);
    put_mark(&w, "never ended", 4, RAW_MARK_START, 210);
    raw_kernel(&w, "gemm", 7, 300, 400);
    Read r = read_world(&w, NULL);
    CHECK_INT(SPAN_STEP, r.t.span_class[span_named(&r.t, "step 3")]);
    CHECK_INT(TRACK_STEPS, track_of(&r.t, "step 3")->kind);
    CHECK_INT(100, r.t.dur_ns[span_named(&r.t, "step 3")]);
    CHECK_INT(SPAN_NOTE, r.t.span_class[span_named(&r.t, "forward")]);
    CHECK_INT(40, r.t.dur_ns[span_named(&r.t, "forward")]);
    CHECK_INT(0, r.t.dur_ns[span_named(&r.t, "here")]);
    CHECK_INT(190, r.t.dur_ns[span_named(&r.t, "never ended")]); /* until the kernel's end */
    CHECK_U64(4, r.info.notes_n);
    timeline_free(&r.t);
}

static void waits_and_overhead_have_tracks_of_their_own(void)
{
    RawWorld w = raw_world();
    RawAny any;
    RawSync *s = RAW_OF(&any, RAW_SYNC, sync, 3);
    s->start_ns = 100;
    s->end_ns = 160;
    raw_add(&w, &any.top);
    RawCost *c = RAW_OF(&any, RAW_COST, cost, 2 << 16);
    c->start_ns = 200;
    c->end_ns = 230;
    raw_add(&w, &any.top);
    c = RAW_OF(&any, RAW_COST, cost, 1);
    c->start_ns = 300;
    c->end_ns = 312;
    raw_add(&w, &any.top);
    (void)RAW_OF(&any, RAW_EVENT, event, 4);
    raw_add(&w, &any.top);
    Read r = read_world(&w, NULL);
    CHECK_STR("waits", timeline_text(&r.t, track_of(&r.t, "Stream Sync")->name));
    CHECK_INT(SPAN_SYNC, r.t.span_class[span_named(&r.t, "Stream Sync")]);
    CHECK_STR("collector", timeline_text(&r.t, track_of(&r.t, "instrumentation")->name));
    CHECK_INT(12, r.t.dur_ns[span_named(&r.t, "compiler")]);
    CHECK_INT(0, r.info.cost_ns); /* nothing ran on the GPU meanwhile */
    CHECK_U64(1, r.info.events_n);
    timeline_free(&r.t);
}

static void put_cost(RawWorld *w, uint32_t kind, int64_t start_ns, int64_t end_ns)
{
    RawAny any;
    RawCost *c = RAW_OF(&any, RAW_COST, cost, kind);
    c->start_ns = start_ns;
    c->end_ns = end_ns;
    raw_add(w, &any.top);
}

/* Neither the collector's start-up and end, nor what the program does without it too. */
static void recording_costs_what_it_takes_while_the_gpu_works(void)
{
    RawWorld w = raw_world();
    put_cost(&w, 3 << 16, 100, 900);   /* resources, before anything ran */
    put_cost(&w, 2 << 16, 950, 1010);  /* instrumentation: 10 of it meanwhile */
    put_cost(&w, 4 << 16, 1100, 1400); /* a module is loaded */
    put_cost(&w, 1 << 16, 1100, 1200); /* CUPTI's own thread flushes */
    put_cost(&w, 6 << 16, 1200, 1300); /* the queue is full */
    put_cost(&w, 7 << 16, 1300, 1307); /* a buffer is asked for */
    put_cost(&w, 7 << 16, 1990, 2500); /* and at the end: 10 of it */
    raw_kernel(&w, "first", 7, 1000, 1100);
    raw_kernel(&w, "last", 7, 1900, 2000);
    Read r = read_world(&w, NULL);
    CHECK_INT(27, r.info.cost_ns);
    timeline_free(&r.t);
}

/* ---- labels ---- */

static void a_label_reaches_the_kernel_whatever_comes_first(void)
{
    RawWorld w = raw_world();
    raw_kernel_of(&w, "early", 7, 1000, 1100, 5, 0); /* before its label and its call */
    raw_label(&w, RAW_OP, 5, 123);
    raw_call(&w, "cudaLaunchKernel", 1, 900, 950, 5);
    raw_label(&w, RAW_OP, 6, (uint64_t)2 << 32 | 77);
    raw_kernel_of(&w, "late", 7, 1200, 1300, 6, 0);
    raw_kernel_of(&w, "nobody's", 7, 1400, 1500, 8, 0);
    Read r = read_world(&w, NULL);
    CHECK_INT(123, r.t.op[span_named(&r.t, "early")]);
    CHECK_INT(123, r.t.op[span_named(&r.t, "cudaLaunchKernel")]);
    CHECK_INT(77, r.t.op[span_named(&r.t, "late")]);
    CHECK_INT(NONE_U32, r.t.op[span_named(&r.t, "nobody's")]);
    CHECK_U64(2, r.info.labelled_n);
    timeline_free(&r.t);
}

static void of_labels_with_one_number_the_nearest_in_the_file_is_meant(void)
{
    RawWorld w = raw_world();
    raw_label(&w, RAW_OP, 9, 1);
    raw_kernel_of(&w, "first", 7, 1000, 1100, 9, 0);
    for (int i = 0; i < 20; i++)
        raw_kernel(&w, "between", 7, 1100 + 10 * i, 1105 + 10 * i);
    raw_label(&w, RAW_OP, 9, 2); /* the number came round again */
    raw_kernel_of(&w, "second", 7, 2000, 2100, 9, 0);
    Read r = read_world(&w, NULL);
    CHECK_INT(1, r.t.op[span_named(&r.t, "first")]);
    CHECK_INT(2, r.t.op[span_named(&r.t, "second")]);
    timeline_free(&r.t);
}

static void kernels_of_a_graph_have_the_label_of_the_node_they_are_copies_of(void)
{
    RawWorld w = raw_world();
    RawAny any;
    RawNode *node = RAW_OF(&any, RAW_NODE, node, RAW_OP);
    node->node = 50;
    node->id = 31;
    raw_add(&w, &any.top);
    RawClone *clone = RAW_OF(&any, RAW_CLONE, clone, 0);
    clone->node = 60;
    clone->from = 50;
    raw_add(&w, &any.top);
    clone->node = 70; /* a copy of the copy */
    clone->from = 60;
    raw_add(&w, &any.top);
    clone->node = 80; /* a ring: no label, and no endless loop */
    clone->from = 80;
    raw_add(&w, &any.top);
    raw_label(&w, RAW_OP, 3, 99); /* of the graph's launch: not the node's */
    raw_kernel_of(&w, "once", 7, 1000, 1100, 3, 70);
    raw_kernel_of(&w, "again", 7, 2000, 2100, 4, 70);
    raw_kernel_of(&w, "ring", 7, 3000, 3100, 4, 80);
    Read r = read_world(&w, NULL);
    CHECK_INT(31, r.t.op[span_named(&r.t, "once")]);
    CHECK_INT(31, r.t.op[span_named(&r.t, "again")]);
    CHECK_INT(NONE_U32, r.t.op[span_named(&r.t, "ring")]);
    timeline_free(&r.t);
}

static void ranks_that_are_threads_of_one_process_come_apart_by_their_ops(void)
{
    RawWorld w = raw_world();
    raw_kernel_of(&w, "fill", 13, 500, 600, 0, 0); /* no op, but rank 3's stream */
    raw_label(&w, RAW_OP, 5, (uint64_t)3 << 32 | 10);
    raw_call(&w, "cudaLaunchKernel", 41, 900, 950, 5);
    raw_kernel_of(&w, "three", 13, 1000, 1100, 5, 0);
    raw_label(&w, RAW_OP, 6, (uint64_t)1 << 32 | 10);
    raw_kernel_of(&w, "one", 17, 1000, 1100, 6, 0);
    const RecordsOptions o = { .rank = 0, .ranks_in_ops = true };
    Read r = read_world(&w, &o);
    CHECK_INT(3, track_of(&r.t, "three")->rank);
    CHECK_INT(3, track_of(&r.t, "fill")->rank);
    CHECK_INT(3, track_of(&r.t, "cudaLaunchKernel")->rank);
    CHECK_INT(1, track_of(&r.t, "one")->rank);
    CHECK_INT(10, r.t.op[span_named(&r.t, "one")]);
    timeline_free(&r.t);
}

static void the_rank_is_the_callers_else_the_heads_else_none(void)
{
    RawWorld w = raw_world();
    raw_kernel(&w, "k", 7, 100, 200);
    const uint32_t heads[] = { NONE_U32, 5, 5 }, given[] = { NONE_U32, NONE_U32, 2 };
    const uint32_t expect[] = { 0, 5, 2 };
    for (int i = 0; i < 3; i++) {
        raw_head(&w)->rank = heads[i];
        const RecordsOptions o = { .rank = given[i] };
        Read r = read_world(&w, &o);
        CHECK_INT(expect[i], r.t.tracks[0].rank);
        timeline_free(&r.t);
    }
}

/* ---- NCCL ---- */

static void put_comm(RawWorld *w, uint32_t number, uint64_t id, uint32_t rank, uint32_t ranks_n)
{
    RawAny any;
    RawNcclComm *c = RAW_OF(&any, RAW_NCCL_COMM, comm, number);
    c->id = id;
    c->rank = rank;
    c->ranks_n = ranks_n;
    raw_add(w, &any.top);
}

static void put_call(RawWorld *w, uint32_t number, uint32_t group, const char *func,
                     const char *dtype, uint64_t count)
{
    RawAny any;
    uint32_t func_text = raw_text(w, func), dtype_text = raw_text(w, dtype);
    RawNcclCall *c = RAW_OF(&any, RAW_NCCL_CALL, nccl_call, number);
    c->group = group;
    c->comm = 1;
    c->func = func_text;
    c->dtype = dtype_text;
    c->count = count;
    c->root = NONE_U32;
    raw_add(w, &any.top);
}

static void put_launch(RawWorld *w, uint32_t number, uint32_t group)
{
    RawAny any;
    RawNcclLaunch *l = RAW_OF(&any, RAW_NCCL_LAUNCH, launch, number);
    l->group = group;
    l->comm = 1;
    raw_add(w, &any.top);
}

typedef struct Task {
    uint32_t call, launch, thread, peer;
    int64_t at_ns;
    const char *func, *dtype, *algorithm, *protocol;
    uint64_t count;
} Task;

static void put_task(RawWorld *w, Task x)
{
    RawAny any;
    uint32_t texts[4] = { raw_text(w, x.func), raw_text(w, x.dtype), 0, 0 };
    if (x.algorithm)
        texts[2] = raw_text(w, x.algorithm);
    if (x.protocol)
        texts[3] = raw_text(w, x.protocol);
    RawNcclTask *t = RAW_OF(&any, RAW_NCCL_TASK, task, x.call);
    t->at_ns = x.at_ns;
    t->count = x.count;
    t->launch = x.launch;
    t->comm = 1;
    t->func = texts[0];
    t->dtype = texts[1];
    t->algorithm = texts[2];
    t->protocol = texts[3];
    t->peer = x.peer;
    t->thread = x.thread;
    raw_add(w, &any.top);
}

static const Comm *comm_named(const Timeline *t, const char *span)
{
    static const Comm none;
    const Comm *c = timeline_comm_of(t, span_named(t, span));
    return CHECK(c != NULL) ? c : &none;
}

static void what_nccl_says_wins_over_the_kernels_name(void)
{
    RawWorld w = raw_world();
    put_comm(&w, 1, 0xabcd, 0, 8);
    put_call(&w, 1, 1, "AllGather", "ncclBfloat16", 1000);
    put_launch(&w, 1, 1);
    raw_label(&w, RAW_LAUNCH, 21, 1);
    /* NCCL gathers bytes; the call knows what the program meant. */
    put_task(&w,
             (Task){ 1, 1, 3, NONE_U32, 0, "AllGather", "ncclInt8", "NVLS", "SIMPLE", 2000 });
    raw_kernel_of(&w, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7, 100, 200, 21, 0);
    Read r = read_world(&w, NULL);
    const Comm *c = comm_named(&r.t, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    CHECK_STR("all_gather", timeline_text(&r.t, c->op));
    CHECK_STR("bf16", timeline_text(&r.t, c->dtype));
    CHECK_U64(1000 * 2 * 8, c->bytes); /* as nccl-tests counts: all ranks' parts */
    CHECK_STR("nvls", timeline_text(&r.t, c->algorithm));
    CHECK_STR("Simple", timeline_text(&r.t, c->protocol));
    CHECK_INT(8, c->ranks_n);
    CHECK_INT(0, c->seq);
    CHECK_STR("nccl", timeline_text(&r.t, c->group));
    CHECK_INT(SPAN_COMM, r.t.span_class[0]);
    CHECK_U64(1, r.info.nccl_n);
    timeline_free(&r.t);
}

static void without_nccls_word_the_name_says_the_collective_and_nothing_more(void)
{
    RawWorld w = raw_world();
    raw_kernel(&w, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7, 100, 200);
    raw_kernel(&w, "nccl_other", 7, 300, 400);
    Read r = read_world(&w, NULL);
    const Comm *c = comm_named(&r.t, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    CHECK_STR("all_reduce", timeline_text(&r.t, c->op));
    CHECK_INT(NONE_U32, c->algorithm);
    CHECK_INT(NONE_U32, c->protocol);
    CHECK_U64(NONE_U64, c->bytes);
    CHECK_STR("collective", timeline_text(&r.t, comm_named(&r.t, "nccl_other")->op));
    CHECK_U64(2, r.info.comm_kernels_n);
    CHECK_U64(0, r.info.nccl_n);
    timeline_free(&r.t);
}

static void calls_that_share_a_kernel_are_one_bigger_collective(void)
{
    RawWorld w = raw_world();
    put_comm(&w, 1, 1, 0, 4);
    put_call(&w, 1, 1, "AllReduce", "ncclFloat32", 100);
    put_call(&w, 2, 1, "AllReduce", "ncclFloat32", 300);
    put_launch(&w, 1, 1);
    raw_label(&w, RAW_LAUNCH, 21, 1);
    put_task(&w, (Task){ 1, 1, 3, NONE_U32, 0, "AllReduce", "ncclFloat32", "RING", "LL", 100 });
    put_task(&w,
             (Task){ 2, 1, 3, NONE_U32, 0, "AllReduce", "ncclFloat32", "RING", "LL128", 300 });
    raw_kernel_of(&w, "ncclA", 7, 100, 200, 21, 0);

    put_call(&w, 3, 2, "Send", "ncclFloat16", 50);
    put_call(&w, 4, 2, "Recv", "ncclFloat16", 60);
    put_launch(&w, 2, 2);
    raw_label(&w, RAW_LAUNCH, 22, 2);
    put_task(&w, (Task){ 4, 2, 3, 2, 0, "Recv", "ncclFloat16", NULL, NULL, 60 });
    put_task(&w, (Task){ 3, 2, 3, 2, 0, "Send", "ncclFloat16", NULL, NULL, 50 });
    raw_kernel_of(&w, "ncclB", 7, 300, 400, 22, 0);
    Read r = read_world(&w, NULL);
    const Comm *c = comm_named(&r.t, "ncclA");
    CHECK_U64(1600, c->bytes);
    CHECK_STR("ring", timeline_text(&r.t, c->algorithm));
    CHECK_INT(NONE_U32, c->protocol); /* they differ */
    c = comm_named(&r.t, "ncclB");
    CHECK_STR("send_recv", timeline_text(&r.t, c->op));
    CHECK_U64(100, c->bytes); /* what is sent */
    CHECK_INT(2, c->peer);
    CHECK_INT(NONE_U32, c->seq);
    CHECK_INT(SPAN_P2P, r.t.span_class[span_named(&r.t, "ncclB")]);
    timeline_free(&r.t);
}

static void collectives_are_numbered_on_their_communicator_without_sends(void)
{
    RawWorld w = raw_world();
    static const char *const funcs[] = { "AllReduce", "Send", "AllGather", "AllReduce" };
    static const char *const names[] = { "nccl0", "nccl1", "nccl2", "nccl3" };
    put_comm(&w, 1, 1, 0, 4);
    for (uint32_t i = 0; i < 4; i++) {
        put_call(&w, i + 1, i + 1, funcs[i], "ncclFloat32", 10);
        put_launch(&w, i + 1, i + 1);
        raw_label(&w, RAW_LAUNCH, 30 + i, i + 1);
        raw_kernel_of(&w, names[i], 7, 100 + 100 * i, 150 + 100 * i, 30 + i, 0);
    }
    Read r = read_world(&w, NULL);
    CHECK_INT(0, comm_named(&r.t, "nccl0")->seq);
    CHECK_INT(NONE_U32, comm_named(&r.t, "nccl1")->seq);
    CHECK_INT(1, comm_named(&r.t, "nccl2")->seq);
    CHECK_INT(2, comm_named(&r.t, "nccl3")->seq);
    timeline_free(&r.t);
}

static void a_captured_collective_is_known_at_every_replay(void)
{
    RawWorld w = raw_world();
    RawAny any;
    put_comm(&w, 1, 1, 0, 4);
    put_call(&w, 1, 1, "ReduceScatter", "ncclFloat32", 10);
    put_launch(&w, 1, 1);
    RawNode *node = RAW_OF(&any, RAW_NODE, node, RAW_LAUNCH);
    node->node = 50;
    node->id = 1;
    raw_add(&w, &any.top);
    /* Each replay says it again, on a thread that launched nothing. */
    for (int i = 0; i < 2; i++) {
        put_task(&w, (Task){ 1, 0, 9, NONE_U32, 150 + 100 * i, "ReduceScatter", "ncclFloat32",
                             "RING", "SIMPLE", 10 });
        raw_kernel_of(&w, i ? "ncclY" : "ncclX", 7, 200 + 100 * i, 250 + 100 * i, 3, 50);
    }
    Read r = read_world(&w, NULL);
    for (int i = 0; i < 2; i++) {
        const Comm *c = comm_named(&r.t, i ? "ncclY" : "ncclX");
        CHECK_STR("reduce_scatter", timeline_text(&r.t, c->op));
        CHECK_U64(160, c->bytes); /* once, not once per replay */
        CHECK_STR("ring", timeline_text(&r.t, c->algorithm));
        CHECK_INT(NONE_U32, c->seq);
    }
    timeline_free(&r.t);
}

static void older_nccl_names_no_launch_so_the_threads_last_kernel_is_meant(void)
{
    RawWorld w = raw_world();
    put_comm(&w, 1, 1, 0, 2);
    raw_call(&w, "cuLaunchKernelEx", 3, 100, 110, 61);
    put_task(&w, (Task){ 0, 0, 3, NONE_U32, 120, "Broadcast", "ncclFloat32", "TREE", "LL", 5 });
    raw_call(&w, "cuLaunchKernelEx", 3, 200, 210, 62);
    put_task(&w, (Task){ 0, 0, 3, NONE_U32, 220, "AllReduce", "ncclFloat32", "RING", "LL", 6 });
    raw_call(&w, "cuLaunchKernelEx", 4, 215, 219, 63); /* another thread */
    raw_kernel_of(&w, "nccl2", 7, 400, 500, 62, 0);
    raw_kernel_of(&w, "nccl1", 7, 300, 400, 61, 0);
    raw_kernel_of(&w, "nccl3", 8, 300, 400, 63, 0);
    Read r = read_world(&w, NULL);
    CHECK_STR("broadcast", timeline_text(&r.t, comm_named(&r.t, "nccl1")->op));
    CHECK_U64(20, comm_named(&r.t, "nccl1")->bytes);
    CHECK_STR("tree", timeline_text(&r.t, comm_named(&r.t, "nccl1")->algorithm));
    CHECK_STR("all_reduce", timeline_text(&r.t, comm_named(&r.t, "nccl2")->op));
    CHECK_U64(24, comm_named(&r.t, "nccl2")->bytes);
    CHECK_INT(1, comm_named(&r.t, "nccl2")->seq);
    CHECK_STR("collective", timeline_text(&r.t, comm_named(&r.t, "nccl3")->op));
    CHECK_U64(2, r.info.nccl_n);
    timeline_free(&r.t);
}

static void peers_become_ranks_of_the_world(void)
{
    RecordsMembers members = { .n = 0 };
    Timeline t = { .ranks_n = 8 };
    RecordsInfo info;
    Err err;
    /* Ranks 4 and 6 of eight are members 0 and 1 of a communicator; 0 sends to 1. */
    for (uint32_t member = 0; member < 2; member++) {
        RawWorld w = raw_world();
        const RecordsOptions o = { .rank = 4 + 2 * member, .members = &members };
        put_comm(&w, 1, 0x77, member, 2);
        put_call(&w, 1, 1, member ? "Recv" : "Send", "ncclInt8", 10);
        put_launch(&w, 1, 1);
        raw_label(&w, RAW_LAUNCH, 30, 1);
        put_task(&w, (Task){ 1, 1, 3, 1 - member, 0, member ? "Recv" : "Send", "ncclInt8", NULL,
                             NULL, 10 });
        raw_kernel_of(&w, member ? "ncclR" : "ncclS", 7, 100, 150, 30, 0);
        CHECK(raw_read(&w, &t, &info, &o, &err));
    }
    records_settle_peers(&t, &members);
    timeline_seal(&t);
    CHECK_INT(6, comm_named(&t, "ncclS")->peer);
    CHECK_INT(4, comm_named(&t, "ncclR")->peer);
    CHECK(comm_named(&t, "ncclS")->group_id == comm_named(&t, "ncclR")->group_id);
    timeline_free(&t);
    free(members.member);
}

/* ---- clocks ---- */

static void times_follow_the_line_through_the_first_and_the_last_clock(void)
{
    RawWorld w = raw_world();
    const int64_t hour_ns = (int64_t)3600 * 1000000000;
    const int64_t wall_ns = (int64_t)1790000000 * 1000000000;
    /* 20 parts in a million: 72 ms an hour. */
    raw_clock(&w, hour_ns, wall_ns);
    raw_clock(&w, 2 * hour_ns, wall_ns + hour_ns + hour_ns / 50000);
    raw_kernel(&w, "k", 7, hour_ns + hour_ns / 2, hour_ns + hour_ns / 2 + 1000);
    Read r = read_world(&w, NULL);
    CHECK_INT(wall_ns + hour_ns / 2 + hour_ns / 100000, r.t.start_ns[0]);
    CHECK_INT(1000, r.t.dur_ns[0]);
    CHECK_NEAR(2e-5, r.info.drift, 1e-6);
    CHECK_U64(0, r.info.findings_n);
    timeline_free(&r.t);

    const RecordsOptions o = { .rank = 0, .monotonic = true };
    r = read_world(&w, &o);
    CHECK_INT(hour_ns + hour_ns / 2 + 7, r.t.start_ns[0]);
    timeline_free(&r.t);
}

static void a_clock_that_was_set_meanwhile_is_not_believed_and_said(void)
{
    RawWorld w = raw_world();
    raw_clock(&w, 1000000000, 5000000000);
    raw_clock(&w, 2000000000, 9000000000); /* one second took four */
    raw_kernel(&w, "k", 7, 2000000000, 2000000100);
    Read r = read_world(&w, NULL);
    CHECK_INT(6000000000, r.t.start_ns[0]);
    CHECK_U64(1, r.info.findings_n);
    CHECK(strstr(r.info.finding[0], "the clock was set while it recorded, by 3.000 s") != NULL);
    timeline_free(&r.t);
}

static void without_any_clock_times_stay_and_a_finding_says_so(void)
{
    RawWorld w = raw_world();
    raw_kernel(&w, "k", 7, 100, 200);
    raw_head(&w)->flags = 0;
    Read r = read_world(&w, NULL);
    CHECK_INT(100, r.t.start_ns[0]);
    CHECK_U64(2, r.info.findings_n);
    CHECK(strstr(r.info.finding[0], "process 100 did not end in order") != NULL);
    CHECK(strstr(r.info.finding[1], "says nothing about clocks") != NULL);
    timeline_free(&r.t);
}

static void records_without_a_time_are_counted_and_left_out(void)
{
    RawWorld w = raw_world();
    raw_clock(&w, 1, 1);
    raw_kernel(&w, "lost", 7, 0, 0);
    raw_kernel(&w, "half", 7, 100, 0);
    raw_kernel(&w, "absurd", 7, INT64_MAX - 5, INT64_MAX);
    raw_kernel(&w, "backwards", 7, 300, 200);
    Read r = read_world(&w, NULL);
    CHECK_U64(1, r.t.spans_n);
    CHECK_INT(0, r.t.dur_ns[0]); /* an end before the start counts as the start */
    CHECK_U64(3, r.info.untimed_n);
    CHECK(strstr(r.info.finding[0], "3 kernels or copies have no time") != NULL);
    timeline_free(&r.t);
}

/* ---- the head ---- */

static void losses_and_troubles_are_said(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1, 1);
    raw_head(&w)->dropped_n = 12;
    raw_head(&w)->unwritten_n = 34;
    raw_head(&w)->write_errno = 28; /* ENOSPC */
    raw_head(&w)->signal = 11;
    uint32_t text = raw_text(&w, "another tool is attached to CUPTI");
    (void)RAW_OF(&any, RAW_TROUBLE, trouble, text);
    raw_add(&w, &any.top);
    Read r = read_world(&w, NULL);
    CHECK_U64(3, r.info.findings_n);
    CHECK(strstr(r.info.finding[0], "No space left on device): 34 records are lost") != NULL);
    CHECK(strstr(r.info.finding[1], "CUPTI dropped 12 records") != NULL);
    CHECK(strstr(r.info.finding[2], "ended by signal 11 (Segmentation fault)") != NULL);
    CHECK_STR("another tool is attached to CUPTI", r.info.trouble);
    timeline_free(&r.t);
}

static void files_that_are_no_recordings_are_refused(void)
{
    RawWorld w = raw_world();
    Timeline t = { 0 };
    RecordsInfo info;
    Err err;
    w.n = 300;
    CHECK(!raw_read(&w, &t, &info, NULL, &err));
    CHECK_ERR_TEXT(&err, "'x.lsraw' ends within its head, after 300 bytes");
    w.n = 5;
    CHECK(!raw_read(&w, &t, &info, NULL, &err));
    CHECK_ERR_TEXT(&err, "'x.lsraw' is no recording of the collector");
    w = raw_world();
    raw_head(&w)->byte_order = 0x04030201;
    CHECK(!raw_read(&w, &t, &info, NULL, &err));
    CHECK_ERR_TEXT(&err, "was recorded on a machine of the other byte order");
    w = raw_world();
    raw_head(&w)->version = 2;
    CHECK(!raw_read(&w, &t, &info, NULL, &err));
    CHECK_ERR_TEXT(&err, "is a recording of version 2, version 1 is read");
    w = raw_world();
    w.bytes[3] = 'x';
    CHECK(!raw_read(&w, &t, &info, NULL, &err));
    CHECK_ERR_TEXT(&err, "is no recording of the collector");
}

static void a_file_on_disk_reads_as_in_memory(void)
{
    char path[] = P_tmpdir "/lockstep-raw-XXXXXX";
    RawWorld w = raw_world();
    RawHead head;
    Timeline t = { 0 };
    RecordsInfo info;
    Err err = { 0 };
    const RecordsOptions o = { .rank = 1 };
    raw_clock(&w, 1, 1);
    raw_kernel(&w, "k", 7, 100, 200);
    int fd = mkstemp(path);
    CHECK(write(fd, w.bytes, w.n) == (ssize_t)w.n);
    bool idle = true;
    CHECK(records_head(&head, &idle, path, &err));
    CHECK(!idle);
    CHECK_INT(100, head.pid);
    CHECK(ftruncate(fd, RAW_HEAD_BYTES + sizeof(RawClock)) == 0);
    CHECK(records_head(&head, &idle, path, &err));
    CHECK(idle);
    CHECK(pwrite(fd, w.bytes, w.n, 0) == (ssize_t)w.n);
    CHECK(records_read(&t, &info, path, &o, &err));
    CHECK_U64(1, t.spans_n);
    timeline_free(&t);
    CHECK(ftruncate(fd, 4) == 0);
    CHECK(!records_read(&t, &info, path, &o, &err));
    CHECK_ERR_TEXT(&err, "is no recording of the collector");
    close(fd);
    unlink(path);
    err = (Err){ 0 };
    CHECK(!records_head(&head, &idle, path, &err));
    CHECK_ERR_TEXT(&err, "No such file or directory");
}

/* ---- damage ---- */

/* One of every kind that is joined with others. */
static RawWorld full_world(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1, 1000);
    put_comm(&w, 1, 1, 0, 4);
    put_call(&w, 1, 1, "AllReduce", "ncclFloat32", 100);
    put_launch(&w, 1, 1);
    raw_label(&w, RAW_LAUNCH, 21, 1);
    put_task(&w, (Task){ 1, 1, 3, NONE_U32, 9, "AllReduce", "ncclFloat32", "RING", "LL", 100 });
    put_task(&w, (Task){ 0, 0, 3, NONE_U32, 120, "Broadcast", "ncclFloat32", "TREE", "LL", 5 });
    raw_call(&w, "cudaLaunchKernel", 3, 50, 60, 21);
    raw_kernel_of(&w, "ncclA", 7, 100, 200, 21, 0);
    RawNode *node = RAW_OF(&any, RAW_NODE, node, RAW_OP);
    node->node = 50;
    raw_add(&w, &any.top);
    (void)RAW_OF(&any, RAW_CLONE, clone, 0);
    raw_add(&w, &any.top);
    raw_kernel_of(&w, "gemm", 7, 300, 400, 2, 50);
    put_mark(&w, "step 1", 1, RAW_MARK_START, 10);
    put_mark(&w, NULL, 1, RAW_MARK_END, 500);
    (void)RAW_OF(&any, RAW_DEVICE, device, 0);
    any.device.name = 1;
    raw_add(&w, &any.top);
    raw_clock(&w, 1000, 2000);
    return w;
}

static void every_cut_gives_what_came_before_it(void)
{
    const RawWorld whole = full_world();
    Read all = read_world(&whole, NULL);
    CHECK(!all.info.cut_short);
    uint64_t last_n = 0;
    for (uint64_t n = RAW_HEAD_BYTES; n < whole.n; n++) {
        RawWorld w = whole;
        w.n = n;
        Read r = read_world(&w, NULL);
        if (!CHECK(r.ok && r.t.spans_n >= last_n && r.t.spans_n <= all.t.spans_n))
            break;
        CHECK(n % 8 == 0 || r.info.cut_short);
        last_n = r.t.spans_n;
        timeline_free(&r.t);
    }
    timeline_free(&all.t);
}

/* Each 32-bit word of the file becomes something else: read or refused, never a crash. */
static void no_changed_word_breaks_the_reader(void)
{
    static const uint32_t words[] = { 0, 1, 7, 0xff, 0x7fffffff, 0x80000000, 0xffffffff };
    const RawWorld whole = full_world();
    uint64_t read_n = 0;
    for (uint64_t at = 0; at + 4 <= whole.n; at += 4)
        for (size_t k = 0; k < ARRAY_N(words); k++) {
            RawWorld w = whole;
            memcpy(w.bytes + at, &words[k], 4);
            Read r = read_world(&w, NULL);
            CHECK(r.ok || r.err.set);
            read_n += r.ok;
            timeline_free(&r.t);
        }
    CHECK(read_n > 1000);
}

static void nonsense_in_the_middle_ends_the_reading_with_a_finding(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1, 1);
    raw_kernel(&w, "before", 7, 100, 200);
    uint64_t at = w.n;
    (void)RAW_OF(&any, RAW_KERNEL, kernel, 1);
    any.top.bytes = 16; /* shorter than a kernel is */
    raw_add(&w, &any.top);
    raw_kernel(&w, "behind", 7, 300, 400);
    Read r = read_world(&w, NULL);
    CHECK_U64(1, r.t.spans_n);
    CHECK(r.info.cut_short);
    char expect[120];
    snprintf(expect, sizeof expect, "ends in the middle of a record, at byte %" PRIu64, at);
    CHECK(strstr(r.info.finding[0], expect) != NULL);
    timeline_free(&r.t);
}

static void kinds_that_are_not_known_yet_are_skipped(void)
{
    RawWorld w = raw_world();
    RawAny any;
    raw_clock(&w, 1, 1);
    (void)RAW_OF(&any, RAW_KIND_N + 5, sync, 1);
    raw_add(&w, &any.top);
    raw_kernel(&w, "behind", 7, 300, 400);
    Read r = read_world(&w, NULL);
    CHECK_U64(1, r.t.spans_n);
    CHECK_U64(1, r.info.unknown_n);
    CHECK(!r.info.cut_short);
    timeline_free(&r.t);
}

int main(void)
{
    RUN(kernels_know_how_they_were_launched);
    RUN(what_ran_on_the_gpu_stands_on_its_stream);
    RUN(calls_stand_on_their_threads_by_name_launch_or_wait);
    RUN(nvtx_ranges_are_notes_and_numbered_steps_are_steps);
    RUN(what_began_too_early_is_left_out);
    RUN(waits_and_overhead_have_tracks_of_their_own);
    RUN(recording_costs_what_it_takes_while_the_gpu_works);
    RUN(a_label_reaches_the_kernel_whatever_comes_first);
    RUN(of_labels_with_one_number_the_nearest_in_the_file_is_meant);
    RUN(kernels_of_a_graph_have_the_label_of_the_node_they_are_copies_of);
    RUN(ranks_that_are_threads_of_one_process_come_apart_by_their_ops);
    RUN(the_rank_is_the_callers_else_the_heads_else_none);
    RUN(what_nccl_says_wins_over_the_kernels_name);
    RUN(without_nccls_word_the_name_says_the_collective_and_nothing_more);
    RUN(calls_that_share_a_kernel_are_one_bigger_collective);
    RUN(collectives_are_numbered_on_their_communicator_without_sends);
    RUN(a_captured_collective_is_known_at_every_replay);
    RUN(older_nccl_names_no_launch_so_the_threads_last_kernel_is_meant);
    RUN(peers_become_ranks_of_the_world);
    RUN(times_follow_the_line_through_the_first_and_the_last_clock);
    RUN(a_clock_that_was_set_meanwhile_is_not_believed_and_said);
    RUN(without_any_clock_times_stay_and_a_finding_says_so);
    RUN(records_without_a_time_are_counted_and_left_out);
    RUN(losses_and_troubles_are_said);
    RUN(files_that_are_no_recordings_are_refused);
    RUN(a_file_on_disk_reads_as_in_memory);
    RUN(every_cut_gives_what_came_before_it);
    RUN(no_changed_word_breaks_the_reader);
    RUN(nonsense_in_the_middle_ends_the_reading_with_a_finding);
    RUN(kinds_that_are_not_known_yet_are_skipped);
    return check_report();
}
