/*
 * feed.c - samples into tensors.
 */
#include "exec/feed.h"

#include <stdlib.h>
#include <string.h>

#include "exec/number.h"

typedef enum FeedKind {
    FEED_FEATURES,
    FEED_TARGETS,
    FEED_TOKENS,
    FEED_NEXT,
    FEED_LABELS
} FeedKind;

enum { FEED_KIND_N = FEED_LABELS + 1 };

/* What a step brings. */
typedef struct Batch {
    uint64_t *picks;    /* [replica][each] */
    int64_t *sequences; /* [replica that is brought][each][data.seq_len + 1] */
    uint64_t step;
    bool made;
} Batch;

struct Feed {
    Data *d;
    DataSpec data;
    FeedSpec spec;
    const Program *p;
    uint32_t each, micro_batches; /* samples of a replica in a step */
    uint64_t sequences_n;         /* of a batch; 0: it brings none */
    Batch now, ahead;
    uint32_t *brought; /* [micro-batch][kind]: samples so far in this step */
    float *row;
};

/* ---- what the copies ask for ---- */

static bool kind_of(const Feed *f, const char *name, FeedKind *kind)
{
    static const char *const names[] = { "features", "targets", "tokens", "targets", "labels" };
    for (uint32_t k = 0; k < FEED_KIND_N; k++) {
        bool sequences = k == FEED_TOKENS || k == FEED_NEXT;
        if (strcmp(name, names[k]) == 0 && sequences == f->data.tokens) {
            *kind = (FeedKind)k;
            return true;
        }
    }
    return false;
}

/* Columns of one sample in the tensor. */
static uint64_t width_of(const Feed *f, FeedKind kind, const Buffer *b)
{
    switch (kind) {
    case FEED_TOKENS:
    case FEED_NEXT:
        return f->spec.seq_len;
    case FEED_LABELS:
        return 1;
    default:
        return b->dims[1] ? b->dims[1] : 1;
    }
}

/* Samples that the copies of a micro-batch bring as this kind. */
static uint64_t samples_brought(const Feed *f, FeedKind as)
{
    uint64_t n = 0;
    FeedKind kind;
    for (uint32_t i = 0; i < f->p->tasks_n; i++) {
        const Task *t = &f->p->tasks[i];
        uint32_t micro_batch = t->instance->micro_batch;
        if (t->op->kind != OP_H2D || (micro_batch != 0 && micro_batch != NONE_U32))
            continue;
        for (uint32_t a = 0; a < t->args_n; a++) {
            const Buffer *b = &task_args(f->p, t)[a];
            if (kind_of(f, program_text(f->p, b->name), &kind) && kind == as)
                n += b->elements / width_of(f, kind, b);
        }
    }
    return n;
}

/* Of those of the replicas that the rank brings; of some stages of a pipeline that is none. */
static uint64_t sequences_brought(const Feed *f)
{
    uint64_t tokens = samples_brought(f, FEED_TOKENS), next = samples_brought(f, FEED_NEXT);
    uint64_t replicas = max_u64(tokens, next) / f->spec.micro_batch;
    return min_u64(replicas, f->spec.replicas - f->spec.replica) * f->each;
}

/* ---- batches ---- */

static uint64_t sequence_length(const Feed *f)
{
    return (uint64_t)f->data.seq_len + 1;
}

static void batch_open(const Feed *f, Batch *b)
{
    b->picks = mem_zero(f->spec.global_batch, sizeof *b->picks);
    b->sequences = mem_zero(f->sequences_n * sequence_length(f) + 1, sizeof *b->sequences);
}

static void batch_close(Batch *b)
{
    free(b->picks);
    free(b->sequences);
}

static void batch_make(const Feed *f, Batch *b, uint64_t step)
{
    for (uint32_t r = 0; r < f->spec.replicas; r++)
        data_pick(f->d, step, r, f->spec.replicas, f->spec.global_batch,
                  b->picks + (size_t)r * f->each);
    const uint64_t *picks = b->picks + f->spec.replica * (uint64_t)f->each;
    for (uint64_t i = 0; i < f->sequences_n; i++)
        data_sequence(f->d, picks[i], b->sequences + i * sequence_length(f));
    b->step = step;
    b->made = true;
}

static bool is_of(const Batch *b, uint64_t step)
{
    return b->made && b->step == step;
}

Feed *feed_open(Data *d, const DataSpec *data, const FeedSpec *spec, const Program *p)
{
    Feed *f = mem_zero(1, sizeof *f);
    *f = (Feed){ .d = d, .data = *data, .spec = *spec, .p = p };
    f->each = spec->global_batch / spec->replicas;
    f->micro_batches = f->each / spec->micro_batch;
    f->sequences_n = data->tokens ? sequences_brought(f) : 0;
    batch_open(f, &f->now);
    batch_open(f, &f->ahead);
    f->brought = mem_zero((size_t)f->micro_batches * FEED_KIND_N + 1, sizeof *f->brought);
    f->row = mem_zero((size_t)data->features + data->outputs + 1, sizeof *f->row);
    return f;
}

void feed_close(Feed *f)
{
    if (!f)
        return;
    batch_close(&f->now);
    batch_close(&f->ahead);
    free(f->brought);
    free(f->row);
    free(f);
}

void feed_ahead(Feed *f, uint64_t step)
{
    batch_make(f, &f->ahead, step);
}

void feed_step(Feed *f, uint64_t step)
{
    if (!is_of(&f->now, step)) {
        if (!is_of(&f->ahead, step))
            batch_make(f, &f->ahead, step);
        Batch made = f->ahead;
        f->ahead = f->now;
        f->now = made;
        f->ahead.made = false;
    }
    memset(f->brought, 0, (size_t)f->micro_batches * FEED_KIND_N * sizeof *f->brought);
}

/* ---- one sample ---- */

static void bring_floats(Feed *f, FeedKind kind, uint64_t sample, uint64_t width, DType dtype,
                         void *out)
{
    if (kind == FEED_FEATURES)
        data_features(f->d, sample, f->row);
    else
        data_targets(f->d, sample, f->row);
    uint64_t all = kind == FEED_FEATURES ? f->data.features : f->data.outputs;
    uint64_t first = width < all ? f->spec.tp_index * width : 0;
    numbers_narrow(dtype, f->row + first, width, out);
}

/* `at`: which of the samples of all replicas that are brought. */
static void bring_sample(Feed *f, FeedKind kind, uint64_t at, uint64_t width, DType dtype,
                         void *out)
{
    uint64_t sample = f->now.picks[f->spec.replica * (uint64_t)f->each + at];
    switch (kind) {
    case FEED_TOKENS:
    case FEED_NEXT:
        ASSERT(at < f->sequences_n);
        memcpy(out,
               f->now.sequences + at * sequence_length(f) + f->spec.position_first +
                   (kind == FEED_NEXT),
               width * sizeof *f->now.sequences);
        return;
    case FEED_LABELS:
        data_label(f->d, sample, out);
        return;
    default:
        bring_floats(f, kind, sample, width, dtype, out);
    }
}

/* ---- a tensor ---- */

bool feed_load(void *user, const Task *t, const Buffer *b, void *out, Err *err)
{
    Feed *f = user;
    FeedKind kind;
    const char *name = program_text(f->p, b->name);
    if (!kind_of(f, name, &kind))
        return err_set(err, "op %u asks for '%s', which the data has not", t->id, name);
    uint64_t width = width_of(f, kind, b), n = b->elements / width;
    uint32_t micro_batch = t->instance->micro_batch == NONE_U32 ? 0 : t->instance->micro_batch;
    ASSERT(micro_batch < f->micro_batches && b->elements % width == 0);
    uint32_t *brought = &f->brought[micro_batch * FEED_KIND_N + kind];
    for (uint64_t i = 0; i < n; i++) {
        uint32_t at = (*brought)++;
        uint32_t replica = at / f->spec.micro_batch;
        if (f->spec.replica + replica >= f->spec.replicas)
            return err_set(err, "op %u asks for more samples of '%s' than a micro-batch has",
                           t->id, name);
        uint64_t place = micro_batch * f->spec.micro_batch + at % f->spec.micro_batch;
        bring_sample(f, kind, replica * (uint64_t)f->each + place, width, b->dtype,
                     (uint8_t *)out + i * width * dtype_bytes(b->dtype));
    }
    return data_check(f->d, err);
}

/* ---- beforehand ---- */

void feed_prepare(Feed *f, uint64_t first_step, uint64_t steps)
{
    uint64_t replicas =
        f->data.tokens ? 0 : samples_brought(f, FEED_FEATURES) / f->spec.micro_batch;
    uint64_t batch = replicas * f->each,
             epoch = data_steps_per_epoch(f->d, f->spec.global_batch);
    steps = min_u64(steps, 2 * epoch); /* others come then as they are asked for */
    uint64_t *samples = mem_zero(steps * batch + 1, sizeof *samples), n = 0;
    for (uint64_t i = 0; i < steps; i++)
        for (uint32_t r = 0; r < replicas; r++, n += f->each)
            data_pick(f->d, first_step + i, f->spec.replica + r, f->spec.replicas,
                      f->spec.global_batch, samples + n);
    data_keep(f->d, samples, n);
    free(samples);
}
