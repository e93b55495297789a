/*
 * test_formats.c - number formats, by what the scenario and the software say.
 */
#include "sim/formats.h"
#include "tests/check.h"

#include <string.h>

/* What readers make of "precision": bf16 and adamw. */
static Training silent(void)
{
    return (Training){ .precision = DTYPE_BF16,
                       .param_dtype = DTYPE_BF16,
                       .grad_dtype = DTYPE_BF16,
                       .reduce_dtype = DTYPE_BF16,
                       .master_weights = true };
}

/* "param read grad reduce shard stream, masters, casts" */
static const char *formats(const Training *t, const Software *sw, bool fsdp)
{
    static char text[128];
    Formats f = formats_of(t, sw, fsdp);
    snprintf(text, sizeof text, "%s %s %s %s %s %s%s%s", dtype_names[f.param],
             dtype_names[f.read], dtype_names[f.grad], dtype_names[f.reduce],
             dtype_names[f.shard], dtype_names[f.stream], f.masters ? ", masters" : "",
             f.casts ? ", casts" : "");
    return text;
}

static void the_software_speaks_where_the_scenario_is_silent(void)
{
    const Software plain = { 0 }, params = { .f32_params = true },
                   autocast = { .f32_params = true, .f32_stream = true },
                   grads = { .f32_grads = true }, reduce = { .f32_reduce = true },
                   titan = { .f32_params = true, .f32_reduce = true };
    const struct {
        const Software *sw;
        bool fsdp;
        const char *formats;
    } cases[] = {
        { &plain, false, "bf16 bf16 bf16 bf16 bf16 bf16, masters" },
        { &plain, true, "bf16 bf16 bf16 bf16 bf16 bf16, masters" },
        { &grads, false, "bf16 bf16 f32 f32 f32 bf16, masters" },
        { &reduce, true, "bf16 bf16 bf16 f32 f32 bf16, masters" },
        { &params, true, "f32 bf16 bf16 bf16 f32 bf16" },
        { &titan, true, "f32 bf16 bf16 f32 f32 bf16" },
        { &params, false, "f32 f32 f32 f32 f32 bf16, casts" },
        { &autocast, false, "f32 f32 f32 f32 f32 f32, casts" },
        { &autocast, true, "f32 bf16 bf16 bf16 f32 bf16" },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        Training t = silent();
        CHECK_STR(cases[i].formats, formats(&t, cases[i].sw, cases[i].fsdp));
    }
}

static void what_the_scenario_says_counts(void)
{
    const Software params = { .f32_params = true },
                   titan = { .f32_params = true, .f32_reduce = true };
    Training t = silent();
    t.param_dtype_set = true;
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, true));
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, false));
    /* What a reader makes of "param_dtype": "f32" is what the software would have said. */
    t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    t.master_weights = false;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    CHECK_STR("f32 f32 f32 f32 f32 bf16, casts", formats(&t, &params, false));
    t = silent();
    t.master_weights_set = true;
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, true));
    t.master_weights = false;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    t = silent();
    t.reduce_dtype_set = true;
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &titan, true));
    t = silent();
    t.grad_dtype_set = true;
    t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    CHECK_STR("f32 bf16 f32 f32 f32 bf16", formats(&t, &params, true));
}

/* f32 and tf32 have nothing to cast; fp8 outside fsdp comes from what Transformer Engine keeps. */
static void only_16_bits_are_cast_to(void)
{
    const Software params = { .f32_params = true, .f32_stream = true };
    Training t = silent();
    t.precision = DTYPE_FP8;
    CHECK_STR("bf16 bf16 bf16 bf16 bf16 bf16, masters", formats(&t, &params, false));
    CHECK_STR("f32 bf16 bf16 bf16 f32 bf16", formats(&t, &params, true));
    t.precision = DTYPE_TF32;
    t.param_dtype = t.grad_dtype = t.reduce_dtype = DTYPE_F32;
    t.master_weights = false;
    CHECK_STR("f32 f32 f32 f32 f32 f32", formats(&t, &params, false));
    CHECK_STR("f32 f32 f32 f32 f32 f32", formats(&t, &params, true));
}

int main(void)
{
    RUN(the_software_speaks_where_the_scenario_is_silent);
    RUN(what_the_scenario_says_counts);
    RUN(only_16_bits_are_cast_to);
    return check_report();
}
