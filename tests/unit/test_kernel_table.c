/*
 * test_kernel_table.c - no op kind is forgotten: each is computed, or communication, or needs
 * nothing, or is one of those that nobody has yet.
 */
#include <string.h>

#include "exec/kernel.h"
#include "exec/kernel_table.h"
#include "tests/check.h"

typedef struct Row {
    OpKind kind;
    const char *cpu, *cuda;
} Row;

#define ROW(kind, cpu, cuda) { kind, #cpu, #cuda },
static const Row rows[] = { KERNEL_TABLE(ROW) };

static int rows_of(OpKind kind)
{
    int n = 0;
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        n += rows[i].kind == kind;
    return n;
}

static bool needs_none(OpKind kind)
{
    return op_is_comm(kind) || kind == OP_H2D || kind == OP_HOST_WAIT || kind == OP_RELEASE;
}

static bool nobody_has(OpKind kind)
{
    return kind == OP_CONV || kind == OP_POOL;
}

static void every_op_kind_has_one_place(void)
{
    for (int kind = 0; kind < OP_KIND_N; kind++) {
        int n = rows_of((OpKind)kind) + needs_none((OpKind)kind) + nobody_has((OpKind)kind);
        if (!CHECK_INT(1, n))
            fprintf(stderr, "%s\n", op_kind_names[kind]);
        CHECK_INT(rows_of((OpKind)kind), cpu_kernels[kind] != NULL);
    }
}

/* kernel_norm is launched by launch_norm: twins have one name. */
static void both_kernels_of_a_row_are_twins(void)
{
    for (size_t i = 0; i < ARRAY_N(rows); i++)
        CHECK_STR(strchr(rows[i].cpu, '_'), strchr(rows[i].cuda, '_'));
}

int main(void)
{
    RUN(every_op_kind_has_one_place);
    RUN(both_kernels_of_a_row_are_twins);
    return check_report();
}
