/*
 * scenario_parts.h - what the scenario_*.c files tell each other; nobody else includes it.
 */
#ifndef LOCKSTEP_SIM_SCENARIO_PARTS_H
#define LOCKSTEP_SIM_SCENARIO_PARTS_H

#include "sim/scenario.h"

enum { DEGREE_MAX = 1 << 20 };

/* scenario_file.c.  Applies --set.  A named cluster or GPU becomes {"base": NAME} when a key below
 * it is set. */
bool scenario_set(JsonDoc *doc, const Setting *settings, uint32_t settings_n, Err *err);

/* scenario_place.c.  No key stands beside the object that it belongs in, or in another. */
bool scenario_check_places(JsonNode root, Err *err);

/* Read after model and machine, in this order; node may be absent. */
bool scenario_parallel(Scenario *s, JsonNode node, Err *err);
bool scenario_training(Scenario *s, JsonNode node, Err *err);

/* scenario_check.c.  Do the values fit each other, the model and the cluster?  Errors name the key
 * to change. */
bool scenario_check(const Scenario *s, Err *err);

/* Blocks that a pipeline can cut between: transformer layers, or the layers of an MLP. */
uint32_t scenario_blocks(const Model *model);

/* 0: every layer is dense. */
static inline uint32_t scenario_experts(const Model *model)
{
    return model->kind == MODEL_TRANSFORMER ? model->u.transformer.experts : 0;
}

/* A degree, or strategy single: else the work is split over the whole cluster. */
bool parallel_says_split(JsonNode parallel);

/* ---- over json.h ---- */

/* json_begin of an object that may be absent: every key then has its default. */
JsonObj scenario_begin(JsonNode node, Err *err);
/* json_count of what fits 32 bits. */
uint32_t scenario_count(JsonObj *o, const char *key, uint64_t min, uint64_t max,
                        double fallback);
void scenario_log_numbers(JsonNode node, const double *x, size_t n, bool is_default);

#endif
