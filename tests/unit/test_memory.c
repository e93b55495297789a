/*
 * test_memory.c - peaks of hand-made programs against closed forms.
 *
 * The program: parameters P and gradients G stay; a forward of micro-batch i
 * saves S bytes and needs T for a while, its backward frees them and needs U.
 *
 *     all forwards first (GPipe)     peak = P + G + m S + max(T, U)   (T <= U: at the first B)
 *     forward, backward in turn      peak = P + G +   S + max(T, U)
 */
#include "sim/build.h"
#include "sim/memory.h"
#include "tests/built.h"

enum { P = 1000, G = 500, S = 70, T = 11, U = 13, LAYERS_MAX = 8 };

typedef struct Toy {
    Graph g;
    Role *role;
    uint32_t forward, backward, stash_layout;
} Toy;

static uint32_t layout_of(Graph *g, const char *name, TensorClass class_, uint64_t bytes)
{
    uint32_t layout = graph_layout(g);
    graph_tensor(g,
                 (Tensor){ .name = intern(&g->names, name), .class_ = class_, .bytes = bytes });
    return layout;
}

static uint32_t kernel(Graph *g, const char *name, OpPhase phase)
{
    return graph_op(g, (Op){ .kind = OP_MATMUL,
                             .phase = phase,
                             .lane = LANE_COMPUTE,
                             .name = intern(&g->names, name),
                             .flops = 10,
                             .model_flops = 10 });
}

/* Three ops each: before, the one that needs the temporary, after. */
static uint32_t segment(Toy *t, SegmentKind kind, const char *name, uint64_t temporary)
{
    Graph *g = &t->g;
    uint32_t local = layout_of(g, "temporary", TENSOR_BUFFER, temporary);
    uint32_t s = graph_segment(g, kind, name);
    g->segments[s].layout[SLOT_LOCAL] = local;
    g->segments[s].layout[SLOT_STASH] = t->stash_layout;
    OpPhase phase = kind == SEGMENT_FORWARD ? PHASE_FORWARD : PHASE_DGRAD;
    kernel(g, "first", phase);
    if (kind == SEGMENT_FORWARD)
        graph_arg(g, SLOT_STASH, 0, ARG_WRITE, true, false);
    kernel(g, "middle", phase);
    graph_arg(g, SLOT_LOCAL, 0, ARG_WRITE, true, true);
    kernel(g, "last", phase);
    if (kind == SEGMENT_BACKWARD)
        graph_arg(g, SLOT_STASH, 0, ARG_READ, false, true);
    return s;
}

static void toy_open(Toy *t)
{
    Graph *g = &t->g;
    *t = (Toy){
        .g = { .world_n = 1, .role_stride = 1, .role_extent = 1, .host_group = NONE_U32 }
    };
    g->role_of = mem_zero(1, sizeof *g->role_of);
    g->replica = (GroupDim){ 1, 1, 1, 1 };
    uint32_t params = layout_of(g, "weight", TENSOR_PARAM, P);
    uint32_t grads = layout_of(g, "weight", TENSOR_GRAD, G);
    t->stash_layout = layout_of(g, "saved", TENSOR_ACTIVATION, S);
    t->forward = segment(t, SEGMENT_FORWARD, "forward", T);
    t->backward = segment(t, SEGMENT_BACKWARD, "backward", U);
    graph_role(g, "all", 0);
    t->role = &g->roles[0];
    role_frame(t->role, (Frame){ params, 0, true });
    role_frame(t->role, (Frame){ grads, 0, true });
}

/* A frame that no instance uses yet. */
static uint32_t stash(Toy *t, uint32_t layer)
{
    return role_frame(t->role, (Frame){ t->stash_layout, layer, false });
}

static void run(Toy *t, uint32_t what, uint32_t layer, uint32_t micro_batch, uint32_t frame)
{
    uint32_t i = role_instance(t->role, what, micro_batch, layer, 0);
    t->role->instances[i].frame[SLOT_STASH] = frame;
}

static void all_forwards_first(Toy *t, uint32_t m)
{
    uint32_t frame[LAYERS_MAX];
    for (uint32_t i = 0; i < m; i++)
        run(t, t->forward, 0, i, frame[i] = stash(t, 0));
    for (uint32_t i = m; i-- > 0;)
        run(t, t->backward, 0, i, frame[i]);
    graph_seal(&t->g);
}

static void in_turn(Toy *t, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++) {
        uint32_t frame = stash(t, 0);
        run(t, t->forward, 0, i, frame);
        run(t, t->backward, 0, i, frame);
    }
    graph_seal(&t->g);
}

/* ---- peaks ---- */

static void all_forwards_first_hold_every_stash(void)
{
    for (uint32_t m = 1; m <= LAYERS_MAX; m++) {
        Toy t;
        toy_open(&t);
        all_forwards_first(&t, m);
        RoleMemory r = memory_of_role(&t.g, t.role, NULL);
        CHECK_U64(P + G + m * S + U, r.peak_bytes);
        CHECK_U64(m, r.peak_instance); /* the first backward */
        CHECK_U64(1, r.peak_op);
        graph_free(&t.g);
    }
}

static void forward_and_backward_in_turn_hold_one_stash(void)
{
    for (uint32_t m = 1; m <= LAYERS_MAX; m++) {
        Toy t;
        toy_open(&t);
        in_turn(&t, m);
        RoleMemory r = memory_of_role(&t.g, t.role, NULL);
        CHECK_U64(P + G + S + U, r.peak_bytes);
        CHECK_U64(1, r.peak_instance);
        graph_free(&t.g);
    }
}

static void classes_sum_to_the_peak(void)
{
    Toy t;
    toy_open(&t);
    all_forwards_first(&t, 3);
    RoleMemory r = memory_of_role(&t.g, t.role, NULL);
    CHECK_U64(P, r.at_peak[TENSOR_PARAM]);
    CHECK_U64(G, r.at_peak[TENSOR_GRAD]);
    CHECK_U64(0, r.at_peak[TENSOR_OPTIMIZER]);
    CHECK_U64(3 * S, r.at_peak[TENSOR_ACTIVATION]);
    CHECK_U64(U, r.at_peak[TENSOR_BUFFER]);
    CHECK_U64(P, r.resident[TENSOR_PARAM]);
    CHECK_U64(G, r.resident[TENSOR_GRAD]);
    CHECK_U64(0, r.resident[TENSOR_ACTIVATION]);
    graph_free(&t.g);
}

static void a_role_without_births_peaks_at_its_residents(void)
{
    Toy t;
    toy_open(&t);
    graph_seal(&t.g);
    Arena arena = { 0 };
    RoleMemory r = memory_of_role(&t.g, t.role, &arena);
    CHECK_U64(P + G, r.peak_bytes);
    CHECK_U64(NONE_U32, r.peak_instance);
    CHECK_U64(NONE_U32, r.peak_op);
    CHECK_U64(P + G, r.before[0]);
    MemoryDetail d = memory_detail(&t.g, t.role, &r, &arena);
    CHECK_U64(1, d.layers_n);
    CHECK_U64(2, d.tensors_n);
    arena_free(&arena);
    graph_free(&t.g);
}

static void before_is_what_the_instances_leave(void)
{
    Toy t;
    Arena arena = { 0 };
    toy_open(&t);
    all_forwards_first(&t, 3);
    RoleMemory r = memory_of_role(&t.g, t.role, &arena);
    const uint64_t stashes[] = { 0, 1, 2, 3, 2, 1, 0 };
    for (size_t i = 0; i < ARRAY_N(stashes); i++)
        CHECK_U64(P + G + stashes[i] * S, r.before[i]);
    arena_free(&arena);
    graph_free(&t.g);
}

/* ---- detail ---- */

static void layers_and_tensors_each_sum_to_the_peak(void)
{
    Toy t;
    Arena arena = { 0 };
    toy_open(&t);
    uint32_t frame[3];
    for (uint32_t layer = 0; layer < 3; layer++)
        run(&t, t.forward, layer, 0, frame[layer] = stash(&t, layer));
    for (uint32_t layer = 3; layer-- > 0;)
        run(&t, t.backward, layer, 0, frame[layer]);
    graph_seal(&t.g);
    RoleMemory r = memory_of_role(&t.g, t.role, NULL);
    MemoryDetail d = memory_detail(&t.g, t.role, &r, &arena);

    CHECK_U64(3, d.layers_n); /* parameters are layer 0's, the temporary layer 2's */
    CHECK_U64(P, d.layers[0].bytes[TENSOR_PARAM]);
    for (uint32_t layer = 0; layer < 3; layer++) {
        CHECK_U64(layer, d.layers[layer].layer);
        CHECK_U64(S, d.layers[layer].bytes[TENSOR_ACTIVATION]);
        CHECK_U64(layer == 2 ? U : 0, d.layers[layer].bytes[TENSOR_BUFFER]);
    }
    CHECK_U64(4, d.tensors_n);
    CHECK_STR("weight", intern_text(&t.g.names, d.tensors[0].name));
    CHECK_U64(P, d.tensors[0].bytes);
    CHECK_U64(TENSOR_GRAD, d.tensors[1].class_);
    CHECK_STR("saved", intern_text(&t.g.names, d.tensors[2].name));
    CHECK_U64(3, d.tensors[2].count);
    CHECK_U64(3 * S, d.tensors[2].bytes);
    CHECK_STR("temporary", intern_text(&t.g.names, d.tensors[3].name));
    arena_free(&arena);
    graph_free(&t.g);
}

/* What a frame without a layer holds (buckets) stands last. */
static void what_has_no_layer_stands_last(void)
{
    Toy t;
    Arena arena = { 0 };
    toy_open(&t);
    uint32_t buckets = layout_of(&t.g, "bucket", TENSOR_BUFFER, 5000);
    role_frame(t.role, (Frame){ buckets, NONE_U32, true });
    in_turn(&t, 1);
    RoleMemory r = memory_of_role(&t.g, t.role, NULL);
    MemoryDetail d = memory_detail(&t.g, t.role, &r, &arena);
    CHECK_U64(2, d.layers_n);
    CHECK_U64(NONE_U32, d.layers[1].layer);
    CHECK_U64(5000, d.layers[1].bytes[TENSOR_BUFFER]);
    CHECK_STR("bucket", intern_text(&t.g.names, d.tensors[0].name));
    arena_free(&arena);
    graph_free(&t.g);
}

/* ---- what a GPU holds beside it ---- */

typedef struct ToyMachine {
    Machine m;
    NodeType type;
    Gpu gpu;
} ToyMachine;

static void machine_open(ToyMachine *t, uint32_t nodes, uint32_t gpus, IntraKind intra)
{
    *t = (ToyMachine){ 0 };
    t->gpu.memory_bytes = 80 * GIB;
    t->type = (NodeType){
        .count = nodes, .gpus_n = gpus, .gpu = &t->gpu, .intra = { .kind = intra }
    };
    t->m = (Machine){ .nodes_n = nodes,
                      .gpus_n = nodes * gpus,
                      .types_n = 1,
                      .types = &t->type,
                      .inter = { .nics_per_node = 4 } };
}

/* world ranks; one all-reduce over all of them when with_comm. */
static void add_world(Toy *t, uint32_t world, bool with_comm)
{
    t->g.world_n = world;
    GroupDim all = { 1, world, 1, world }, alone = { 1, 1, 1, 1 };
    uint32_t group = graph_group(&t->g, "dp", &all, 1);
    uint32_t one = graph_group(&t->g, "tp", &alone, 1);
    uint32_t s = graph_segment(&t->g, SEGMENT_REDUCE, "reduce");
    graph_op(&t->g, (Op){ .kind = OP_ALL_REDUCE, .lane = LANE_REDUCE, .u.comm.group = one });
    if (with_comm)
        graph_op(&t->g,
                 (Op){ .kind = OP_ALL_REDUCE, .lane = LANE_REDUCE, .u.comm.group = group });
    for (int times = 0; times < 2; times++) /* one communicator, however often used */
        role_instance(t->role, s, NONE_U32, NONE_U32, NONE_U32);
}

/* planned: where tensors lie is planned ahead. */
static MemoryExtra extra_planned(uint32_t nodes, uint32_t gpus, IntraKind intra, bool ideal,
                                 bool with_comm, bool planned)
{
    Toy t;
    ToyMachine on;
    toy_open(&t);
    machine_open(&on, nodes, gpus, intra);
    on.m.ideal_collectives = ideal;
    add_world(&t, nodes * gpus, with_comm);
    in_turn(&t, 1);
    RoleMemory r = memory_of_role(&t.g, t.role, NULL);
    CHECK_U64(0, memory_extra(&t.g, t.role, &r, &on.m, 0).fragmentation_bytes);
    memory_replay(&r, &t.g, t.role, &on.m, &(Software){ .planned_memory = planned });
    MemoryExtra x = memory_extra(&t.g, t.role, &r, &on.m, 0);
    CHECK_U64(r.peak_bytes + x.context_bytes + x.comm_bytes + x.fragmentation_bytes,
              memory_reserved_bytes(&r, &x));
    graph_free(&t.g);
    return x;
}

static MemoryExtra extra_of(uint32_t nodes, uint32_t gpus, IntraKind intra, bool ideal,
                            bool with_comm)
{
    return extra_planned(nodes, gpus, intra, ideal, with_comm, false);
}

/* 4 MiB Simple + 512 KiB LL + 4.9 MB LL128 a channel. */
#define CHANNEL ((uint64_t)4194304 + 524288 + 4915200)

static void communicators_cost_buffers_per_channel(void)
{
    CHECK_U64(24 * CHANNEL, extra_of(1, 8, INTRA_NVSWITCH, false, true).comm_bytes);
    CHECK_U64(12 * CHANNEL, extra_of(1, 8, INTRA_NVLINK_MESH, false, true).comm_bytes);
    CHECK_U64(2 * CHANNEL, extra_of(1, 2, INTRA_PCIE, false, true).comm_bytes);
    CHECK_U64(8 * CHANNEL, extra_of(2, 8, INTRA_NVSWITCH, false, true).comm_bytes); /* 4 NICs */
    CHECK_U64(0, extra_of(1, 8, INTRA_NVSWITCH, false, false).comm_bytes);
}

static void context_and_fragmentation_count_too(void)
{
    MemoryExtra x = extra_of(1, 1, INTRA_NONE, false, false);
    CHECK_U64(512 * MIB, x.context_bytes);
    CHECK_U64(2 * MIB - (P + G + S + U),
              x.fragmentation_bytes); /* one segment of small blocks */
    x = extra_planned(1, 1, INTRA_NONE, false, false, true);
    CHECK_U64((uint64_t)(0.05 * (S + U)), x.fragmentation_bytes);
}

static void ideal_machines_and_cpus_hold_nothing_beside(void)
{
    MemoryExtra ideal = extra_of(1, 8, INTRA_NVSWITCH, true, true);
    CHECK_U64(0, ideal.context_bytes + ideal.comm_bytes + ideal.fragmentation_bytes);
    MemoryExtra cpu = extra_of(1, 8, INTRA_SHARED_MEMORY, false, true);
    CHECK_U64(0, cpu.context_bytes + cpu.comm_bytes + cpu.fragmentation_bytes);
}

/* ---- as a track ---- */

/* Every op takes 10 ns on the compute lane, one after another. */
static void spans_of(Timeline *t, const Role *role)
{
    t->ranks_n = 1;
    uint32_t host = timeline_track(t, 0, TRACK_HOST, "host", 0);
    uint32_t compute = timeline_track(t, 0, TRACK_STREAM, "compute", 1);
    uint32_t name = intern(&t->names, "op");
    for (uint32_t op = (uint32_t)role->ops_n; op-- > 0;) {
        timeline_span(t, (Span){ host, name, SPAN_LAUNCH, op, 1, op, NONE_U32 });
        timeline_span(
            t, (Span){ compute, name, SPAN_COMPUTE, 100 + 10 * (int64_t)op, 10, op, NONE_U32 });
    }
}

static const Track *counter_of(const Timeline *t)
{
    for (uint32_t i = 0; i < t->tracks_n; i++)
        if (t->tracks[i].kind == TRACK_COUNTER)
            return &t->tracks[i];
    return NULL;
}

static void the_track_steps_where_instances_start_and_end(void)
{
    Toy t;
    Arena arena = { 0 };
    Timeline line = { 0 };
    toy_open(&t);
    in_turn(&t, 1);
    RoleMemory r = memory_of_role(&t.g, t.role, &arena);
    spans_of(&line, t.role);
    memory_record(&line, &t.g, &r);
    timeline_seal(&line);
    const Track *k = counter_of(&line);
    const struct {
        int64_t at_ns;
        double bytes;
    } expect[] = { { 0, P + G },
                   { 100, P + G + S + T },
                   { 130, P + G + S },
                   { 130, P + G + S + U },
                   { 160, P + G } };
    if (!CHECK(k != NULL) || !CHECK_U64(ARRAY_N(expect), k->point_n))
        return;
    for (size_t i = 0; i < ARRAY_N(expect); i++) {
        CHECK_INT(expect[i].at_ns, line.point_ns[k->point_first + i]);
        CHECK_NEAR(expect[i].bytes, line.point_value[k->point_first + i], 0);
    }
    timeline_free(&line);
    arena_free(&arena);
    graph_free(&t.g);
}

static void the_highest_point_is_the_peak(void)
{
    Toy t;
    Arena arena = { 0 };
    Timeline line = { 0 };
    toy_open(&t);
    all_forwards_first(&t, 5);
    RoleMemory r = memory_of_role(&t.g, t.role, &arena);
    spans_of(&line, t.role);
    memory_record(&line, &t.g, &r);
    timeline_seal(&line);
    double highest = 0;
    for (uint64_t i = 0; i < line.points_n; i++)
        highest = fmax(highest, line.point_value[i]);
    CHECK_NEAR((double)r.peak_bytes, highest, 0);
    timeline_free(&line);
    arena_free(&arena);
    graph_free(&t.g);
}

/* A rank that has no spans here gets no track either. */
static void a_rank_without_a_compute_lane_has_no_track(void)
{
    Toy t;
    Arena arena = { 0 };
    Timeline line = { 0 };
    toy_open(&t);
    in_turn(&t, 1);
    RoleMemory r = memory_of_role(&t.g, t.role, &arena);
    memory_record(&line, &t.g, &r);
    CHECK(counter_of(&line) == NULL);
    timeline_free(&line);
    arena_free(&arena);
    graph_free(&t.g);
}

/* ---- graphs of real scenarios ---- */

/* After the step there is what was there before it, and each table sums to the peak. */
static void check_role(const Graph *g, const Role *role)
{
    Arena arena = { 0 };
    RoleMemory m = memory_of_role(g, role, &arena);
    MemoryDetail d = memory_detail(g, role, &m, &arena);
    uint64_t layers = 0, tensors = 0, classes = 0;
    for (uint32_t i = 0; i < d.layers_n; i++)
        for (int c = 0; c < TENSOR_CLASS_N; c++)
            layers += d.layers[i].bytes[c];
    for (uint32_t i = 0; i < d.tensors_n; i++)
        tensors += d.tensors[i].bytes;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        classes += m.at_peak[c];
    CHECK_U64(m.before[0], m.before[role->instances_n]);
    CHECK_U64(m.peak_bytes, layers);
    CHECK_U64(m.peak_bytes, tensors);
    CHECK_U64(m.peak_bytes, classes);
    arena_free(&arena);
}

static void check_scenario(const char *name, const Setting *settings, uint32_t settings_n)
{
    Scenario s;
    Software sw;
    Arena arena = { 0 };
    Graph g = { 0 };
    Err err = { 0 };
    if (CHECK(scenario_read(&s, name, settings, settings_n, &err))) {
        if (CHECK(software_read(&sw, &arena, s.software, &err)) &&
            CHECK(build_graph(&g, &s, &sw, &err)))
            for (uint32_t i = 0; i < g.roles_n; i++)
                check_role(&g, &g.roles[i]);
        scenario_free(&s);
    }
    CHECK_STR("", err.text);
    graph_free(&g);
    arena_free(&arena);
}

static void what_is_born_in_a_step_dies_in_it(void)
{
    static const char *const examples[] = { "toy-mlp-ddp",    "resnet50-ddp",  "gpt2-ddp",
                                            "llama3-8b-ddp",  "llama3-8b-tp",  "gpt3-175b-pp",
                                            "llama3-8b-fsdp", "llama3-405b-3d" };
    static const Setting full = { "training.recompute", "full" };
    for (size_t i = 0; i < ARRAY_N(examples); i++) {
        check_scenario(examples[i], NULL, 0);
        check_scenario(examples[i], &full, 1);
    }
}

/* f32 parameters beside bf16 kernels are f32 where nothing is gathered in bf16. */
static void shards_of_one_rank_are_kept_as_ddp_keeps_parameters(void)
{
    static const char *const strategies[] = { "ddp", "fsdp", "hsdp" };
    uint64_t resident[ARRAY_N(strategies)];
    for (size_t i = 0; i < ARRAY_N(strategies); i++) {
        const Setting set[] = { { "parallel.dp", "1" },
                                { "parallel.tp", "2" },
                                { "parallel.strategy", strategies[i] },
                                { "training.global_batch", "12" },
                                { "training.precision", "bf16" },
                                { "training.param_dtype", "f32" } };
        Built b;
        if (built_read(&b, "gpt2-ddp", set, ARRAY_N(set)))
            resident[i] = memory_of_role(&b.g, &b.g.roles[0], NULL).resident[TENSOR_PARAM];
        built_free(&b);
        CHECK_U64(resident[0], resident[i]);
    }
}

static uint64_t params_of(const char *precision, const char *software, const char *strategy)
{
    const Setting set[] = { { "training.precision", precision },
                            { "software", software },
                            { "parallel.strategy", strategy },
                            { "parallel.dp", "4" },
                            { "parallel.tp", "2" } };
    Built b;
    uint64_t bytes = 0;
    if (built_read(&b, "llama3-8b-fsdp", set, ARRAY_N(set)))
        bytes = memory_of_role(&b.g, &b.g.roles[0], NULL).resident[TENSOR_PARAM];
    built_free(&b);
    return bytes;
}

/* Two bytes more of each weight of a layer's matmuls, over tp; embedding and head stay bf16. */
static void fp8_weights_lie_beside_bf16_ones(void)
{
    uint64_t layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * (uint64_t)4096 * 14336;
    uint64_t wide = params_of("bf16", "megatron-core-2025", "zero1");
    CHECK_U64(wide + 32 * layer / 2 * 2, params_of("fp8", "megatron-core-2025", "zero1"));
    CHECK_U64(wide, params_of("fp8", "nemo-2025", "zero1")); /* the parameters themselves */
    CHECK_U64(params_of("bf16", "megatron-core-2025", "fsdp"),
              params_of("fp8", "megatron-core-2025", "fsdp"));
}

/* ---- many micro-batches ---- */

static const char *const shared_by[] = { "single", "ddp", "zero1", "zero2", "fsdp", "hsdp" };

/* What comes once a micro-batch says of which: others come once a step.  Of so many that the replay
 * leaves some out, it holds what it holds of few. */
static void more_micro_batches_need_no_more(void)
{
    for (size_t i = 0; i < ARRAY_N(shared_by); i++) {
        uint32_t outside[2] = { 0 };
        uint64_t bytes[2] = { 0 };
        for (int many = 0; many < 2; many++) {
            bool alone = strcmp(shared_by[i], "single") == 0;
            const Setting settings[] = {
                { "software", "fms-fsdp-2024" },
                { "parallel.strategy", shared_by[i] },
                { "parallel.dp", alone ? "1" : "4" },
                { "parallel.shard_size", alone ? "null" : "2" },
                { "training.global_batch", alone  ? many ? "200" : "16"
                                           : many ? "800"
                                                  : "64" },
                { "training.micro_batch", "1" },
                { "training.recompute", "full" },
                { "model.num_hidden_layers", "12" },
            };
            Built b;
            if (built_read(&b, "llama3-8b-fsdp", settings, ARRAY_N(settings))) {
                const Role *role = &b.g.roles[0];
                RoleMemory m = memory_of_role(&b.g, role, NULL);
                memory_replay(&m, &b.g, role, &b.s.machine, &b.sw);
                bytes[many] = m.pool_bytes;
                for (uint32_t k = 0; k < role->instances_n; k++)
                    outside[many] += role->instances[k].micro_batch == NONE_U32;
            }
            built_free(&b);
        }
        CHECK_U64(outside[0], outside[1]);
        if (!CHECK(bytes[0] > 0 && bytes[0] == bytes[1]))
            fprintf(stderr, "%s: %.3f, %.3f GB\n", shared_by[i], (double)bytes[0] / 1e9,
                    (double)bytes[1] / 1e9);
    }
}

int main(void)
{
    RUN(all_forwards_first_hold_every_stash);
    RUN(forward_and_backward_in_turn_hold_one_stash);
    RUN(classes_sum_to_the_peak);
    RUN(a_role_without_births_peaks_at_its_residents);
    RUN(before_is_what_the_instances_leave);
    RUN(layers_and_tensors_each_sum_to_the_peak);
    RUN(what_has_no_layer_stands_last);
    RUN(communicators_cost_buffers_per_channel);
    RUN(context_and_fragmentation_count_too);
    RUN(ideal_machines_and_cpus_hold_nothing_beside);
    RUN(the_track_steps_where_instances_start_and_end);
    RUN(the_highest_point_is_the_peak);
    RUN(a_rank_without_a_compute_lane_has_no_track);
    RUN(what_is_born_in_a_step_dies_in_it);
    RUN(shards_of_one_rank_are_kept_as_ddp_keeps_parameters);
    RUN(fp8_weights_lie_beside_bf16_ones);
    RUN(more_micro_batches_need_no_more);
    return check_report();
}
