/*
 * A program with instances woven in: whatever is kept in one go is as if it were kept one by one,
 * wherever something is woven in between, or waits for more than it did.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/strategy/parts.h"
#include "tests/check.h"

enum { INSTANCES = 40, CASES = 300 };

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = mix_u64(*state);
    return (uint32_t)(*state % n);
}

static Role some_program(uint64_t *state)
{
    Role r = { 0 };
    for (uint32_t i = 0; i < INSTANCES; i++) {
        role_instance(&r, draw(state, 5), i / 4, draw(state, 3), 0);
        for (uint32_t e = draw(state, 3); e > 0 && i > 0; e--)
            role_edge(&r, draw(state, 4), draw(state, i), draw(state, 4));
    }
    return r;
}

static Role copy_of(const Role *r)
{
    Role copy = *r;
    copy.instances = mem_resize(NULL, r->instances_cap, sizeof *r->instances);
    copy.edges = mem_resize(NULL, r->edges_cap + 1, sizeof *r->edges);
    memcpy(copy.instances, r->instances, r->instances_n * sizeof *r->instances);
    if (r->edges_n > 0)
        memcpy(copy.edges, r->edges, r->edges_n * sizeof *r->edges);
    return copy;
}

static void free_role(Role *r)
{
    free(r->instances);
    free(r->edges);
}

/* Behind every stretch that is kept: nothing, one more wait of its last, one more instance, or one
 * that waits. */
static void weave_some(Role *r, uint64_t state, bool at_once)
{
    Weave w;
    weave_begin(&w, r, 2);
    while (weave_left(&w)) {
        uint32_t end = w.next + 1 + draw(&state, INSTANCES - w.next);
        if (at_once)
            weave_keep_to(&w, end);
        while (w.next < end)
            weave_keep(&w);
        uint32_t what = draw(&state, 4);
        if (what & 2)
            role_instance(r, 7, NONE_U32, NONE_U32, NONE_U32);
        if (what & 1 && r->instances_n > 1)
            role_edge(r, 1, draw(&state, r->instances_n - 1), 2);
    }
    weave_end(&w);
}

static void kept_in_one_go_as_one_by_one(void)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < CASES; i++) {
        Role a = some_program(&state), b = copy_of(&a);
        weave_some(&a, state, false);
        weave_some(&b, state, true);
        CHECK_U64(a.edges_n, b.edges_n);
        if (CHECK(a.instances_n == b.instances_n && a.edges_n == b.edges_n)) {
            CHECK(memcmp(a.instances, b.instances, a.instances_n * sizeof *a.instances) == 0);
            CHECK(memcmp(a.edges, b.edges, a.edges_n * sizeof *a.edges) == 0);
        }
        free_role(&a);
        free_role(&b);
    }
}

int main(void)
{
    RUN(kept_in_one_go_as_one_by_one);
    return check_report();
}
