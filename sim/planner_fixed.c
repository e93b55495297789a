/*
 * planner_fixed.c - what --set fixes of the keys that plan tries.
 *
 * A setting is a value, JSON or else text: 2.0 is 2, "fsdp" is fsdp, null is as if not given; the
 * last of several counts.  An object that holds such a key, or a part of one, is refused: it would
 * be tried all the same.
 */
#include <stdlib.h>
#include <string.h>

#include "core/numeral.h"
#include "sim/planner_parts.h"

/* Keys that are tried, and where they start; "null" is as if not given. */
const Setting plan_neutral[PLAN_NEUTRAL_N] = {
    { "parallel.dp", "1" },
    { "parallel.tp", "1" },
    { "parallel.pp", "1" },
    { "parallel.cp", "1" },
    { "parallel.ep", "1" },
    { "parallel.strategy", "ddp" },
    { "parallel.schedule", "1f1b" },
    { "parallel.virtual_stages", "1" },
    { "parallel.stage_layers", "null" },
    { "parallel.sequence_parallel", "false" },
    { "training.micro_batch", "1" },
    { "training.recompute", "none" },
};

bool plan_is_tried(const char *key)
{
    for (size_t i = 0; i < PLAN_NEUTRAL_N; i++)
        if (strcmp(key, plan_neutral[i].key) == 0)
            return true;
    return false;
}

/* ---- which settings may be ---- */

/* Does --set SET=VALUE say something of a key that is tried, above it or below? */
static bool says_otherwise(const Setting *set, const char *tried)
{
    size_t n = strlen(set->key), tried_n = strlen(tried);
    char member[64];
    snprintf(member, sizeof member, "\"%.40s\"", strrchr(tried, '.') + 1);
    bool above =
        strncmp(tried, set->key, n) == 0 && tried[n] == '.' && strstr(set->value, member);
    return above || (strncmp(set->key, tried, tried_n) == 0 && set->key[tried_n] == '.');
}

/* What is tried is fixed by its own key, not as part of an object or by a part of it. */
static bool check_key(const Setting *set, Err *err)
{
    static const char stages[] = "parallel.stage_layers";
    bool fixes = strcmp(set->key, stages) == 0 && strcmp(set->value, "null") != 0;
    if (fixes || says_otherwise(set, stages))
        return err_set(err,
                       "--set %.80s: plan shares out the blocks itself, only null is allowed "
                       "for %s",
                       set->key, stages);
    for (size_t k = 0; k < PLAN_NEUTRAL_N; k++)
        if (says_otherwise(set, plan_neutral[k].key))
            return err_set(
                err,
                "--set %.80s: plan tries %s; --set %s=VALUE fixes it, where VALUE is "
                "one that is tried",
                set->key, plan_neutral[k].key, plan_neutral[k].key);
    return true;
}

bool plan_check_keys(const PlanOptions *o, Err *err)
{
    for (uint32_t i = 0; i < o->settings_n; i++)
        if (!check_key(&o->settings[i], err))
            return false;
    return true;
}

/* ---- what they fix ---- */

bool plan_sets(const Plan *p, const char *key)
{
    for (uint32_t i = 0; i < p->options->settings_n; i++)
        if (strcmp(p->options->settings[i].key, key) == 0)
            return true;
    return false;
}

/* What --set says of a key, last; NULL: nothing, or that it is as if not given. */
static const char *fixed_by(const PlanOptions *o, const char *key)
{
    const char *value = NULL;
    for (uint32_t i = 0; i < o->settings_n; i++)
        if (strcmp(o->settings[i].key, key) == 0)
            value = o->settings[i].value;
    return value && strcmp(value, "null") == 0 ? NULL : value;
}

const char *plan_fixed(const Plan *p, const char *key)
{
    return fixed_by(p->options, key);
}

bool plan_is_object(const PlanOptions *o, const char *key)
{
    const char *fixed = fixed_by(o, key);
    return fixed && fixed[strspn(fixed, " \t\r\n")] == '{';
}

/* A value is JSON, else text: "fsdp" with quotes or without. */
bool plan_has(const Plan *p, const char *key, const char *value)
{
    const char *fixed = plan_fixed(p, key);
    size_t n = strlen(value);
    if (!fixed || strcmp(fixed, value) == 0)
        return true;
    return fixed[0] == '"' && strncmp(fixed + 1, value, n) == 0 &&
           strcmp(fixed + 1 + n, "\"") == 0;
}

bool plan_has_number(const Plan *p, const char *key, uint32_t value)
{
    const char *fixed = plan_fixed(p, key);
    const char *end;
    double x;
    return !fixed || (numeral_real(fixed, &x, &end) && x == value && *end == '\0');
}

/* What --set says of a key, else otherwise. */
uint32_t plan_fixed_number(const Plan *p, const char *key, uint32_t otherwise)
{
    const char *fixed = plan_fixed(p, key);
    const char *end;
    double x = otherwise;
    if (fixed)
        numeral_real(fixed, &x, &end);
    return x >= 1 && x <= UINT32_MAX ? (uint32_t)x : 0;
}

bool plan_has_split(const Plan *p, const PlanCandidate *c)
{
    return plan_has_number(p, "parallel.dp", c->dp) &&
           plan_has_number(p, "parallel.tp", c->tp) &&
           plan_has_number(p, "parallel.pp", c->pp) &&
           plan_has_number(p, "parallel.cp", c->cp) &&
           plan_has_number(p, "parallel.ep", c->ep) &&
           plan_has(p, "parallel.stage_layers", "null");
}

bool plan_has_strategy(const Plan *p, const PlanCandidate *c)
{
    return plan_has(p, "parallel.strategy", strategy_names[c->strategy]) &&
           (c->strategy != STRATEGY_HSDP ||
            plan_has_number(p, "parallel.shard_size", c->shard_size));
}

bool plan_has_schedule(const Plan *p, const PlanCandidate *c)
{
    return plan_has(p, "parallel.schedule", schedule_names[c->schedule]) &&
           plan_has_number(p, "parallel.virtual_stages", c->virtual_stages) &&
           plan_has(p, "parallel.sequence_parallel", c->sequence_parallel ? "true" : "false");
}

bool plan_has_recompute(const Plan *p, const PlanCandidate *c)
{
    static const char key[] = "training.recompute";
    if (!plan_fixed(p, key))
        return c->recompute != RECOMPUTE_LAYERS || plan_layers_between(p, c) > 0;
    if (c->recompute == RECOMPUTE_LAYERS)
        return plan_is_object(p->options, key);
    return plan_has(p, key, recompute_names[c->recompute]);
}

/* "parallel.tp 3 and parallel.dp 4": what --set says of keys that are tried. */
uint32_t plan_list_fixed(const PlanOptions *o, char *text, size_t cap)
{
    size_t at = 0;
    uint32_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < o->settings_n; i++)
        if (plan_is_tried(o->settings[i].key) && at < cap)
            at += (size_t)snprintf(text + at, cap - at, "%s%s %.40s", n++ ? " and " : "",
                                   o->settings[i].key, o->settings[i].value);
    return n;
}
