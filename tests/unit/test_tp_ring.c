/*
 * test_tp_ring.c - matmuls that go rank by rank beside the exchange of their rows: the same work,
 * the same bytes, and who waits for whom.
 */
#include "sim/cost.h"
#include "tests/built.h"

enum { TP = 4 };

static int ranks = TP, experts = 0; /* experts: over ep 2; 0: none */
static const char *precision = "bf16", *cluster = "dgx-h100";
static bool own_first = false; /* in place of a ring */

static bool open_ring(Built *b, bool ring, bool sequence, const char *overlap)
{
    char text[1024], moe[100] = "", split[100] = "";
    if (own_first)
        snprintf(moe, sizeof moe, ",\"bias\":false");
    if (experts) {
        snprintf(moe, sizeof moe, ",\"bias\":false,\"experts\":%d,\"experts_per_token\":1",
                 experts);
        snprintf(split, sizeof split, ",\"ep\":2");
    }
    snprintf(text, sizeof text,
             "{\"model\":{\"kind\":\"transformer\",\"layers\":2,\"hidden\":4096,\"heads\":32,"
             "\"vocab\":1000,\"max_seq\":4096,\"positions\":\"rope\",\"gated\":true%s},"
             "\"cluster\":\"%s\",\"software\":\"nemo-2025\",\"training\":{\"precision\":\"%s\","
             "\"global_batch\":%d,\"micro_batch\":1,\"seq_len\":4096},\"parallel\":{"
             "\"strategy\":\"ddp\",\"dp\":%d,\"tp\":%d%s,\"sequence_parallel\":%s,"
             "\"overlap\":{\"tp\":%s}}}",
             moe, cluster, precision, experts ? 2 : 1, experts ? 2 : 1, ranks, split,
             sequence ? "true" : "false", overlap);
    Err err = { 0 };
    *b = (Built){ 0 };
    JsonDoc *doc = json_parse(text, strlen(text), "ring", &err);
    bool ok = doc && scenario_from(&b->s, doc, NULL, 0, &err) &&
              software_read(&b->sw, &b->arena, "nemo-2025", &err);
    b->sw.tp_ring = ring && !own_first;
    b->sw.tp_own_first = ring && own_first;
    ok = ok && build_graph(&b->g, &b->s, &b->sw, &err);
    if (!CHECK(ok))
        fprintf(stderr, "%s\n", err.text);
    return ok;
}

typedef struct Work {
    double flops, model_flops, bytes, moved;
    uint32_t ops_n;
} Work;

static Work work_of(const Graph *g)
{
    Work w = { 0 };
    for (uint32_t i = 0; i < g->ops_n; i++) {
        const Op *op = &g->ops[i];
        w.flops += op->flops;
        w.model_flops += op_model_flops(op);
        w.bytes += op_is_comm(op->kind) ? 0 : (double)(op->read_bytes + op->write_bytes);
        w.moved += op_is_comm(op->kind) ? (double)op->u.comm.bytes : 0;
    }
    w.ops_n = g->ops_n;
    return w;
}

static void the_work_is_the_same(void)
{
    Built plain, ring;
    if (open_ring(&plain, false, true, "true") && open_ring(&ring, true, true, "true")) {
        Work a = work_of(&plain.g), b = work_of(&ring.g);
        CHECK_NEAR(a.flops, b.flops, 1e-12);
        CHECK_NEAR(a.model_flops, b.model_flops, 1e-12);
        CHECK_NEAR(a.bytes, b.bytes, 1e-6);
        CHECK_NEAR(a.moved, b.moved, 1e-12);
        CHECK(b.ops_n > a.ops_n);
    }
    built_free(&plain);
    built_free(&ring);
}

static const Segment *segment_named(const Graph *g, const char *name)
{
    for (uint32_t s = 0; s < g->segments_n; s++)
        if (strcmp(intern_text(&g->names, g->segments[s].name), name) == 0)
            return &g->segments[s];
    ASSERT(false);
    return NULL;
}

static const Segment *layer_forward(const Graph *g)
{
    return segment_named(g, "layer forward");
}

/* What op `at` waits for, beside its lane: -1 for nothing. */
static int waits_for(const Graph *g, const Segment *s, uint32_t at)
{
    const Op *op = &graph_ops(g, s)[at];
    return op->dep_n ? (int)g->deps[op->dep_first] : -1;
}

/* norm1, gather in 3 steps, qkv in 4: the first waits for nobody, the others for a step each.
 * The sums of the output leave behind the second to the fourth. */
static void kernels_and_steps_alternate(void)
{
    Built b;
    if (open_ring(&b, true, true, "true")) {
        const Segment *s = layer_forward(&b.g);
        const Op *ops = graph_ops(&b.g, s);
        uint32_t out = 1;
        for (uint32_t k = 0; k < TP - 1; k++)
            CHECK_INT(OP_ALL_GATHER, ops[1 + k].kind);
        CHECK_INT(0, waits_for(&b.g, s, 1));
        for (uint32_t k = 0; k < TP; k++) {
            CHECK_INT(OP_MATMUL, ops[TP + k].kind);
            CHECK_U64(4096 / TP, ops[TP + k].u.matmul.m);
            CHECK_INT(k ? (int)k : -1, waits_for(&b.g, s, TP + k));
        }
        while (ops[out].kind != OP_REDUCE_SCATTER)
            out++;
        for (uint32_t k = 0; k < TP - 1; k++) {
            CHECK_INT(OP_REDUCE_SCATTER, ops[out + k].kind);
            CHECK_INT((int)(out - TP + k + 1), waits_for(&b.g, s, out + k));
        }
        CHECK_INT((int)(out + TP - 2), waits_for(&b.g, s, out + TP - 1));
    }
    built_free(&b);
}

/* Backward begins with what the output's sums were scattered to: in fp8 cast, then gathered, step
 * by step beside the matmul that reads it. */
static void backward_gathers_beside_its_first_matmul(void)
{
    static const char *const precisions[] = { "bf16", "fp8" };
    for (int fp8 = 0; fp8 < 2; fp8++) {
        Built b;
        precision = precisions[fp8];
        if (open_ring(&b, true, true, "true")) {
            const Segment *s = segment_named(&b.g, "layer backward");
            const Op *ops = graph_ops(&b.g, s);
            uint64_t moved = 0;
            CHECK_INT(fp8 ? OP_CAST : OP_RELEASE, ops[0].kind);
            CHECK_INT(0, waits_for(&b.g, s, 1));
            for (uint32_t k = 1; k < TP; k++) {
                CHECK(ops[k].kind == OP_ALL_GATHER && ops[k].lane == LANE_TP);
                moved += ops[k].u.comm.bytes;
            }
            CHECK_U64(4096 * 4096 * (fp8 ? 1 : 2), moved);
            for (uint32_t k = 0; k < TP; k++) {
                CHECK(ops[TP + k].kind == OP_MATMUL && ops[TP + k].phase == PHASE_DGRAD);
                CHECK_INT(k ? (int)k : -1, waits_for(&b.g, s, TP + k));
            }
        }
        built_free(&b);
    }
    precision = "bf16";
}

/* Kernels that transpose, and bytes that casts write, of a segment. */
typedef struct Transposed {
    uint32_t copies_n;
    uint64_t copied, cast;
} Transposed;

static Transposed transposed_in(const Graph *g, const char *name)
{
    const Segment *s = segment_named(g, name);
    Transposed t = { 0 };
    for (uint32_t i = 0; i < s->op_n; i++) {
        const Op *op = &graph_ops(g, s)[i];
        bool copies = op->kind == OP_COPY && op->dtype == DTYPE_FP8;
        t.copies_n += copies;
        t.copied += copies ? op->write_bytes : 0;
        t.cast += op->kind == OP_CAST && op->dtype == DTYPE_FP8 ? op->write_bytes : 0;
        CHECK(!copies || op->read_bytes == op->write_bytes);
    }
    return t;
}

/* Hopper's matmuls read along the sum.  Of R rows of H columns, on this rank A of heads, F and
 * twice F of the MLP: forward casts attention's and the activation's result, backward dy of all. */
static void weights_gradients_read_transposes_on_hopper(void)
{
    const uint64_t R = 4096, H = 4096, A = 4096 / TP, QKV = 3 * A, F = 16384 / TP;
    precision = "fp8";
    for (int how = 0; how < 4; how++) {
        Built b;
        bool hopper = how & 1, sequence = how & 2;
        cluster = hopper ? "dgx-h100" : "dgx-b200";
        if (open_ring(&b, false, sequence, "true")) {
            Transposed f = transposed_in(&b.g, "layer forward");
            Transposed d = transposed_in(&b.g, "layer backward");
            uint64_t both = hopper ? 2 : 1;
            CHECK_U64(both * R * (A + F), f.cast);
            /* with gathers: those of out and down are of rows, before their transposes */
            uint64_t gathered = sequence ? 2 * R / TP * H : 2 * both * R * H;
            CHECK_U64(both * R * (QKV + 2 * F) + gathered, d.cast);
            CHECK_INT(hopper && !sequence ? 2 : 0, f.copies_n);
            CHECK_U64(f.copies_n * R * H, f.copied);
            CHECK_INT(hopper && sequence ? 4 : 0, d.copies_n);
            CHECK_U64(d.copies_n * R * H, d.copied);
        }
        built_free(&b);
    }
    precision = "bf16";
    cluster = "dgx-h100";
}

/* Of a whole matmul each kernel takes a part of the time, not that of a smaller one. */
static void kernels_fill_the_gpu_together(void)
{
    Built plain, ring;
    if (open_ring(&plain, false, true, "true") && open_ring(&ring, true, true, "true")) {
        const Gpu *gpu = machine_place(&plain.s.machine, 0).type->gpu;
        const Op *whole = &graph_ops(&plain.g, layer_forward(&plain.g))[2];
        const Op *part = &graph_ops(&ring.g, layer_forward(&ring.g))[TP];
        CHECK_NEAR((double)op_cost(gpu, whole, NULL).alone_ns,
                   TP * (double)op_cost(gpu, part, NULL).alone_ns, 1e-3);
    }
    built_free(&plain);
    built_free(&ring);
}

/* Ranks that keep all rows exchange sums, and who forbids overlap gets none. */
static void nothing_goes_round_without_rows_or_overlap(void)
{
    for (int how = 0; how < 2; how++) {
        Built plain, ring;
        const char *overlap = how ? "false" : "true";
        if (open_ring(&plain, false, how, overlap) && open_ring(&ring, true, how, overlap))
            CHECK_INT(plain.g.ops_n, ring.g.ops_n);
        built_free(&plain);
        built_free(&ring);
    }
}

/* However many ranks: the steps pay the latency of one collective together. */
static void less_is_exposed(void)
{
    for (ranks = 2; ranks <= 8; ranks *= 2) {
        int64_t step[2] = { 0, 0 };
        for (int ring = 0; ring < 2; ring++) {
            Built b;
            SimResult r = { 0 };
            if (open_ring(&b, ring, true, "true") && built_run(&r, &b, (SimOptions){ 0 }))
                step[ring] = r.step_ns;
            sim_result_free(&r);
            built_free(&b);
        }
        CHECK(step[1] < step[0]);
    }
    ranks = TP;
}

/* Userbuffers know linear layers, not grouped matmuls: also not of a rank's only expert. */
static void experts_wait_for_the_whole(void)
{
    for (experts = 2; experts <= 4; experts += 2) {
        Built b;
        uint32_t n = 0;
        if (open_ring(&b, true, true, "true"))
            for (uint32_t i = 0; i < b.g.ops_n; i++) {
                const Op *op = &b.g.ops[i];
                const char *name = intern_text(&b.g.names, op->name);
                if (op->kind == OP_MATMUL && strcmp(name, "experts.down") == 0) {
                    CHECK(op->u.matmul.of <= 1);
                    n++;
                }
            }
        CHECK(n > 0);
        built_free(&b);
    }
    experts = 0;
}

static uint32_t first_gather(const Graph *g, const Segment *s)
{
    uint32_t at = 0;
    while (graph_ops(g, s)[at].kind != OP_ALL_GATHER)
        at++;
    return at;
}

/* One gather beside a quarter of the matmul, the rest waits for it; weights are read twice. */
static void check_own_first(const Built *plain, const Built *own, const char *name)
{
    const Segment *s = segment_named(&own->g, name), *p = segment_named(&plain->g, name);
    uint32_t at = first_gather(&own->g, s), before = first_gather(&plain->g, p);
    const Op *mine = &graph_ops(&own->g, s)[at + 1], *others = mine + 1;
    const Op *whole = &graph_ops(&plain->g, p)[before + 1];
    CHECK(mine[-1].lane == LANE_TP && at > 0);
    CHECK(mine->kind == OP_MATMUL && others->kind == OP_MATMUL);
    CHECK_U64(4096 / TP, mine->u.matmul.m);
    CHECK_U64(4096 - 4096 / TP, others->u.matmul.m);
    CHECK_INT(-1, waits_for(&own->g, s, at + 1));
    CHECK_INT((int)at, waits_for(&own->g, s, at + 2));
    uint64_t weight = whole->u.matmul.n * whole->u.matmul.k * 2;
    CHECK_U64(whole->read_bytes + weight, mine->read_bytes + others->read_bytes);
    CHECK_U64(whole->write_bytes, mine->write_bytes + others->write_bytes);
}

/* In forward, the head too, as in backward. */
static void own_rows_come_first(void)
{
    Built plain, own;
    own_first = true;
    if (open_ring(&plain, false, true, "true") && open_ring(&own, true, true, "true")) {
        Work a = work_of(&plain.g), b = work_of(&own.g);
        CHECK_NEAR(a.flops, b.flops, 1e-12);
        CHECK_NEAR(a.model_flops, b.model_flops, 1e-12);
        CHECK_NEAR(a.moved, b.moved, 1e-12);
        check_own_first(&plain, &own, "layer forward");
        check_own_first(&plain, &own, "layer backward");
        check_own_first(&plain, &own, "head forward");
    }
    built_free(&plain);
    built_free(&own);
    less_is_exposed();
    nothing_goes_round_without_rows_or_overlap();
    own_first = false;
}

int main(void)
{
    RUN(the_work_is_the_same);
    RUN(kernels_and_steps_alternate);
    RUN(backward_gathers_beside_its_first_matmul);
    RUN(weights_gradients_read_transposes_on_hopper);
    RUN(kernels_fill_the_gpu_together);
    RUN(nothing_goes_round_without_rows_or_overlap);
    RUN(less_is_exposed);
    RUN(experts_wait_for_the_whole);
    RUN(own_rows_come_first);
    return check_report();
}
