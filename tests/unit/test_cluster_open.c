/* A cluster by itself: its own nodes or others, keys that are set, and what is wrong with them. */
#include "sim/cluster_open.h"

#include "tests/check.h"

static void keys_are_set_and_nodes_come_last(void)
{
    Machine m;
    Err err = { 0 };
    const Setting set[] = { { "nodes", "3" }, { "inter_node.nics_per_node", "4" } };
    if (CHECK(cluster_open(&m, "dgx-h100", 0, NULL, 0, &err)))
        CHECK_U64(1, m.nodes_n);
    machine_free(&m);
    if (CHECK(cluster_open(&m, "dgx-h100", 0, set, 2, &err))) {
        CHECK_U64(24, m.gpus_n);
        CHECK_U64(4, m.inter.nics_per_node);
    }
    machine_free(&m);
    if (CHECK(cluster_open(&m, "dgx-h100", 5, set, 2, &err)))
        CHECK_U64(5, m.nodes_n);
    machine_free(&m);
}

static void what_is_wrong_is_named(void)
{
    static const struct {
        const char *name;
        Setting set;
        const char *text;
    } cases[] = {
        { "dgx-h1", { 0 }, "cluster: no cluster named 'dgx-h1'" },
        { "a\"b\\c", { 0 }, "cluster: no cluster named 'a\"b\\c'" },
        { "", { 0 }, "cluster: no cluster named ''" },
        { "none.json", { 0 }, "cluster: cannot open 'none.json'" },
        { "ideal", { "nods", "2" }, "--set nods: unknown key" },
        { "ideal", { "nodes", "0" }, "--set nodes: 0 is out of range" },
        { "ideal", { "nodes", "two" }, "--set nodes: a number is expected" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Machine m;
        Err err = { 0 };
        CHECK(
            !cluster_open(&m, cases[i].name, 0, &cases[i].set, cases[i].set.key ? 1 : 0, &err));
        CHECK_ERR_TEXT(&err, cases[i].text);
        CHECK(m.types == NULL);
    }
}

int main(void)
{
    RUN(keys_are_set_and_nodes_come_last);
    RUN(what_is_wrong_is_named);
    return check_report();
}
