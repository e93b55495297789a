/*
 * blocks_convnet.c - ResNet v1.5 as torchvision builds it, block by block.
 *
 *     stem         conv 7x7/2 -- bn -- relu -- maxpool 3x3/2
 *     bottleneck   relu -+- conv1 1x1 bn relu -- conv2 3x3 bn relu -- conv3 1x1 bn -- (+) -> out
 *                        +- [shortcut 1x1 bn, where the shape changes] ----------------+
 *     head         relu -- average -- linear -- loss
 *
 * A value's rows are pixels (images x height x width), its columns channels; a
 * convolution is a matmul over patches.  The relu after a sum opens the next
 * block, in place (the first bottleneck has none: the stem ends in one).
 */
#include "sim/blocks.h"

typedef struct Maker {
    Build *b;
    Tape *t;
    uint64_t batch, side; /* side: height = width of the current value */
} Maker;

static uint32_t conv(Maker *k, uint32_t x, const char *name, uint64_t channels, uint64_t kernel,
                     uint64_t stride)
{
    Tape *t = k->t;
    TapeValue in = t->values[x];
    uint64_t side = div_up_u64(k->side, stride); /* padded: half of odd sizes rounds up */
    uint32_t w = tape_param(t, arena_printf(&k->b->arena, "%s.weight", name),
                            build_formats(k->b).read, channels, in.columns * kernel * kernel);
    uint32_t y = tape_made(t, name, in.dtype, k->batch * side * side, channels);
    tape_op(t, (TapeOp){ .kind = OP_CONV,
                         .name = name,
                         .dtype = matmul_dtype(&k->b->s->training),
                         .in_n = 1,
                         .in = { x },
                         .param_n = 1,
                         .param = { w },
                         .out = y,
                         .patch = kernel * kernel });
    return tape_batchnorm(k->b, t, y, arena_printf(&k->b->arena, "%s.bn", name));
}

static uint32_t relu(Maker *k, uint32_t x)
{
    return tape_in_place(k->t, (TapeOp){ .kind = OP_ACTIVATION,
                                         .fn = FN_RELU,
                                         .name = "relu",
                                         .dtype = k->t->values[x].dtype,
                                         .in_n = 1,
                                         .in = { x } });
}

/* A maximum remembers where it was found; indices are i64 in PyTorch. */
static uint32_t pool(Maker *k, uint32_t x, uint64_t side, bool maximum)
{
    Tape *t = k->t;
    TapeValue in = t->values[x];
    uint64_t rows = k->batch * side * side;
    TapeOp op = { .kind = OP_POOL,
                  .name = maximum ? "maxpool" : "avgpool",
                  .dtype = in.dtype,
                  .in_n = 1,
                  .in = { x },
                  .patch = maximum ? 9 : k->side * k->side };
    op.out = tape_made(t, op.name, in.dtype, rows, in.columns);
    if (maximum) {
        op.aux[0] = tape_made(t, "pool indices", DTYPE_I64, rows, in.columns);
        op.aux_n = 1;
    }
    tape_op(t, op);
    k->side = side;
    return op.out;
}

static uint32_t input(Maker *k, uint64_t channels)
{
    return tape_input(k->t, act_dtype(&k->b->s->training), k->batch * k->side * k->side,
                      channels);
}

static void make_stem(Maker *k, const Convnet *c)
{
    k->side = c->image;
    uint32_t x = tape_data(k->t, "images", act_dtype(&k->b->s->training),
                           k->batch * k->side * k->side, c->channels_in);
    x = conv(k, x, "stem", c->stem_width, 7, 2);
    k->side = div_up_u64(k->side, 2);
    k->t->out = pool(k, relu(k, x), div_up_u64(k->side, 2), true);
}

typedef struct Bottleneck {
    uint64_t in, inner, out, stride;
    bool shortcut, after_stem;
} Bottleneck;

static void make_bottleneck(Maker *k, const Bottleneck *s)
{
    uint32_t x = input(k, s->in);
    if (!s->after_stem)
        x = relu(k, x);
    uint32_t y = relu(k, conv(k, x, "conv1", s->inner, 1, 1));
    y = relu(k, conv(k, y, "conv2", s->inner, 3, s->stride));
    uint64_t side = k->side;
    k->side = div_up_u64(side, s->stride);
    y = conv(k, y, "conv3", s->out, 1, 1);
    if (s->shortcut) {
        k->side = side;
        x = conv(k, x, "shortcut", s->out, 1, s->stride);
        k->side = div_up_u64(side, s->stride);
    }
    k->t->out = tape_add(k->b, k->t, x, y);
}

static void make_head(Maker *k, const Convnet *c, uint64_t channels)
{
    uint32_t x = pool(k, relu(k, input(k, channels)), 1, false);
    LinearSpec fc = { .name = "fc", .columns = c->classes, .bias = true };
    uint32_t y = tape_linear(k->b, k->t, x, &fc);
    tape_cross_entropy(k->b, k->t, y, tape_data(k->t, "labels", DTYPE_I64, k->batch, 1));
}

/* The first block of a stage changes the shape, the others are alike. */
static uint64_t add_stage(Maker *k, ModelPlan *p, const Convnet *c, uint32_t stage, uint64_t in)
{
    Bottleneck s = { .in = in, .inner = c->widths[stage], .stride = stage > 0 ? 2 : 1 };
    s.out = s.inner * c->expansion;
    s.shortcut = stage > 0 || s.in != s.out;
    s.after_stem = stage == 0;
    uint64_t side = k->side;
    for (uint32_t i = 0; i < c->blocks[stage]; i++) {
        if (i < 2) {
            k->t = &plan_type(k->b, p, "bottleneck", BLOCK_LAYER)->tape;
            k->side = side;
            make_bottleneck(k, &s);
            side = k->side;
            s = (Bottleneck){ .in = s.out, .inner = s.inner, .out = s.out, .stride = 1 };
        }
        plan_block(k->b, BLOCK_LAYER, k->b->blocks_n, p->types_n - 1);
    }
    return s.out;
}

bool plan_convnet(Build *b, ModelPlan *p, Err *err)
{
    const Convnet *c = &b->s->model.u.convnet;
    if (b->s->parallel.tp > 1)
        return err_set(err,
                       "tensor parallelism cannot split a convolutional network; tp = 1 is "
                       "allowed");
    uint32_t blocks_n = 2;
    for (uint32_t i = 0; i < c->stages_n; i++)
        blocks_n += c->blocks[i];
    b->blocks = PUSH_ARRAY(&b->arena, Block, blocks_n);
    b->rows = b->s->training.micro_batch;
    Maker k = { .b = b, .batch = b->rows };
    k.t = &plan_type(b, p, "stem", BLOCK_LAYER)->tape;
    make_stem(&k, c);
    plan_block(b, BLOCK_LAYER, 0, 0);
    uint64_t channels = c->stem_width;
    for (uint32_t i = 0; i < c->stages_n; i++)
        channels = add_stage(&k, p, c, i, channels);
    k.t = &plan_type(b, p, "head", BLOCK_LAYER)->tape;
    make_head(&k, c, channels);
    plan_block(b, BLOCK_LAYER, b->blocks_n, p->types_n - 1);
    return true;
}
