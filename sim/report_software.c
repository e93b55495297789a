/*
 * report_software.c - the facts about a training stack as they were used: the
 * second half of sim --explain, below the scenario's own keys.
 */
#include "sim/report.h"
#include "sim/texts.h"

typedef enum FactType { FACT_BOOL, FACT_COUNT, FACT_NUMBER } FactType;

typedef struct Fact {
    const char *key;
    FactType type;
    size_t offset;
} Fact;

#define BOOL(field) \
    { \
#field, FACT_BOOL, offsetof(Software, field) \
    }
#define NUMBER(field) \
    { \
#field, FACT_NUMBER, offsetof(Software, field) \
    }

static const Fact facts[] = {
    BOOL(fused_attention),
    BOOL(fused_bias),
    BOOL(fused_residual_norm),
    BOOL(fused_gated),
    BOOL(fused_rope),
    BOOL(fused_cross_entropy),
    BOOL(fused_optimizer),
    BOOL(wgrad_accumulate),
    BOOL(f32_grads),
    BOOL(f32_logits),
    BOOL(selective_attention),
    BOOL(selective_norm),
    BOOL(selective_activation),
    BOOL(selective_second_matmul),
    BOOL(recompute_stops_early),
    BOOL(tp_async_backward),
    BOOL(grads_persist),
    BOOL(bucket_copies),
    BOOL(p2p_waits_for_send),
    { "overlap.tp", FACT_BOOL, offsetof(Software, overlap[DIM_TP]) },
    { "overlap.cp", FACT_BOOL, offsetof(Software, overlap[DIM_CP]) },
    { "overlap.ep", FACT_BOOL, offsetof(Software, overlap[DIM_EP]) },
    { "overlap.dp", FACT_BOOL, offsetof(Software, overlap[DIM_DP]) },
    { "overlap.pp", FACT_BOOL, offsetof(Software, overlap[DIM_PP]) },
    { "vocab_multiple", FACT_COUNT, offsetof(Software, vocab_multiple) },
    NUMBER(host_scale),
    NUMBER(compute_scale),
    NUMBER(comm_scale),
};

static void print_fact(FILE *out, const Fact *f, const Software *sw)
{
    const void *at = (const char *)sw + f->offset;
    fprintf(out, "%-24s  ", f->key);
    switch (f->type) {
    case FACT_BOOL:
        fprintf(out, "%s\n", *(const bool *)at ? "true" : "false");
        break;
    case FACT_COUNT:
        fprintf(out, "%" PRIu64 "\n", *(const uint64_t *)at);
        break;
    default:
        fprintf(out, "%.6g\n", *(const double *)at);
        break;
    }
}

void report_software_text(const Software *sw, FILE *out)
{
    char name[TEXT_CAP], source[TEXT_CAP];
    fprintf(out, "%-24s  %s\n", "software", text_name(name, sw->name, 60));
    if (sw->source && *sw->source)
        fprintf(out, "%-24s  %s\n", "source", text_name(source, sw->source, 72));
    for (size_t i = 0; i < ARRAY_N(facts); i++)
        print_fact(out, &facts[i], sw);
}
