/*
 * tape.c - recording; see tape.h for the idea.
 */
#include "sim/tape.h"

#include <stdlib.h>

void tape_free(Tape *t)
{
    free(t->values);
    free(t->ops);
    *t = (Tape){ 0 };
}

uint64_t value_elements(const TapeValue *v)
{
    return v->rows * v->columns;
}

uint64_t value_bytes(const TapeValue *v)
{
    return value_elements(v) * dtype_bytes(v->dtype);
}

static uint64_t mix_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = mix_u64(h ^ (unsigned char)*text);
    return mix_u64(h);
}

uint64_t tape_numbering(const Tape *t)
{
    uint64_t h = mix_u64(t->ops_n);
    for (uint32_t i = 0; i < t->ops_n; i++) {
        const TapeOp *op = &t->ops[i];
        h = mix_text(h ^ (uint64_t)op->kind, op->name);
        for (uint32_t p = 0; p < op->param_n; p++) {
            const TapeValue *w = &t->values[op->param[p]];
            h = mix_u64(h ^ w->rows) ^ w->columns;
        }
    }
    return mix_u64(h) | 1;
}

uint32_t tape_value(Tape *t, TapeValue value)
{
    GROW(t->values, t->values_n, t->values_cap);
    value.memory = t->values_n;
    t->values[t->values_n] = value;
    return t->values_n++;
}

uint32_t tape_made(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns)
{
    return tape_value(t, (TapeValue){ .name = name,
                                      .home = VALUE_MADE,
                                      .dtype = dtype,
                                      .rows = rows,
                                      .columns = columns });
}

uint32_t tape_input(Tape *t, DType dtype, uint64_t rows, uint64_t columns)
{
    uint32_t v = tape_made(t, "input", dtype, rows, columns);
    t->values[v].home = VALUE_IN;
    return t->in = v;
}

uint32_t tape_data(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns)
{
    uint32_t v = tape_made(t, name, dtype, rows, columns);
    t->values[v].home = VALUE_DATA;
    t->values[v].tensor = t->data_n++;
    return v;
}

uint32_t tape_param(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns)
{
    uint32_t v = tape_made(t, name, dtype, rows, columns);
    t->values[v].home = VALUE_PARAM;
    t->values[v].tensor = t->params_n++;
    return v;
}

TapeOp *tape_op(Tape *t, TapeOp op)
{
    ASSERT(op.in_n <= TAPE_IN_MAX && op.aux_n <= TAPE_AUX_MAX && op.param_n <= TAPE_PARAM_MAX);
    GROW(t->ops, t->ops_n, t->ops_cap);
    t->ops[t->ops_n] = op;
    return &t->ops[t->ops_n++];
}

uint32_t tape_matmul(Tape *t, const char *name, DType dtype, uint32_t x, uint32_t w, TapeTp tp)
{
    TapeValue in = t->values[x], weight = t->values[w];
    ASSERT(in.columns == weight.columns);
    uint32_t y = tape_made(t, name, in.dtype, in.rows, weight.rows);
    tape_op(t, (TapeOp){ .kind = OP_MATMUL,
                         .name = name,
                         .dtype = dtype,
                         .in_n = 1,
                         .in = { x },
                         .param_n = 1,
                         .param = { w },
                         .out = y,
                         .tp = tp });
    return y;
}

uint32_t tape_in_place(Tape *t, TapeOp op)
{
    TapeValue v = t->values[op.in[0]];
    uint32_t memory = v.memory;
    v.home = VALUE_MADE;
    v.name = op.name;
    uint32_t y = tape_value(t, v);
    t->values[y].memory = memory;
    op.out = y;
    op.in_place = true;
    tape_op(t, op);
    return y;
}

static bool reads_wide(const Tape *t, const TapeOp *op, DType dtype)
{
    bool multiplies = op->kind == OP_MATMUL || op->kind == OP_CONV;
    return multiplies && op->dtype == dtype && t->values[op->param[0]].dtype == DTYPE_F32;
}

void tape_cast_weights(Tape *t, DType dtype)
{
    for (uint32_t i = 0; i < t->ops_n; i++) {
        TapeOp *op = &t->ops[i];
        if (!reads_wide(t, op, dtype))
            continue;
        const TapeValue *w = &t->values[op->param[0]];
        const char *name = arena_printf(t->arena, "%s in %s", w->name, dtype_names[dtype]);
        op->cast = tape_made(t, name, dtype, w->rows, w->columns);
    }
}
