/* test_machine.c - clusters and GPUs: every built-in file, layers, places, and every error. */
#include "core/machine.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static const char share[] = "scenarios";

/* A cluster as text; the document must outlive nothing: a machine copies what it keeps. */
static bool read_cluster(Machine *m, const char *json, Err *err)
{
    JsonDoc *doc = json_parse(json, strlen(json), "t.json", err);
    bool ok = doc && machine_read(m, json_root(doc), share, err);
    json_close(doc);
    return ok;
}

static Machine cluster(const char *json)
{
    Machine m = { 0 };
    Err err = { 0 };
    if (!CHECK(read_cluster(&m, json, &err)))
        fprintf(stderr, "    %s\n", err.text);
    return m;
}

#define GPU "\"gpu\":{\"peak_tflops\":{\"f32\":1},\"memory_GB\":1,\"memory_GBps\":1}"
#define TWO "\"gpus_per_node\":2,\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":100},"

static void check_error(const char *json, const char *part)
{
    Machine m = { 0 };
    Err err = { 0 };
    if (!CHECK(!read_cluster(&m, json, &err)))
        fprintf(stderr, "    %s\n", json);
    CHECK_ERR_TEXT(&err, part);
    CHECK(m.types == NULL && m.arena.last == NULL);
    machine_free(&m);
}

/* ---- built-in files ---- */

static void check_gpu_sane(const Gpu *g, const char *name)
{
    double most = 0;
    CHECK_STR(name, g->name);
    for (DType t = 0; t < DTYPE_N; t++) {
        most = fmax(most, g->peak_flops_per_ns[t]);
        CHECK(g->peak_flops_per_ns[t] >= 0);
        CHECK(g->matmul_efficiency[t] > 0 && g->matmul_efficiency[t] <= 1);
        CHECK(gpu_peak_flops_per_ns(g, t) > 0);
    }
    CHECK(most > 0);
    CHECK(g->memory_bytes_per_ns > 0 && g->host_bytes_per_ns > 0);
    CHECK(g->memory_efficiency > 0 && g->memory_efficiency <= 1);
    CHECK(g->attention_efficiency > 0 && g->attention_efficiency <= 1);
    CHECK(g->attention_bwd_efficiency > 0 && g->attention_bwd_efficiency <= 1);
    CHECK(strlen(g->provenance) > 0);
    CHECK(g->comm_sms < g->sms || g->sms == 0);
    for (uint32_t i = 1; i < g->gemm_groups_n; i++)
        CHECK_U64(g->gemm_groups[i - 1].first + g->gemm_groups[i - 1].count,
                  g->gemm_groups[i].first);
}

static const Gpu *gpu_named(Arena *arena, const char *name)
{
    char text[200];
    Err err = { 0 };
    snprintf(text, sizeof text, "\"%s\"", name);
    JsonDoc *doc = json_parse(text, strlen(text), "t.json", &err);
    const Gpu *g = gpu_read(arena, json_root(doc), share, &err);
    if (!CHECK(g != NULL))
        fprintf(stderr, "    %s\n", err.text);
    json_close(doc);
    return g;
}

static void every_gpu_reads(void)
{
    static const char *const names[] = {
        "v100-16gb",      "v100-32gb",       "a100-40gb",  "a100-80gb",  "a100-80gb-pcie",
        "h100-80gb",      "h100-96gb-hbm2e", "h200-141gb", "gh200",      "b200-180gb",
        "gb200-186gb",    "gb300",           "l40s",       "rtx4090",    "a10g",
        "h100-80gb-pcie", "h100-94gb-nvl",   "b300-270gb", "rtxpro6000", "rtx5090",
        "rtx3090",        "rtxa6000",        "mi325x",     "t4",         "mi300x",
        "ideal",
    };
    Arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        const Gpu *g = gpu_named(&arena, names[i]);
        if (g)
            check_gpu_sane(g, names[i]);
    }
    arena_free(&arena);
}

/* memory_bytes is what the driver reports: below the GiB of the name, above 0.9 of its GB. */
static void memory_is_what_the_driver_reports(void)
{
    Arena arena = { 0 };
    CHECK_U64(85174583296u, gpu_named(&arena, "a100-80gb")->memory_bytes);
    CHECK_U64(1000000000000u, gpu_named(&arena, "ideal")->memory_bytes);
    CHECK(gpu_named(&arena, "h100-80gb")->memory_bytes < 80 * GIB);
    arena_free(&arena);
}

static void types_of_a_generation_are_there_or_not(void)
{
    Arena arena = { 0 };
    const Gpu *v100 = gpu_named(&arena, "v100-16gb"), *a100 = gpu_named(&arena, "a100-80gb"),
              *h100 = gpu_named(&arena, "h100-80gb");
    CHECK_NEAR(0, v100->peak_flops_per_ns[DTYPE_BF16], 0);
    CHECK_NEAR(0, v100->peak_flops_per_ns[DTYPE_TF32], 0);
    CHECK_NEAR(0, a100->peak_flops_per_ns[DTYPE_FP8], 0);
    CHECK_NEAR(1978900, h100->peak_flops_per_ns[DTYPE_FP8], 1e-12);
    CHECK_NEAR(312000, a100->peak_flops_per_ns[DTYPE_BF16], 1e-12);
    /* What stands in: bf16 at f32's speed on V100, fp8 at f16's on A100. */
    CHECK_NEAR(15700, gpu_peak_flops_per_ns(v100, DTYPE_BF16), 1e-12);
    CHECK_NEAR(312000, gpu_peak_flops_per_ns(a100, DTYPE_FP8), 1e-12);
    arena_free(&arena);
}

static void every_file_in_gpus_and_clusters_reads(void)
{
    static const char *const folders[] = { "gpus", "clusters" };
    for (size_t f = 0; f < ARRAY_N(folders); f++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", share, folders[f]);
        DIR *dir = opendir(path);
        if (!CHECK(dir != NULL))
            continue;
        uint32_t n = 0;
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            char name[300], json[400];
            if (!strstr(e->d_name, ".json"))
                continue;
            snprintf(name, sizeof name, "%.*s", (int)strlen(e->d_name) - 5, e->d_name);
            n++;
            snprintf(json, sizeof json, f == 0 ? "{\"gpu\":\"%s\"}" : "\"%s\"", name);
            Machine m = cluster(json);
            if (m.types_n == 0)
                continue;
            CHECK_STR(name, f == 0 ? m.types[0].gpu->name : m.name);
            machine_free(&m);
        }
        CHECK(n >= 13);
        closedir(dir);
    }
}

static void clusters_of_the_contract_are_what_they_say(void)
{
    static const struct {
        const char *name, *gpu;
        uint32_t gpus;
        double intra, nics;
    } rows[] = {
        { "dgx-1", "v100-16gb", 8, 150, 50 },
        { "dgx-a100", "a100-80gb", 8, 300, 200 },
        { "dgx-h100", "h100-80gb", 8, 450, 400 },
        { "hgx-h200", "h200-141gb", 8, 450, 400 },
        { "dgx-b200", "b200-180gb", 8, 900, 400 },
        { "dgx-b300", "b300-270gb", 8, 900, 800 },
        { "gb200-nvl72", "gb200-186gb", 72, 900, 3600 },
        { "pcie-workstation", "rtx4090", 4, 31.5, 1.25 },
        { "ethernet", "l40s", 16, 31.5, 12.5 },
        { "p3.16xlarge", "v100-16gb", 8, 150, 3.125 },
        { "p4d", "a100-40gb", 8, 300, 50 },
        { "p5", "h100-80gb", 8, 450, 400 },
        { "p5en", "h200-141gb", 8, 450, 400 },
        { "p6-b200", "b200-180gb", 8, 900, 400 },
        { "a3", "h100-80gb", 8, 450, 100 },
        { "ideal", "ideal", 8, 100, 800 },
    };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char json[100];
        snprintf(json, sizeof json, "\"%s\"", rows[i].name);
        Machine m = cluster(json);
        if (m.types_n == 0)
            continue;
        CHECK_STR(rows[i].gpu, m.types[0].gpu->name);
        CHECK_INT(rows[i].gpus, m.gpus_n);
        CHECK_NEAR(rows[i].intra, m.types[0].intra.bytes_per_ns, 1e-12);
        CHECK_NEAR(rows[i].nics, m.inter.bytes_per_ns * m.inter.nics_per_node, 1e-12);
        CHECK(strlen(m.provenance) > 0);
        machine_free(&m);
    }
}

static void aliases_find_a_gpu_that_has_no_file_of_that_name(void)
{
    Arena arena = { 0 };
    CHECK_STR("a100-80gb", gpu_named(&arena, "A100-SXM4-80GB")->name);
    CHECK_STR("h100-80gb", gpu_named(&arena, "nvidia h100 80GB hbm3")->name);
    CHECK_STR("v100-32gb", gpu_named(&arena, "V100")->name);
    CHECK_STR("h100-80gb", gpu_named(&arena, "H100-SXM")->name);
    CHECK_STR("h200-141gb", gpu_named(&arena, "H200-SXM")->name);
    arena_free(&arena);
}

/* What nobody has a file of may be any. */
static void names_of_two_files_are_of_different_gpus(void)
{
    CHECK(gpu_names_differ("NVIDIA A100-SXM4-80GB", "h100-80gb", share));
    CHECK(gpu_names_differ("a100-40gb", "a100-80gb", share));
    CHECK(!gpu_names_differ("NVIDIA H100 80GB HBM3", "H100-80GB", share));
    CHECK(!gpu_names_differ("NVIDIA H300", "h100-80gb", share));
    CHECK(!gpu_names_differ("", "h100-80gb", share));
    CHECK(!gpu_names_differ("NVIDIA A100-SXM4-80GB", "ours", share));
}

/* Chips with slower NVLink, which is the cluster's to say. */
static void export_versions_are_the_gpus_they_are_made_of(void)
{
    static const char *const names[][2] = {
        { "h100-80gb", "H800" },        { "h100-80gb", "h800-80gb" },
        { "h100-80gb", "NVIDIA H800" }, { "a100-80gb", "A800" },
        { "a100-80gb", "a800-80gb" },   { "a100-80gb", "NVIDIA A800-SXM4-80GB" },
    };
    Arena arena = { 0 };
    for (size_t i = 0; i < ARRAY_N(names); i++)
        CHECK_STR(names[i][0], gpu_named(&arena, names[i][1])->name);
    arena_free(&arena);
}

static void names_of_files_may_be_written_in_capitals(void)
{
    Arena arena = { 0 };
    CHECK_STR("a100-80gb", gpu_named(&arena, "A100-80GB")->name);
    CHECK_STR("h100-80gb", gpu_named(&arena, "H100-80gb")->name);
    CHECK_STR("mi300x", gpu_named(&arena, "MI300X")->name);
    arena_free(&arena);
    Machine m = cluster("\"DGX-H100\"");
    CHECK_STR("dgx-h100", m.name);
    machine_free(&m);
    m = cluster("{\"base\":\"P4D\",\"gpu\":\"A100-80GB\"}");
    CHECK_STR("p4d", m.name);
    CHECK_STR("a100-80gb", m.types[0].gpu->name);
    machine_free(&m);
}

/* ---- layers ---- */

static void the_object_lies_over_its_base(void)
{
    Machine m = cluster("{\"base\":\"dgx-h100\",\"nodes\":4,\"intra_node\":{\"GBps\":200},"
                        "\"inter_node\":{\"nics_per_node\":2}}");
    CHECK_STR("dgx-h100", m.name);
    CHECK_INT(4, m.nodes_n);
    CHECK_INT(32, m.gpus_n);
    CHECK_NEAR(200, m.types[0].intra.bytes_per_ns, 0);
    CHECK_INT(INTRA_NVSWITCH, m.types[0].intra.kind);
    CHECK(m.types[0].intra.nvls);
    CHECK_INT(2, m.inter.nics_per_node);
    CHECK_NEAR(50, m.inter.bytes_per_ns, 0);
    machine_free(&m);
}

static void a_gpu_object_without_base_changes_the_gpu_of_the_base_cluster(void)
{
    Machine m = cluster("{\"base\":\"dgx-h100\",\"gpu\":{\"launch_us\":9,"
                        "\"efficiency\":{\"matmul\":{\"f16\":0.5}}}}");
    const Gpu *g = m.types[0].gpu;
    CHECK_STR("h100-80gb", g->name);
    CHECK_INT(9000, g->launch_ns);
    CHECK_NEAR(0.5, g->matmul_efficiency[DTYPE_F16], 0);
    CHECK(g->matmul_efficiency[DTYPE_BF16] > 0.6);
    CHECK(g->gemm_n > 0);
    machine_free(&m);

    m = cluster("{\"base\":\"dgx-h100\",\"gpu\":\"a100-40gb\"}");
    CHECK_STR("a100-40gb", m.types[0].gpu->name);
    machine_free(&m);

    m = cluster("{\"base\":\"dgx-h100\",\"gpu\":{\"base\":\"ideal\",\"sms\":7}}");
    CHECK_STR("ideal", m.types[0].gpu->name);
    CHECK_INT(7, m.types[0].gpu->sms);
    CHECK_U64(0, m.types[0].gpu->gemm_n);
    machine_free(&m);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (CHECK(f != NULL)) {
        fputs(text, f);
        fclose(f);
    }
}

static void paths_are_relative_to_the_file_they_stand_in(void)
{
    char dir[] = P_tmpdir "/lockstep-machine-XXXXXX", a[300], b[300], c[300], d[300];
    if (!CHECK(mkdtemp(dir) != NULL))
        return;
    snprintf(a, sizeof a, "%s/a.json", dir);
    snprintf(b, sizeof b, "%s/sub", dir);
    snprintf(c, sizeof c, "%s/sub/c.json", dir);
    snprintf(d, sizeof d, "%s/sub/g.json", dir);
    CHECK_INT(0, mkdir(b, 0700));
    write_text(a, "{\"base\":\"sub/c.json\",\"nodes\":3}");
    write_text(c, "{\"name\":\"c\",\"gpu\":\"./g.json\",\"inter_node\":{\"kind\":\"ethernet\","
                  "\"GBps_per_nic\":1}}");
    write_text(d, "{\"name\":\"g\",\"peak_tflops\":{\"f32\":2},\"memory_GB\":3,"
                  "\"memory_GBps\":4}");
    char json[400];
    snprintf(json, sizeof json, "\"%s\"", a);
    Machine m = cluster(json);
    if (m.types_n) {
        CHECK_STR("c", m.name);
        CHECK_STR("g", m.types[0].gpu->name);
        CHECK_INT(3, m.gpus_n);
        CHECK_INT(INTRA_NONE, m.types[0].intra.kind);
    }
    machine_free(&m);

    write_text(c, "{\"base\":\"c.json\"}");
    check_error(json, "bases of bases, more than 8 deep");
    write_text(c, "{\"gpu\":{\"base\":\"g.json\"}}");
    write_text(d, "{\"base\":\"g.json\"}");
    check_error(json, "bases of bases, more than 8 deep");
    write_text(c, "{\"gpu\":\"h.json\"}");
    check_error(json, "h.json': No such file");
    check_error(json, "c.json: gpu: ");
    unlink(a);
    unlink(c);
    unlink(d);
    rmdir(b);
    rmdir(dir);
}

static const char *origin_of(const JsonDoc *doc, const char *path)
{
    size_t n;
    const JsonLogRow *rows = json_log(doc, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].path, path) == 0)
            return rows[i].origin;
    return "not logged";
}

static void the_log_says_where_each_value_came_from(void)
{
    static const char json[] = "{\"base\":\"dgx-h100\",\"nodes\":2}";
    Err err = { 0 };
    Machine m;
    JsonDoc *doc = json_parse(json, strlen(json), "t.json", &err);
    CHECK(machine_read(&m, json_root(doc), share, &err));
    CHECK_STR("t.json", origin_of(doc, "nodes"));
    CHECK_STR("scenarios/clusters/dgx-h100.json", origin_of(doc, "intra_node.GBps"));
    CHECK_STR("scenarios/gpus/h100-80gb.json", origin_of(doc, "gpu.memory_GBps"));
    CHECK_STR("default", origin_of(doc, "collectives.inter_hop_us.LL"));
    CHECK_STR("default", origin_of(doc, "jitter"));
    machine_free(&m);
    json_close(doc);
}

/* ---- links ---- */

static void links_that_say_nothing_get_nccls_latencies(void)
{
    Machine m = cluster("{\"base\":\"dgx-a100\",\"nodes\":2}");
    const IntraNode *in = &m.types[0].intra;
    CHECK_INT(600, in->hop_ns[PROTOCOL_LL]);
    CHECK_INT(3400, in->hop_ns[PROTOCOL_SIMPLE]);
    CHECK_INT(1250, in->tree_hop_ns[PROTOCOL_LL128]);
    CHECK_INT(6000, m.inter.hop_ns[PROTOCOL_SIMPLE]);
    CHECK_INT(6600, m.collective_base_ns[PROTOCOL_LL]);
    CHECK_INT(8400, m.p2p_base_ns[PROTOCOL_SIMPLE]);
    CHECK(!in->nvls);
    CHECK_NEAR(0.765, rank_curve_at(&in->efficiency, 8), 1e-12);
    machine_free(&m);

    m = cluster("{\"gpu\":\"a100-80gb-pcie\",\"gpus_per_node\":4,\"intra_node\":"
                "{\"kind\":\"pcie\",\"GBps\":31.5}}");
    CHECK_INT(5700, m.types[0].intra.hop_ns[PROTOCOL_SIMPLE]);
    CHECK_NEAR(0.71, rank_curve_at(&m.types[0].intra.efficiency, 4), 1e-12);
    machine_free(&m);
}

/* What slows an H100 is known from a stack's steps; what a user says of one is not. */
static void a_scale_of_ones_own_is_from_no_stack(void)
{
    Machine m = cluster("{\"gpu\":{\"base\":\"h100-80gb\",\"sms\":130},\"gpus_per_node\":2,"
                        "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":450}}");
    CHECK(m.types[0].gpu->sustained_scale > 1 && m.types[0].gpu->sustained_spread > 0);
    CHECK_STR("nemo-2025", m.types[0].gpu->sustained_from);
    machine_free(&m);
    m = cluster("{\"gpu\":{\"base\":\"h100-80gb\",\"sustained_scale\":1.3},\"gpus_per_node\":2,"
                "\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":450}}");
    CHECK_NEAR(1.3, m.types[0].gpu->sustained_scale, 1e-12);
    CHECK_NEAR(0, m.types[0].gpu->sustained_spread, 0);
    CHECK_STR("", m.types[0].gpu->sustained_from);
    machine_free(&m);
}

static double ethernet_efficiency(const char *gbps, const char *more)
{
    char text[300];
    snprintf(text, sizeof text,
             "{" TWO GPU ",\"nodes\":2,\"inter_node\":{\"kind\":\"ethernet\","
             "\"GBps_per_nic\":%s}%s}",
             gbps, more);
    Machine m = cluster(text);
    double efficiency = m.inter.efficiency;
    machine_free(&m);
    return efficiency;
}

/* 10 and 25 Gb/s lose what frames and headers take: 1448 of 1538 bytes are data.  A pair of hosts
 * reaches 7.8 GB/s, 0.63 of 100 Gb/s. */
static void slow_ethernet_is_filled_but_for_its_headers(void)
{
    CHECK_NEAR(1448.0 / 1538, ethernet_efficiency("1.25", ""), 1e-12);
    CHECK_NEAR(1448.0 / 1538, ethernet_efficiency("3.125", ""), 1e-12);
    CHECK_NEAR(7.8 / 10, ethernet_efficiency("10", ""), 1e-12);
    CHECK_NEAR(0.63, ethernet_efficiency("12.5", ""), 1e-12);
    CHECK_NEAR(0.63, ethernet_efficiency("50", ""), 1e-12);
    CHECK_NEAR(0.5, ethernet_efficiency("1.25", ",\"collectives\":{\"inter_efficiency\":0.5}"),
               1e-12);
}

static void a_given_latency_holds_for_all_protocols_or_each(void)
{
    Machine m = cluster("{" TWO GPU ",\"nodes\":2,\"inter_node\":{\"kind\":\"rail\","
                        "\"GBps_per_nic\":1,\"latency_us\":{\"LL128\":2.5}},\"collectives\":"
                        "{\"intra_hop_us\":{\"LL\":0.7},\"base_latency_us\":3}}");
    CHECK_INT(700, m.types[0].intra.hop_ns[PROTOCOL_LL]);
    CHECK_INT(1900, m.types[0].intra.hop_ns[PROTOCOL_LL128]);
    CHECK_INT(2500, m.inter.hop_ns[PROTOCOL_LL128]);
    CHECK_INT(2500, m.inter.tree_hop_ns[PROTOCOL_LL128]);
    CHECK_INT(6000, m.inter.hop_ns[PROTOCOL_SIMPLE]);
    for (Protocol p = 0; p < PROTOCOL_N; p++) {
        CHECK_INT(3000, m.collective_base_ns[p]);
        CHECK_INT(3000, m.p2p_base_ns[p]);
    }
    machine_free(&m);
}

static void ideal_collectives_cost_latency_and_bandwidth_only(void)
{
    Machine m = cluster("\"ideal\"");
    CHECK(m.ideal_collectives);
    CHECK(!m.types[0].intra.nvls);
    CHECK_INT(1000, m.types[0].intra.hop_ns[PROTOCOL_SIMPLE]);
    CHECK_INT(1000, m.inter.hop_ns[PROTOCOL_SIMPLE]);
    CHECK_INT(0, m.collective_base_ns[PROTOCOL_SIMPLE]);
    CHECK_INT(0, m.p2p_base_ns[PROTOCOL_SIMPLE]);
    CHECK_NEAR(1, rank_curve_at(&m.types[0].intra.efficiency, 8), 0);
    CHECK_NEAR(1, m.inter.efficiency, 0);
    machine_free(&m);
}

static void a_curve_is_straight_between_its_points(void)
{
    Machine m = cluster("{" TWO GPU ",\"collectives\":{\"intra_efficiency\":"
                        "[[2,0.5],[4,0.7],[8,0.9]]}}");
    const RankCurve *c = &m.types[0].intra.efficiency;
    CHECK_NEAR(0.5, rank_curve_at(c, 1), 1e-12);
    CHECK_NEAR(0.5, rank_curve_at(c, 2), 1e-12);
    CHECK_NEAR(0.6, rank_curve_at(c, 3), 1e-12);
    CHECK_NEAR(0.8, rank_curve_at(c, 6), 1e-12);
    CHECK_NEAR(0.9, rank_curve_at(c, 100), 1e-12);
    machine_free(&m);
}

static void ll_is_slow_between_nodes(void)
{
    Arena arena = { 0 };
    const Gpu *h100 = gpu_named(&arena, "h100-80gb");
    CHECK_NEAR(141, ll_max_bytes_per_ns(h100, 1), 0);
    CHECK_NEAR(39, ll_max_bytes_per_ns(h100, 2), 0);
    CHECK_NEAR(20.4, ll_max_bytes_per_ns(h100, 3), 0);
    CHECK(isinf(ll_max_bytes_per_ns(gpu_named(&arena, "ideal"), 4)));
    arena_free(&arena);
}

static void what_collectives_send_is_the_slower_of_ports_and_nics(void)
{
    Machine one = cluster("\"dgx-a100\""), two = cluster("{\"base\":\"p4d\",\"nodes\":2}");
    CHECK_NEAR(300 * 0.765, one.types[0].gpu->comm_bytes_per_ns, 1e-9);
    CHECK_NEAR(4 * 12.5 * 0.975, two.types[0].gpu->comm_bytes_per_ns, 1e-9);
    machine_free(&one);
    machine_free(&two);
}

/* ---- places ---- */

static void a_rank_is_where_counting_finds_it(void)
{
    Machine m = cluster("{\"gpu\":\"ideal\",\"intra_node\":{\"kind\":\"ring\",\"GBps\":1},"
                        "\"inter_node\":{\"kind\":\"fat_tree\",\"GBps_per_nic\":1},"
                        "\"node_types\":[{\"count\":3,\"gpus_per_node\":4},"
                        "{\"count\":1,\"gpus_per_node\":1,\"gpu\":\"t4\"},"
                        "{\"count\":2,\"gpus_per_node\":8,\"intra_node\":{\"GBps\":5}}]}");
    CHECK_INT(6, m.nodes_n);
    CHECK_INT(29, m.gpus_n);
    uint32_t rank = 0, node = 0;
    for (uint32_t t = 0; t < m.types_n; t++)
        for (uint32_t c = 0; c < m.types[t].count; c++, node++)
            for (uint32_t g = 0; g < m.types[t].gpus_n; g++, rank++) {
                Place p = machine_place(&m, rank);
                CHECK_INT(node, p.node);
                CHECK_INT(g, p.local);
                CHECK(p.type == &m.types[t]);
            }
    CHECK_INT(29, rank);
    CHECK_STR("t4", m.types[1].gpu->name);
    CHECK_INT(INTRA_NONE, m.types[1].intra.kind);
    CHECK_NEAR(5, m.types[2].intra.bytes_per_ns, 0);
    CHECK_INT(INTRA_RING, m.types[2].intra.kind);
    machine_free(&m);
}

/* As many hosts as a node has GPUs for; one where nothing is said. */
static void hosts_are_nodes_or_parts_of_them(void)
{
    static const struct {
        const char *keys;
        uint32_t hosts, nodes;
    } cases[] = { { "", 18, 18 },
                  { "\"gpus_per_host\":4,", 1, 1 },
                  { "\"gpus_per_host\":4,", 18, 1 },
                  { "\"gpus_per_host\":4,", 36, 2 },
                  { "\"gpus_per_host\":4,", 19, 2 },
                  { "\"gpus_per_host\":5,", 15, 1 },
                  { "\"gpus_per_host\":5,", 16, 2 },
                  { "\"gpus_per_host\":72,", 3, 3 },
                  { "\"gpus_per_host\":100,", 3, 3 } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        char json[400];
        snprintf(
            json, sizeof json,
            "{%s\"gpus_per_node\":72,\"intra_node\":{\"kind\":\"nvswitch\",\"GBps\":100}," GPU
            "}",
            cases[i].keys);
        Machine m = cluster(json);
        CHECK_INT(cases[i].nodes, machine_nodes_of_hosts(&m, cases[i].hosts));
        machine_free(&m);
    }
    check_error("{\"gpus_per_host\":0," GPU "}", "gpus_per_host");
}

static void a_million_nodes_are_placed_without_a_list(void)
{
    Machine m = cluster("{\"base\":\"ideal\",\"nodes\":1048576}");
    CHECK_INT(8388608, m.gpus_n);
    Place p = machine_place(&m, m.gpus_n - 1);
    CHECK_INT(1048575, p.node);
    CHECK_INT(7, p.local);
    machine_free(&m);
}

static void stragglers_are_slow_and_links_between_two_ranks(void)
{
    Machine m = cluster("{\"base\":\"ideal\",\"nodes\":3,\"jitter\":0.1,"
                        "\"price_usd_per_gpu_hour\":2,\"gpu_mtbf_hours\":50000,"
                        "\"stragglers\":[{\"ranks\":[17,3],\"compute\":0.8},"
                        "{\"ranks\":[9],\"compute\":0.5},{\"link\":[18,17],\"GBps\":25}]}");
    for (uint32_t r = 0; r < m.gpus_n; r++)
        CHECK_NEAR(r == 3 || r == 17 ? 0.8 : r == 9 ? 0.5 : 1, machine_speed(&m, r), 0);
    if (CHECK_U64(1, m.slow_links_n)) {
        CHECK_INT(17, m.slow_links[0].rank_a);
        CHECK_INT(18, m.slow_links[0].rank_b);
        CHECK_NEAR(25, m.slow_links[0].bytes_per_ns, 0);
    }
    CHECK_NEAR(0.1, m.jitter, 0);
    CHECK_NEAR(2, m.price_usd_per_gpu_hour, 0);
    CHECK_NEAR(50000, m.gpu_mtbf_hours, 0);
    machine_free(&m);
}

/* ---- tables ---- */

#define TABLE(kernels) \
    "{\"gpu\":{\"peak_tflops\":{\"f16\":1},\"memory_GB\":1,\"memory_GBps\":1," \
    "\"kernels\":{" kernels "}}}"

static void tables_are_sorted_and_columns_stand_in_any_order(void)
{
    Machine m = cluster(TABLE(
        "\"gemm\":[{\"source\":\"s\",\"dtype\":\"bf16\",\"columns\":[\"time_us\",\"k\","
        "\"n\",\"m\"],\"rows\":[[2,3,5,7],[1,3,5,6]]},{\"source\":\"t\",\"columns\":"
        "[\"m\",\"n\",\"k\",\"dtype\",\"layout\",\"time_us\"],"
        "\"rows\":[[6,5,3,\"f16\",\"NT+\",4],[1,2,3,\"f32\",\"any\",9]]}],"
        "\"memory\":{\"source\":\"s\",\"op\":\"norm\",\"columns\":[\"bytes\",\"time_us\"],"
        "\"rows\":[[200,2],[100,1]]},"
        "\"attention\":{\"source\":\"s\",\"op\":\"backward\",\"batch\":1,\"heads\":2,"
        "\"kv_heads\":2,\"head_dim\":64,\"causal\":1,"
        "\"columns\":[\"seq\",\"time_us\",\"kernel\"],"
        "\"rows\":[[512,7.5,\"flash2\"]]}"));
    const Gpu *g = m.types[0].gpu;
    if (CHECK_U64(4, g->gemm_n) && CHECK_U64(2, g->gemm_groups_n)) {
        CHECK_INT(DTYPE_F32, g->gemm[0].dtype);
        CHECK_U64(6, g->gemm[1].m);
        CHECK_NEAR(1000, g->gemm[1].time_ns, 0);
        CHECK_INT(GEMM_ANY, g->gemm[1].layout);
        CHECK_INT(GEMM_NT_ACCUMULATE, g->gemm[2].layout);
        CHECK_U64(7, g->gemm[3].m);
        CHECK_INT(DTYPE_F16, g->gemm_groups[1].dtype);
        CHECK_INT(3, g->gemm_groups[1].count);
    }
    if (CHECK_U64(2, g->memory_n)) {
        CHECK_U64(100, g->memory[0].bytes);
        CHECK_INT(MEMORY_NORM, g->memory[0].kernel);
    }
    if (CHECK_U64(1, g->attention_n)) {
        CHECK(g->attention[0].backward && g->attention[0].causal);
        CHECK_U64(512, g->attention[0].seq);
        CHECK_NEAR(7500, g->attention[0].time_ns, 0);
        CHECK_INT(ATTENTION_FLASH2, g->attention[0].kernel);
    }
    machine_free(&m);
}

static void errors_of_tables_name_the_row(void)
{
    check_error(TABLE("\"gemm\":7"), "gpu.kernels.gemm: an object is expected, not a number");
    check_error(TABLE("\"gemm\":{\"columns\":[\"m\"],\"rows\":[]}"),
                "gpu.kernels.gemm.source: the key is missing");
    check_error(TABLE("\"gemm\":{\"source\":\"s\",\"columns\":[],\"rows\":[]}"),
                "a list of 1 to 6 column names");
    check_error(TABLE("\"gemm\":{\"source\":\"s\",\"columns\":[\"q\"],\"rows\":[]}"),
                "columns[0]: unknown column, allowed: m, n, k, dtype, layout, time_us");
    check_error(TABLE("\"gemm\":{\"source\":\"s\",\"columns\":[\"m\",\"m\"],\"rows\":[]}"),
                "columns[1]: the column stands here twice");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"columns\":[\"bytes\",\"time_us\"],"
                      "\"rows\":[]}"),
                "the column 'op' is missing");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"op\":\"x\",\"columns\":[\"bytes\"],"
                      "\"rows\":[]}"),
                "kernels.memory.op: unknown op, allowed: norm, norm_bwd");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"op\":\"add\",\"columns\":[\"bytes\","
                      "\"time_us\"],\"rows\":7}"),
                "rows: a list of rows is expected, not a number");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"op\":\"add\",\"columns\":[\"bytes\","
                      "\"time_us\"],\"rows\":[[1,1],[1]]}"),
                "rows[1]: a list of 2 numbers");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"op\":\"add\",\"columns\":[\"bytes\","
                      "\"time_us\"],\"rows\":[[1,0]]}"),
                "time_us: 0 is out of range, 0.001 to 1e+12 allowed");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"op\":\"add\",\"columns\":[\"bytes\","
                      "\"time_us\"],\"rows\":[[1.5,1]]}"),
                "bytes: 1.5 is not a whole number");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"columns\":[\"op\",\"bytes\",\"time_us\"],"
                      "\"rows\":[[\"add\",1]]}"),
                "rows[0]: a list of 3 values");
    check_error(TABLE("\"memory\":{\"source\":\"s\",\"columns\":[\"op\",\"bytes\",\"time_us\"],"
                      "\"rows\":[[\"add\",\"x\",1]]}"),
                "bytes: a number is expected, not a string");
    check_error(TABLE("\"gemmm\":[]"), "gemmm: unknown key");
}

/* ---- errors ---- */

static void errors_name_file_key_and_what_is_allowed(void)
{
    check_error("7", "t.json: an object is expected");
    check_error("\"nosuch\"", "t.json: no cluster named 'nosuch'");
    check_error("\"nosuch\"", "one of a3, dgx-1");
    check_error("\"\"", "no cluster named ''");
    check_error("{\"gpu\":\"h1000\"}", "t.json: gpu: no gpu named 'h1000'");
    check_error("{\"base\":7}", "base: a name or a path is expected, not a number");
    check_error("{\"gpu\":7}", "gpu: an object is expected, not a number");
    check_error("{\"gpu\":{\"base\":[]}}", "gpu.base: a name or a path is expected");
    check_error("{}", "gpu: the key is missing");
    check_error("{\"gpu\":{}}", "gpu.peak_tflops: the key is missing");
    check_error("{\"gpu\":{\"peak_tflops\":{\"f16\":1}}}", "gpu.memory_GB: the key is missing");
    check_error("{\"gpu\":{\"peak_tflops\":{\"f16\":1},\"memory_GB\":1}}",
                "gpu.memory_GBps: the key is missing");
    check_error("{\"gpu\":{\"peak_tflops\":7}}", "gpu.peak_tflops: an object is expected");
    check_error("{\"gpu\":{\"peak_tflops\":{\"f17\":7}}}", "peak_tflops.f17: unknown key");
    check_error("{\"gpu\":{\"generation\":\"x\"}}", "unknown word 'x', allowed: other, volta");
    check_error("{\"gpu\":{\"efficiency\":{\"matmul\":1.5}}}", "efficiency.matmul: 1.5 is out");
    check_error("{\"gpu\":{\"overlap\":{\"sms\":1}}}", "gpu.overlap.sms: unknown key");
    check_error("{\"gpu\":{\"matmul_model\":{\"fill_us\":-1}}}", "fill_us: -1 is out of range");
    check_error("{\"gpu\":\"ideal\",\"speed\":7}", "t.json: speed: unknown key, allowed: base");
    check_error("{" GPU ",\"gpus_per_node\":2}",
                "intra_node.kind: the key is missing where a node has several GPUs");
    check_error("{" GPU ",\"gpus_per_node\":2,\"intra_node\":{\"kind\":\"none\"}}",
                "intra_node.kind: 'none' does not connect 2 GPUs");
    check_error("{" GPU ",\"gpus_per_node\":2,\"intra_node\":{\"kind\":\"ring\"}}",
                "intra_node.GBps: the key is missing");
    check_error("{" GPU ",\"intra_node\":{\"kind\":\"tin cans\"}}", "unknown word 'tin cans'");
    check_error("{" GPU ",\"nodes\":2}",
                "inter_node.kind: the key is missing where there are several nodes");
    check_error("{" GPU ",\"nodes\":2,\"inter_node\":{\"kind\":\"none\"}}",
                "inter_node.kind: 'none' does not connect 2 nodes");
    check_error("{" GPU ",\"nodes\":2,\"inter_node\":{\"kind\":\"rail\"}}",
                "inter_node.GBps_per_nic: the key is missing");
    check_error("{" GPU ",\"inter_node\":{\"oversubscription\":0.5}}", "0.5 is out of range");
    check_error("{" GPU ",\"inter_node\":{\"latency_us\":\"x\"}}", "inter_node.latency_us");
    check_error("{" GPU ",\"provenance\":7}", "a text or an object of texts is expected");
    check_error("{" GPU ",\"provenance\":{\"a\":7}}", "provenance.a: a text is expected");
}

static void errors_of_curves(void)
{
    check_error("{" TWO GPU ",\"collectives\":{\"intra_efficiency\":[]}}",
                "intra_efficiency: a number, or a list of 1 to 16 [ranks, number]");
    check_error("{" TWO GPU ",\"collectives\":{\"intra_efficiency\":[[2,0.5],[2,0.6]]}}",
                "intra_efficiency[1]: ranks are whole numbers that ascend");
    check_error("{" TWO GPU ",\"collectives\":{\"intra_efficiency\":[[2,1.5]]}}",
                "1.5 is out of range, 0.001 to 1 allowed");
    check_error("{" TWO GPU ",\"collectives\":{\"intra_efficiency\":[7]}}",
                "intra_efficiency[0]: a list of 2 numbers");
    check_error("{" TWO GPU ",\"collectives\":{\"magic\":1}}",
                "collectives.magic: unknown key");
}

#define MEASURED(entry) "{" TWO GPU ",\"collectives\":{\"measured\":[" entry "]}}"
#define ENTRY(op, ranks, nodes, more) \
    "{\"op\":\"" op "\",\"ranks\":" ranks ",\"nodes\":" nodes \
    ",\"latency_us\":1,\"GBps\":1" more "}"

static void errors_of_measured_collectives(void)
{
    check_error("{" TWO GPU ",\"collectives\":{\"measured\":7}}",
                "collectives.measured: a list of up to 512 objects is expected");
    check_error(MEASURED("7"), "measured[0]: an object is expected");
    check_error(MEASURED(ENTRY("scan", "2", "1", "")), "all_reduce, all_gather");
    check_error(MEASURED(ENTRY("reduce", "1", "1", "")), "ranks: 1 is out of range");
    check_error(MEASURED(ENTRY("reduce", "3", "2", "")),
                "measured[0]: 3 ranks do not lie evenly on 2 nodes");
    check_error(MEASURED(ENTRY("reduce", "2", "1", ",\"sizes\":[]")),
                "sizes: a list of 1 to 256 [bytes, us] is expected");
    check_error(MEASURED(ENTRY("reduce", "2", "1", ",\"sizes\":[[8,1],[8,2]]")),
                "sizes[1]: bytes ascend, 1 to 1e15, with a time above 0");
    check_error(MEASURED(ENTRY("reduce", "2", "1", ",\"sizes\":[[8,0]]")),
                "with a time above 0");
    check_error(MEASURED(ENTRY("reduce", "2", "1", "") "," ENTRY("reduce", "2", "1", "")),
                "measured: 2 ranks on 1 nodes stand here twice for one op");
    check_error("{" TWO GPU ",\"collectives\":{\"ideal\":true,\"measured\":[" ENTRY(
                    "reduce", "2", "1", "") "]}}",
                "measured: nothing is measured where collectives are ideal");
}

static void huge_clusters_are_refused(void)
{
    check_error("{\"base\":\"ideal\",\"nodes\":1048577}", "1 to 1048576 allowed");
    check_error("{\"base\":\"ideal\",\"nodes\":1048576,\"gpus_per_node\":1000000}",
                "1048576000000 GPUs, at most 16777216 allowed");
    check_error("{\"base\":\"ideal\",\"node_types\":[{\"count\":1048576},{\"count\":2}]}",
                "1048578 nodes, at most 1048576 allowed");
    check_error("{\"base\":\"ideal\",\"nodes\":1e300}", "nodes");
}

static void errors_of_node_types(void)
{
    check_error("{\"base\":\"ideal\",\"node_types\":[]}", "a list of 1 to 1024 node types");
    check_error("{\"base\":\"ideal\",\"node_types\":[{}]}", "node_types[0].count: the key is");
    check_error("{\"base\":\"ideal\",\"nodes\":3,\"node_types\":[{\"count\":2}]}",
                "nodes: 3 nodes, but the counts of node_types add up to 2");
    char dir[] = P_tmpdir "/lockstep-machine-XXXXXX", path[300], json[400];
    if (!CHECK(mkdtemp(dir) != NULL))
        return;
    snprintf(path, sizeof path, "%s/m.json", dir);
    write_text(path, "{\"base\":\"ideal\",\"node_types\":[{\"count\":2}]}");
    snprintf(json, sizeof json, "{\"base\":\"%s\",\"nodes\":3}", path);
    check_error(json, "nodes: the base has node_types, give node_types instead");
    unlink(path);
    rmdir(dir);
}

static void errors_of_stragglers(void)
{
    check_error("{\"base\":\"ideal\",\"stragglers\":7}", "stragglers: a list of objects");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{}]}", "either 'ranks' or 'link'");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"ranks\":7,\"compute\":1}]}",
                "stragglers[0].ranks: a list of ranks is expected");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"ranks\":[0.5],\"compute\":1}]}",
                "stragglers[0].ranks[0]: ranks are whole numbers from 0");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"ranks\":[0]}]}",
                "stragglers[0].compute: the key is missing");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"ranks\":[8],\"compute\":1}]}",
                "there is no rank 8, the cluster has 8 GPUs");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"ranks\":[1,1],\"compute\":1}]}",
                "rank 1 stands here twice");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"link\":[1,1],\"GBps\":1}]}",
                "two different ranks are expected");
    check_error("{\"base\":\"ideal\",\"stragglers\":[{\"link\":[1,99],\"GBps\":1}]}",
                "there is no rank 99");
}

/* ---- other people's clusters ---- */

static void the_clusters_of_published_runs_read(void)
{
    FILE *f = fopen("../shared/data/validation/published.jsonl", "r");
    if (!f) {
        printf("  skipped: ../shared/data/validation/published.jsonl is not there\n");
        return;
    }
    char *line = NULL;
    size_t cap = 0;
    uint32_t n = 0;
    for (ssize_t got; (got = getline(&line, &cap, f)) > 0; n++) {
        Err err = { 0 };
        Machine m;
        JsonDoc *doc = json_parse(line, (size_t)got, "published", &err);
        bool ok = doc && machine_read(&m, json_member(json_root(doc), "cluster"), share, &err);
        if (!CHECK(ok))
            fprintf(stderr, "    line %u: %s\n", (unsigned)n + 1, err.text);
        if (ok)
            machine_free(&m);
        json_close(doc);
    }
    CHECK(n > 200);
    free(line);
    fclose(f);
}

int main(void)
{
    RUN(every_gpu_reads);
    RUN(memory_is_what_the_driver_reports);
    RUN(types_of_a_generation_are_there_or_not);
    RUN(every_file_in_gpus_and_clusters_reads);
    RUN(clusters_of_the_contract_are_what_they_say);
    RUN(aliases_find_a_gpu_that_has_no_file_of_that_name);
    RUN(names_of_two_files_are_of_different_gpus);
    RUN(export_versions_are_the_gpus_they_are_made_of);
    RUN(names_of_files_may_be_written_in_capitals);
    RUN(the_object_lies_over_its_base);
    RUN(a_gpu_object_without_base_changes_the_gpu_of_the_base_cluster);
    RUN(paths_are_relative_to_the_file_they_stand_in);
    RUN(the_log_says_where_each_value_came_from);
    RUN(links_that_say_nothing_get_nccls_latencies);
    RUN(a_scale_of_ones_own_is_from_no_stack);
    RUN(slow_ethernet_is_filled_but_for_its_headers);
    RUN(a_given_latency_holds_for_all_protocols_or_each);
    RUN(ideal_collectives_cost_latency_and_bandwidth_only);
    RUN(a_curve_is_straight_between_its_points);
    RUN(ll_is_slow_between_nodes);
    RUN(what_collectives_send_is_the_slower_of_ports_and_nics);
    RUN(a_rank_is_where_counting_finds_it);
    RUN(a_million_nodes_are_placed_without_a_list);
    RUN(stragglers_are_slow_and_links_between_two_ranks);
    RUN(tables_are_sorted_and_columns_stand_in_any_order);
    RUN(errors_of_tables_name_the_row);
    RUN(errors_name_file_key_and_what_is_allowed);
    RUN(errors_of_curves);
    RUN(errors_of_measured_collectives);
    RUN(huge_clusters_are_refused);
    RUN(hosts_are_nodes_or_parts_of_them);
    RUN(errors_of_node_types);
    RUN(errors_of_stragglers);
    RUN(the_clusters_of_published_runs_read);
    return check_report();
}
