/*
 * scenario_unused.c - keys that were given and that what was chosen beside them does not use.
 *
 * They are no mistake: scenarios are kept for several strategies, and --set changes one key of
 * many.  But who varies such a key and sees the same step must know why.
 */
#include <stdio.h>
#include <string.h>

#include "sim/scenario_parts.h"

typedef struct Use {
    const char *key;
    unsigned by; /* bit 1 << Strategy, or Optimizer */
} Use;

enum {
    DDP = 1 << STRATEGY_DDP,
    ZERO = 1 << STRATEGY_ZERO1 | 1 << STRATEGY_ZERO2,
    FSDP = 1 << STRATEGY_FSDP,
    HSDP = 1 << STRATEGY_HSDP,
    ADAM = 1 << OPT_ADAM | 1 << OPT_ADAMW
};

static const Use of_parallel[] = {
    { "bucket_bytes", DDP | ZERO },           { "first_bucket_bytes", DDP | ZERO },
    { "reshard_after_forward", FSDP | HSDP }, { "prefetch", FSDP | HSDP },
    { "limit_all_gathers", FSDP | HSDP },     { "shard_size", HSDP },
};

static const Use of_training[] = { { "betas", ADAM }, { "eps", ADAM } };

/* who: as in "strategy fsdp", one of those in Use.by. */
static void add(char text[SCENARIO_UNUSED_CAP], const Scenario *s, const char *object,
                const Use *uses, size_t uses_n, unsigned choice, const char *who)
{
    JsonNode at = json_member(json_root(s->doc), object);
    bool first = true;
    for (size_t i = 0; i < uses_n; i++) {
        JsonNode node = json_member(at, uses[i].key);
        bool given = node.item && json_type(node) != JSON_NULL;
        if (!given || (uses[i].by >> choice & 1))
            continue;
        size_t n = strlen(text);
        snprintf(text + n, SCENARIO_UNUSED_CAP - n, "%s%s%s%s.%s", n && first ? "; " : "",
                 first ? who : ", ", first ? " does not use " : "", object, uses[i].key);
        first = false;
    }
}

/* All nodes below one leaf have no uplinks to share. */
static void add_network(char text[SCENARIO_UNUSED_CAP], const Machine *m)
{
    size_t n = strlen(text);
    if (m->nodes_n > 1 && m->inter.oversubscription > 1 && m->inter.nodes_per_leaf == 0)
        snprintf(
            text + n, SCENARIO_UNUSED_CAP - n,
            "%scluster.inter_node.oversubscription is that of a leaf's uplinks, and without "
            "cluster.inter_node.nodes_per_leaf all nodes are below one leaf",
            n ? "; " : "");
}

char *scenario_unused(const Scenario *s, char text[SCENARIO_UNUSED_CAP])
{
    char who[40];
    *text = '\0';
    snprintf(who, sizeof who, "strategy %s", strategy_names[s->parallel.strategy]);
    add(text, s, "parallel", of_parallel, ARRAY_N(of_parallel), s->parallel.strategy, who);
    snprintf(who, sizeof who, "optimizer %s", optimizer_names[s->training.optimizer]);
    add(text, s, "training", of_training, ARRAY_N(of_training), s->training.optimizer, who);
    add_network(text, &s->machine);
    return text;
}
