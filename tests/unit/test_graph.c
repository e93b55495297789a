/* Groups, building, sealing, looking up. */
#include "tests/check.h"
#include "tests/small_world.h"

/* Members listed by definition: ranks that differ from r in the group's coordinates only. */
static void groups_hold_the_ranks_that_differ_in_their_coordinates(void)
{
    /* tp 2 (stride 1), cp 3 (stride 2), dp 2 (stride 6), pp 2 (stride 12) */
    const uint32_t world = 24;
    const GroupSpec s = { .dims_n = 2, .dims = { { 2, 3, 1, 3 }, { 6, 2, 1, 2 } } };
    CHECK_U64(6, group_size(&s));
    for (uint32_t r = 0; r < world; r++) {
        uint32_t n = 0;
        for (uint32_t q = 0; q < world; q++) {
            bool same = q % 2 == r % 2 && q / 12 == r / 12;
            if (!same)
                continue;
            CHECK_U64(q, group_member(&s, r, n));
            CHECK_U64(n, group_index(&s, q));
            CHECK_U64(group_member(&s, r, 0), group_base(&s, q));
            n++;
        }
        CHECK_U64(6, n);
    }
}

static void a_group_of_first_and_last_stage_has_two_members(void)
{
    const GroupSpec s = { .dims_n = 1, .dims = { { 4, 8, 7, 2 } } };
    CHECK_U64(2, group_size(&s));
    for (uint32_t r = 0; r < 32; r++)
        CHECK(group_has(&s, r) == (r / 4 == 0 || r / 4 == 7));
    CHECK_U64(3 + 28, group_member(&s, 3, 1));
    CHECK_U64(1, group_index(&s, 31));
    CHECK_U64(3, group_base(&s, 31));
}

static void op_ids_count_through_the_instances(void)
{
    Graph g;
    graph_begin(&g, 1, 1);
    uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "three");
    for (uint32_t i = 0; i < 3; i++) {
        Op o = kernel(&g, i == 1 ? LANE_TP : LANE_COMPUTE, 1);
        o.logical = i / 2;
        graph_op(&g, o);
    }
    for (uint32_t i = 0; i < 5; i++)
        role_instance(&g.roles[0], s, i, 0, 0);
    graph_seal(&g);
    CHECK_U64(15, g.roles[0].ops_n);
    CHECK_U64(2, g.segments[s].logical_n);
    CHECK_U64(2, g.segments[s].lane_n[LANE_COMPUTE]);
    CHECK_U64(1, g.ops[2].lane_index);
    for (uint32_t id = 0; id < 15; id++) {
        OpRef ref = graph_find_op(&g, &g.roles[0], id);
        CHECK_U64(id / 3, ref.instance);
        CHECK_U64(id % 3, ref.op);
        CHECK_U64(id, ref.i->first_op + ref.op);
    }
    graph_free(&g);
}

static void a_kernel_may_be_several_logical_ops(void)
{
    Graph g;
    graph_begin(&g, 1, 1);
    uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "fused");
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    graph_logical(&g, 0);
    graph_logical(&g, 4);
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    role_instance(&g.roles[0], s, 0, 0, 0);
    graph_seal(&g);
    CHECK_U64(5, g.segments[s].logical_n);
    CHECK(g.ops[0].logical_n == 2 && g.logicals[g.ops[0].logical_first + 1] == 4);
    CHECK_INT(0, g.ops[1].logical_n);
    graph_free(&g);
}

/* born 100, born 30 dies at once, 100 dies: peak 130, delta 0; then a leftover of 7. */
static void memory_of_a_segment_follows_births_and_deaths(void)
{
    Graph g;
    graph_begin(&g, 1, 1);
    uint32_t layout = graph_layout(&g);
    const uint64_t bytes[] = { 100, 30, 7 };
    for (int i = 0; i < 3; i++)
        graph_tensor(&g, (Tensor){ .name = intern(&g.names, "t"), .bytes = bytes[i] });
    uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "memory");
    g.segments[s].layout[SLOT_LOCAL] = layout;
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    graph_arg(&g, SLOT_LOCAL, 0, ARG_WRITE, true, false);
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    graph_arg(&g, SLOT_LOCAL, 1, ARG_WRITE, true, true);
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    graph_arg(&g, SLOT_LOCAL, 0, ARG_READ, false, true);
    graph_arg(&g, SLOT_LOCAL, 2, ARG_WRITE, true, false);
    role_instance(&g.roles[0], s, 0, 0, 0);
    graph_seal(&g);
    CHECK_INT(130, g.segments[s].memory_peak);
    CHECK_INT(7, g.segments[s].memory_delta);
    int64_t by_class = 0;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        by_class += g.segments[s].memory_delta_of[c];
    CHECK_INT(7, by_class);
    CHECK_STR("t",
              intern_text(&g.names, graph_arg_tensor(&g, &g.segments[s], &g.args[0])->name));
    graph_free(&g);
}

/* A segment and an instance made like others have what those have, but ops and edges. */
static void likenesses_have_all_but_ops_and_edges(void)
{
    Graph g;
    graph_begin(&g, 1, 1);
    graph_reserve(&g, 2, 3, 40);
    uint32_t layout = graph_layout(&g);
    for (int i = 0; i < 20; i++)
        graph_tensor(&g, (Tensor){ .class_ = TENSOR_ACTIVATION, .bytes = 1 });
    uint32_t first = graph_segment(&g, SEGMENT_GATHER, "first");
    g.segments[first].layout[SLOT_IN] = layout;
    g.segments[first].logical_n = 5;
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    Segment other = g.segments[first];
    uint32_t second = graph_segment_like(&g, &other);
    const Segment *s = &g.segments[second];
    CHECK(s->kind == SEGMENT_GATHER && s->name == other.name && s->logical_n == 5);
    CHECK(s->op_n == 0 && s->op_first == 1 && s->lanes == 0);
    for (int slot = 0; slot < SLOT_N; slot++)
        CHECK_U64(other.layout[slot], s->layout[slot]);

    Arg args[20] = { { 0 } };
    for (uint32_t i = 0; i < 20; i++)
        args[i] = (Arg){ SLOT_IN, ARG_READ, false, i % 2 == 0, i };
    graph_op(&g, kernel(&g, LANE_COMPUTE, 1));
    graph_args(&g, args, 20);
    graph_arg(&g, SLOT_IN, 0, ARG_WRITE, true, false);
    CHECK_U64(21, g.ops[1].arg_n);
    for (uint32_t i = 0; i < 20; i++)
        CHECK(memcmp(&g.args[g.ops[1].arg_first + i], &args[i], sizeof *args) == 0);

    Role *role = &g.roles[0];
    uint32_t frame = role_frame(role, (Frame){ layout, 3, false });
    role_instance(role, first, 0, 0, 0);
    uint32_t a = role_instance(role, second, 1, 3, 2);
    role->instances[a].frame[SLOT_IN] = frame;
    role_edge(role, 0, 0, 0);
    Instance from = role->instances[a];
    uint32_t b = role_instance_like(role, &from);
    const Instance *like = &role->instances[b];
    CHECK(like->segment == second && like->micro_batch == 1 && like->layer == 3);
    CHECK(like->chunk == 2 && like->edge_n == 0 && like->edge_first == role->edges_n);
    for (int slot = 0; slot < SLOT_N; slot++)
        CHECK_U64(slot == SLOT_IN ? frame : NONE_U32, like->frame[slot]);
    graph_seal(&g);
    graph_free(&g);
}

static void edges_are_kept_in_the_order_of_their_ops(void)
{
    Graph g;
    graph_begin(&g, 1, 1);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 1));
    uint32_t s = graph_segment(&g, SEGMENT_FORWARD, "two");
    graph_op(&g, kernel(&g, LANE_TP, 1));
    graph_op(&g, kernel(&g, LANE_TP, 1));
    role_instance(&g.roles[0], s, 0, 0, 0);
    role_edge(&g.roles[0], 1, a, 0);
    role_edge(&g.roles[0], 0, a, 0);
    graph_seal(&g);
    CHECK_U64(0, g.roles[0].edges[0].dst_op);
    CHECK_U64(1, g.roles[0].edges[1].dst_op);
    graph_free(&g);
}

static void a_dump_names_what_is_in_the_graph(void)
{
    Graph g;
    Err err = { 0 };
    graph_begin(&g, 2, 1);
    uint32_t dp = graph_group(&g, "dp", &(GroupDim){ 1, 2, 1, 2 }, 1);
    uint32_t a = add(&g, 0, kernel(&g, LANE_COMPUTE, 5));
    add(&g, 0, transfer(&g, OP_ALL_REDUCE, LANE_REDUCE, dp, 1024));
    after(&g, 0, a);
    graph_seal(&g);
    char path[] = P_tmpdir "/lockstep-dump-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(graph_dump(&g, path, &err));
    FILE *f = fopen(path, "r");
    char text[8192] = { 0 };
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0);
    CHECK(strstr(text, "\"kind\": \"all_reduce\"") != NULL);
    CHECK(strstr(text, "\"bytes\": 1024") != NULL);
    CHECK(strstr(text, "\"after_instance\": 0") != NULL);
    fclose(f);
    remove(path);
    CHECK(!graph_dump(&g, "/nonexistent/x", &err));
    CHECK_ERR_TEXT(&err, "cannot create '/nonexistent/x'");
    err_clear(&err);
    CHECK(!graph_dump(&g, "/dev/full", &err));
    CHECK_ERR_TEXT(&err, "cannot write");
    graph_free(&g);
}

int main(void)
{
    RUN(groups_hold_the_ranks_that_differ_in_their_coordinates);
    RUN(a_group_of_first_and_last_stage_has_two_members);
    RUN(op_ids_count_through_the_instances);
    RUN(a_kernel_may_be_several_logical_ops);
    RUN(memory_of_a_segment_follows_births_and_deaths);
    RUN(likenesses_have_all_but_ops_and_edges);
    RUN(edges_are_kept_in_the_order_of_their_ops);
    RUN(a_dump_names_what_is_in_the_graph);
    return check_report();
}
