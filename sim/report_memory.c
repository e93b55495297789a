/*
 * report_memory.c - sim --memory: what is alive where memory is highest.
 *
 * By class, by layer (neighbours that hold the same bytes share a line) and by
 * tensor.  Each table sums to the peak.  Then the other kinds of ranks, each at
 * its own peak: the stages of a pipeline.
 */
#include <string.h>

#include "sim/report.h"
#include "sim/texts.h"

enum { TENSORS_MAX = 16, LAYERS_MAX = 40, RANKS_MAX = 64, CELL = 12 };

static void print_bytes(FILE *out, uint64_t bytes)
{
    char text[TEXT_CAP];
    fprintf(out, " %*s", CELL, bytes ? text_bytes(text, bytes) : "-");
}

static uint64_t sum_of(const uint64_t *of_class)
{
    uint64_t sum = 0;
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        sum += of_class[c];
    return sum;
}

static void print_classes(FILE *out, const char *name, const uint64_t *of_class)
{
    fprintf(out, "%-18s", name);
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        print_bytes(out, of_class[c]);
    print_bytes(out, sum_of(of_class));
}

static void print_row(FILE *out, const char *name, const uint64_t *of_class)
{
    print_classes(out, name, of_class);
    fprintf(out, "\n");
}

static void print_head(FILE *out, const char *name)
{
    fprintf(out, "%-18s", name);
    for (int c = 0; c < TENSOR_CLASS_N; c++)
        fprintf(out, " %*s", CELL, tensor_class_names[c]);
    fprintf(out, " %*s", CELL, "all");
}

/* "the peak of rank 0, 37.94 GiB, is reached by 'logits' of 'head forward', micro-batch 3" */
static void print_where(FILE *out, const Report *r)
{
    const ReportPeak *p = r->peak;
    char text[TEXT_CAP], name[TEXT_CAP];
    fprintf(out, "peak of rank %" PRIu32 ": %s", r->ranks[r->peak_rank].rank,
            text_bytes(text, report_memory(r)->peak_bytes));
    if (p->op)
        fprintf(out, ", reached in '%s' of '%s'", text_name(text, p->op, 30),
                text_name(name, p->segment, 30));
    if (p->layer != NONE_U32)
        fprintf(out, ", layer %" PRIu32, p->layer);
    if (p->micro_batch != NONE_U32)
        fprintf(out, ", micro-batch %" PRIu32, p->micro_batch);
    fprintf(out, "\n\n");
}

static void layer_name(char *text, const LayerMemory *first, const LayerMemory *last)
{
    if (first->layer == NONE_U32)
        snprintf(text, TEXT_CAP, "no layer");
    else if (first == last)
        snprintf(text, TEXT_CAP, "layer %" PRIu32, first->layer);
    else
        snprintf(text, TEXT_CAP, "layers %" PRIu32 "-%" PRIu32 ", each", first->layer,
                 last->layer);
}

static bool continues(const LayerMemory *a, const LayerMemory *b)
{
    return b->layer != NONE_U32 && b->layer == a->layer + 1 &&
           memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static void print_layers(FILE *out, const MemoryDetail *d)
{
    uint32_t lines = 0;
    for (uint32_t i = 0, end; i < d->layers_n; i = end) {
        char text[TEXT_CAP];
        for (end = i + 1; end < d->layers_n; end++)
            if (!continues(&d->layers[end - 1], &d->layers[end]))
                break;
        if (lines++ == LAYERS_MAX) {
            fprintf(out, "... all of them in --json\n");
            return;
        }
        layer_name(text, &d->layers[i], &d->layers[end - 1]);
        print_row(out, text, d->layers[i].bytes);
    }
}

static void print_tensors(FILE *out, const ReportPeak *p)
{
    fprintf(out, "\n%-32s %-12s %9s %*s\n", "largest tensors", "class", "count", CELL, "sum");
    for (uint32_t i = 0; i < p->detail.tensors_n && i < TENSORS_MAX; i++) {
        const TensorMemory *t = &p->detail.tensors[i];
        char name[TEXT_CAP], count[TEXT_CAP];
        fprintf(out, "%-32s %-12s %9s", text_name(name, p->tensor_name[i], 32),
                tensor_class_names[t->class_], text_number(count, (double)t->count, 0));
        print_bytes(out, t->bytes);
        fprintf(out, "\n");
    }
}

static void print_ranks(FILE *out, const Report *r)
{
    if (r->ranks_n < 2)
        return;
    fprintf(out, "\n");
    print_head(out, "each at its peak");
    fprintf(out, " %*s\n", CELL, "reserved");
    for (uint32_t i = 0; i < r->ranks_n && i < RANKS_MAX; i++) {
        const ReportRank *k = &r->ranks[i];
        char name[TEXT_CAP], text[TEXT_CAP];
        snprintf(name, sizeof name, "%" PRIu32 " %.16s", k->rank, k->role);
        print_classes(out, text_name(text, name, 18), k->memory.of_class);
        print_bytes(out, k->memory.reserved_bytes);
        fprintf(out, "%s\n", k->memory.fits ? "" : "  too much");
    }
    if (r->ranks_n > RANKS_MAX)
        fprintf(out, "... all of them in --json\n");
}

static void print_extra(FILE *out, const Report *r)
{
    char t[4][TEXT_CAP];
    const ReportMemory *m = report_fullest(r);
    fprintf(out,
            "\nreserved %s%s: CUDA context %s, communication buffers %s, fragmentation %s\n",
            text_bytes(t[0], m->reserved_bytes),
            r->full_rank == r->peak_rank ? "" : " by the fullest rank",
            text_bytes(t[1], m->extra.context_bytes), text_bytes(t[2], m->extra.comm_bytes),
            text_bytes(t[3], m->extra.fragmentation_bytes));
}

void report_memory_text(const Report *r, FILE *out)
{
    const ReportPeak *p = r->peak;
    ASSERT(p);
    print_where(out, r);
    print_head(out, "");
    fprintf(out, "\n");
    print_row(out, "at the peak", report_memory(r)->of_class);
    print_row(out, "the whole step", p->resident);
    print_layers(out, &p->detail);
    print_tensors(out, p);
    print_ranks(out, r);
    print_extra(out, r);
}
