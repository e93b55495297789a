/* formats.c - number formats of parameters and gradients; see formats.h. */
#include "sim/formats.h"

DType act_dtype(const Training *t)
{
    switch (t->precision) {
    case DTYPE_TF32:
        return DTYPE_F32;
    case DTYPE_FP8:
        return DTYPE_BF16;
    default:
        return t->precision;
    }
}

uint32_t optimizer_moments(Optimizer o)
{
    return o == OPT_ADAM || o == OPT_ADAMW ? 2 : o == OPT_MOMENTUM ? 1 : 0;
}

static bool shards_in_groups(const Parallel *p)
{
    return p->strategy == STRATEGY_HSDP && p->shard_size * p->cp > 1;
}

uint32_t expert_dp(const Parallel *p)
{
    return shards_in_groups(p) ? p->shard_size : p->dp;
}

bool whole_experts(const Parallel *p, const Software *sw)
{
    if (p->etp)
        return p->etp == 1;
    bool over_tp = (uint64_t)expert_dp(p) * p->cp % p->ep != 0;
    return over_tp || (shares_experts(p) && sw->whole_experts);
}

/* Are there ranks of tp with the same experts, whole ones, beside those of dp x cp? */
static bool repeats_experts(const Parallel *p, const Software *sw)
{
    return p->has_experts && whole_experts(p, sw) && p->ep < p->dp * p->cp * p->tp;
}

bool shards_params(const Parallel *p, const Software *sw)
{
    bool fsdp = p->strategy == STRATEGY_FSDP;
    return (fsdp && (p->dp * p->cp > 1 || repeats_experts(p, sw))) || shards_in_groups(p);
}

bool shares_experts(const Parallel *p)
{
    return p->strategy == STRATEGY_DDP || p->strategy == STRATEGY_ZERO1 ||
           p->strategy == STRATEGY_ZERO2 || p->strategy == STRATEGY_FSDP ||
           p->strategy == STRATEGY_HSDP;
}

static bool keeps_f32(const Training *t, const Software *sw, bool fsdp)
{
    bool narrow = t->param_dtype_set && t->param_dtype != DTYPE_F32;
    bool asked = t->param_dtype_set && t->param_dtype == DTYPE_F32 && fsdp;
    bool masters = t->master_weights_set && t->master_weights;
    return (sw->f32_params || asked) && !narrow && !masters && dtype_bytes(act_dtype(t)) == 2 &&
           (fsdp || sw->f32_stream);
}

bool grads_in_f32(const Training *t, const Parallel *p, const Software *sw)
{
    bool shared = p->strategy == STRATEGY_ZERO2 || shards_params(p, sw);
    if (sw->bf16_grads_f32)
        return !shared && t->precision == DTYPE_BF16;
    return sw->f32_grads && !(sw->f16_grads && t->precision == DTYPE_F16);
}

/* kept: the software keeps them in f32. */
static DType grad_of(const Training *t, bool kept, bool wide, bool fsdp)
{
    if (t->grad_dtype_set)
        return t->grad_dtype;
    if (kept || (wide && !fsdp))
        return DTYPE_F32;
    return wide ? act_dtype(t) : t->grad_dtype;
}

static DType reduce_of(const Training *t, bool f32, bool wide, DType grad)
{
    if (t->reduce_dtype_set)
        return t->reduce_dtype;
    if (f32)
        return DTYPE_F32;
    if (t->grad_dtype_set)
        return t->reduce_dtype;
    return wide ? grad : t->reduce_dtype;
}

bool accumulates_wgrads(const Parallel *p, const Software *sw)
{
    return sw->wgrad_accumulate || (sw->pp_accumulates && p->pp > 1);
}

bool keeps_half_grads(const Training *t, const Parallel *p, const Software *sw, bool replicas)
{
    Formats f = formats_of(t, p, sw);
    bool buckets = sw->grads_added_last && p->strategy == STRATEGY_DDP && replicas;
    return (sw->half_grads_stay || buckets) && f.made != f.grad &&
           !strategy_shards_grads(p->strategy) && p->strategy != STRATEGY_DP;
}

Formats formats_of(const Training *t, const Parallel *p, const Software *sw)
{
    bool fsdp = shards_params(p, sw), wide = keeps_f32(t, sw, fsdp),
         kept = grads_in_f32(t, p, sw);
    Formats f = { .param = wide ? DTYPE_F32 : t->param_dtype,
                  .grad = grad_of(t, kept, wide, fsdp),
                  .masters = t->master_weights && !wide,
                  .casts = wide && !fsdp };
    bool zero = p->strategy == STRATEGY_ZERO1 || p->strategy == STRATEGY_ZERO2;
    bool halves =
        zero && sw->master_remainders && f.param == DTYPE_BF16 && t->precision != DTYPE_FP8;
    f.master = halves ? DTYPE_BF16 : DTYPE_F32;
    f.moments = sw->states_like_params && !f.masters ? f.param : DTYPE_F32;
    f.read = fsdp ? act_dtype(t) : f.param;
    f.reduce = reduce_of(t, sw->f32_reduce || (kept && !t->grad_dtype_set), wide, f.grad);
    if (wide && fsdp && p->pp > 1 && !t->grad_dtype_set)
        f.grad = f.reduce;
    bool apart = wide || (!fsdp && !accumulates_wgrads(p, sw));
    f.made = apart && dtype_bytes(act_dtype(t)) < dtype_bytes(f.grad) ? act_dtype(t) : f.grad;
    f.shard = wide && fsdp ? DTYPE_F32 : fsdp && t->grad_dtype_set ? f.grad : f.reduce;
    f.stream = f.casts ? DTYPE_F32 : act_dtype(t);
    return f;
}
