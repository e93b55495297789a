/*
 * blocks_mlp.c - a multi-layer perceptron: one block per linear layer.
 *
 *     features -> linear [-> batch norm]                                 block 0
 *                 activation -> linear [-> batch norm]                   block 1 ...
 *                               activation -> linear -> loss             the last
 *
 * The activation opens the next block: relu then works in place of the boundary
 * activation, which is saved once, as torch.nn.ReLU followed by Linear saves it.
 *
 * Under tensor parallelism even layers share out their outputs and odd ones their
 * inputs, so that every second boundary is a part of the columns.
 */
#include "sim/blocks.h"

typedef struct Layer {
    uint32_t in, out;
    bool first, last, row; /* row: row-parallel */
} Layer;

static uint32_t activate(Build *b, Tape *t, uint32_t x, Activation act)
{
    if (act != ACT_RELU)
        return tape_activation(b, t, x, act, false);
    return tape_in_place(t, (TapeOp){ .kind = OP_ACTIVATION,
                                      .fn = FN_RELU,
                                      .name = "activation",
                                      .dtype = t->values[x].dtype,
                                      .in_n = 1,
                                      .in = { x } });
}

static void add_loss(Build *b, Tape *t, uint32_t y)
{
    TapeValue v = t->values[y];
    if (b->s->training.loss_mse)
        tape_mse(b, t, y, tape_data(t, "targets", v.dtype, v.rows, v.columns));
    else
        tape_cross_entropy(b, t, y, tape_data(t, "labels", DTYPE_I64, v.rows, 1));
}

static void make_layer(Build *b, Tape *t, const Mlp *m, Layer l)
{
    DType dtype = act_dtype(&b->s->training);
    uint32_t x;
    if (l.first) {
        x = tape_data(t, "features", dtype, b->rows, l.in);
    } else {
        x = tape_input(t, dtype, b->rows, l.in);
        t->values[x].split = l.row ? SPLIT_COLUMNS : SPLIT_WHOLE;
        x = activate(b, t, x, m->activation);
    }
    LinearSpec spec = {
        .name = "linear", .columns = l.out, .bias = m->bias, .tp = l.row ? TP_ROW : TP_COLUMN
    };
    uint32_t y = tape_linear(b, t, x, &spec);
    if (l.last) {
        add_loss(b, t, y);
        return;
    }
    t->out = m->batchnorm ? tape_batchnorm(b, t, y, "batchnorm") : y;
}

static bool same(Layer a, Layer b)
{
    return a.in == b.in && a.out == b.out && a.first == b.first && a.last == b.last &&
           a.row == b.row;
}

bool plan_mlp(Build *b, ModelPlan *p, Err *err)
{
    const Mlp *m = &b->s->model.u.mlp;
    (void)err;
    uint32_t layers = m->widths_n - 1;
    Layer kind[MLP_WIDTHS_MAX];
    b->rows = b->s->training.micro_batch;
    b->blocks = PUSH_ARRAY(&b->arena, Block, layers);
    for (uint32_t i = 0; i < layers; i++) {
        Layer l = { .in = m->widths[i],
                    .out = m->widths[i + 1],
                    .first = i == 0,
                    .last = i + 1 == layers,
                    .row = i % 2 == 1 && b->s->parallel.tp > 1 };
        uint32_t type = 0;
        while (type < p->types_n && !same(kind[type], l))
            type++;
        if (type == p->types_n) {
            kind[type] = l;
            make_layer(b, &plan_type(b, p, "layer", BLOCK_LAYER)->tape, m, l);
        }
        plan_block(b, BLOCK_LAYER, i, type);
    }
    return true;
}
