/*
 * software.h - how a training stack turns logical ops into kernels.
 *
 * scenarios/software/NAME.json holds facts about one stack: what it fuses,
 * stores, overlaps and launches.  Strategy passes and lowerings look only here,
 * never at the stack's name.  At most three scalars are fitted per stack (host_scale,
 * compute_scale, and comm_scale or ring_nics); they depend on nothing else.  A stack that
 * nobody has measured yet assumes the compute_scale of the others: their median, which
 * tests/parity/fit_software.py writes and judges.
 *
 * A file states every fact, and where it is known from:
 *
 *     { "name": "generic", "source": "...",
 *       "kernels":   { "fused_attention": true, ..., "attention_kernel": "flash2" },
 *       "recompute": { "selective": ["norm", "activation"], "stops_early": false },
 *       "parallel":  { "tp_async_backward": true, ..., "overlap": { "tp": true, ... } },
 *       "fitted":    { "host_scale": 1, "compute_scale": 1, "comm_scale": 1, "ring_nics": 0,
 *                      "fitted_on": "..." },
 *       "assumed":   { "compute_scale": 1, "assumed_from": "..." },
 *       "sources":   { "fused_attention": "...", "rest": "..." } }
 *
 * "sources" names a fact's source by the fact's key; "rest" stands for all that
 * are not named.  "fitted" may be left out: then nothing was fitted; "assumed"
 * too: then 1 is; what is fitted counts before what is assumed.  With "base" only what
 * differs is given (below).
 */
#ifndef LOCKSTEP_SIM_SOFTWARE_H
#define LOCKSTEP_SIM_SOFTWARE_H

#include "core/arena.h"
#include "core/json.h"
#include "sim/scenario.h"

typedef struct Software {
    const char *name, *source;

    /* Kernels.  training.compile "compiled" turns fused_elementwise, fused_gated and
     * fused_residual_norm on, the chains off: a compiler fuses what only moves bytes. */
    bool fused_attention; /* scores never in memory; where training.attention says nothing */
    bool fused_qkv;       /* q, k and v as one matmul, else three */
    bool gated_qkv_apart; /* but three of Llama's kin (gated MLP); may be left out: false */
    bool fused_gate_up;   /* gate and up as one matmul, else two */
    bool fused_gated;     /* act(gate) * up as one kernel; else act(gate) is saved too */
    bool fused_bias; /* bias, gelu and relu as matmul epilogues, else kernels of their own */
    bool addmm;      /* a bias by itself as the matmul's epilogue; may be left out: false */
    /* Matmuls whose rows would not begin at multiples of 16 bytes (sim/cost_matmul.c) get longer
     * ones, which the kernels around them write anyhow; may be left out: false. */
    bool pads_matmuls;
    bool fused_elementwise;   /* a bias in one kernel with the activation or sum after it */
    bool fused_residual_norm; /* residual add and the norm after it in one kernel */
    bool fused_rope;          /* inside attention, else a kernel of its own */
    bool fused_cross_entropy; /* logits read once and overwritten, no f32 copy of them */
    bool fused_optimizer;     /* one kernel over all parameters, else the formula's passes */
    bool foreach_optimizer;   /* passes over a block's parameters, else over each tensor; may be
                                 left out: false */
    /* Passes over gradients and parameters in kernels of their own, beside the update itself, by
     * default of the stack's scripts: list kernels.optimizer_passes; may be left out: none. */
    bool zeroes_grads;   /* "zero_grads": all gradients, before each step */
    bool checks_grads;   /* "check_grads": all are read, for what is not finite */
    bool averages_grads; /* "average_grads": all are divided by the replicas */
    bool copies_grads;   /* "main_grads": 16-bit gradients of what is updated to f32 */
    bool unscales_grads; /* "unscale": these, of training in f16 */
    bool norms_grads;    /* "norm": these are read; unless training.grad_clip is 0 */
    bool clips_grads;    /* "clip": and multiplied; the same */
    bool copies_params;  /* "copy_params": master weights to 16-bit parameters */
    bool norm_chain;     /* rms norm as PyTorch's ops write it: casts, square, mean ... */
    bool rope_chain;     /* rope: cast to f32, rotate, cast back, for q and for k */
    /* Models are Hugging Face's, whose gelu_new is a kernel for each op of its formula; may be left
     * out: false. */
    bool gelu_new_chain;
    /* Fused attention wants another layout than its neighbours; may be left out: false. */
    bool attention_copies;
    /* Attention knows no grouped queries: keys and values are copied, once for each head of the
     * queries, and kept so; may be left out: false. */
    bool repeats_kv;
    /* Where attention is not fused, scores are scaled and masked by kernels of their own; may be
     * left out: false. */
    bool softmax_chain;
    /* Else one kernel does it all, of 16 bits, of softmax_longest keys at most, and of numbers of
     * queries and of heads (of all samples of a rank) that softmax_multiple divides.  Of others
     * scores are cast to f32, scaled, masked, and the softmax is cast back.  May be left out: 0,
     * there are no others. */
    uint32_t softmax_multiple, softmax_longest;
    bool dropout;          /* trained with dropout: masks are made and kept */
    bool model_dropout;    /* or where the model's config says so; may be left out: false */
    bool wgrad_accumulate; /* weight gradients are accumulated by the matmul (beta = 1) */
    /* With it: that of an embedding is made apart all the same, then added; may be left out:
     * false. */
    bool table_grad_apart;
    /* Layers of a model that predict further tokens are trained where nobody says; may be left out:
     * false. */
    bool mtp;
    /* zero1, zero2: master weights of bf16 parameters are the 16 bits that these lack, but where
     * weights are fp8: the distributed optimizer does it; may be left out: false. */
    bool master_remainders;
    /* Without master weights the optimizer's moments have the format of the parameters, else f32;
     * may be left out: false. */
    bool states_like_params;
    /* fsdp keeps shards in f32, without master weights: sim/formats.h; may be left out: false. */
    bool f32_params;
    /* Elsewhere too: torch.autocast, and what layers add up and norm is f32; may be left out:
     * false. */
    bool f32_stream;
    bool f32_grads; /* gradients are kept, and summed over replicas, in f32 */
    bool f16_grads; /* but in f16 where training is in f16; may be left out: false */
    /* Without f32_grads: in f32 all the same where training is in bf16 and ranks keep all of them,
     * in one buffer, which zero1 sums whole and in place; what matmuls make is cast, then added.
     * May be left out: false. */
    bool bf16_grads_f32;
    /* With either: gradients made in 16 bits live until the backward of their micro-batch is
     * through, and are added to those in f32 then.  ddp adds the last ones where they are made, out
     * of buckets of 16 bits that it always has.  Needs "zero_grads" and grads_persist, without
     * which nothing is there to add to.  May be left out: false. */
    bool grads_added_last;
    /* With either: those in 16 bits stay beside them, until they are made anew; may be left out:
     * false. */
    bool half_grads_stay;
    bool f32_logits; /* unfused loss: reads an f32 copy of the logits */
    /* No copy: the log-softmax reads 16 bits, and its gradient is of 16 bits; may be left out:
     * false. */
    bool half_to_float;
    /* Fused loss: the gradient lies beside the logits; may be left out: false. */
    bool keeps_logits;
    /* Cross entropies of all tokens of each micro-batch beside its loss, for metrics; of models
     * with tokens; may be left out: 0. */
    uint32_t metric_losses;
    /* Unfused loss: the softmax takes the place of that copy, and the gradient that of the softmax;
     * may be left out: false. */
    bool loss_in_place;
    /* ... of a further copy, with the maximum subtracted; the first lives as long as the forward;
     * may be left out: false. */
    bool loss_copies;
    /* fp8: scaled by what the tensor at hand holds, so that it is read before it is cast, and so
     * are weights of f32_params; may be left out: false, scaled by what earlier steps saw. */
    bool fp8_dynamic;
    /* fp8: beside each 16-bit weight lie two copies in fp8, one transposed, but under fsdp; may be
     * left out: false, the parameters themselves are fp8 so. */
    bool fp8_weight_copies;
    /* fp8: zero1 gathers the weights of such matmuls in fp8, and so does fsdp where it casts what
     * it gathers (f32_params); may be left out: false. */
    bool fp8_param_gather;
    /* fp8: what a weight's gradient is made of is transposed, see sim/lower_fp8.c; may be left out:
     * false. */
    bool fp8_transposes;
    /* Tensors are placed ahead, as by XLA, else by PyTorch's caching allocator as they come; may be
     * left out: false. */
    bool planned_memory;
    /* With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, see sim/caching.h; may be left out:
     * false. */
    bool expandable_segments;
    AttentionKernel attention_kernel; /* where attention is fused; may be left out: newest */
    /* Of a stack that runs eagerly: with training.compile its kernels take what those of this
     * built-in stack take, its compute_scale; may be left out, NULL: no other time. */
    const char *compiled_as;

    /* Compiled, the input of an activation function is kept and its result made again in backward,
     * beside what recomputation is asked for; may be left out: false. */
    bool activations_again;

    /* What recomputation does again: "selective" these, "full" everything. */
    bool selective_attention;  /* the attention kernel, or scores and softmax */
    bool selective_norm;       /* norms */
    bool selective_activation; /* the activation function between the MLP's matmuls */
    bool selective_op; /* all but attention, sums over ranks and the first, third ... matmul */
    bool selective_all_but_qkv; /* all but q, k and v as attention reads them */
    bool selective_latent_up;   /* latent attention: what makes q, k and v of latents; attention
                                   itself is then kept */
    /* full: ops after the last one that backward needs are left out. */
    bool recompute_stops_early;
    /* Where gradients of 16-bit training are reduced in f32, which is how later versions are known
     * of a stack that is several; may be left out: false. */
    bool f32_reduce_stops_early;
    /* full, not compiled: host time of so many launches, in each pass over a block that is computed
     * again, is the checkpoint's own; may be left out: 0. */
    uint32_t checkpoint_launches;

    /* Parallelism. */
    /* With overlap.tp the input gradient's collective runs beside the weight gradient; so it does
     * where the scenario asks for overlap. */
    bool tp_async_backward;
    /* And matmuls over the gathered rows of sequence parallelism, and forward's before a scatter,
     * go rank by rank beside the exchange; may be left out: false. */
    bool tp_ring;
    /* Or: a matmul over such rows works on the rank's own while the others' come, then on all of
     * those; may be left out: false. */
    bool tp_own_first;
    /* Sequence parallelism: what forward gathered is kept for the weight gradient, else backward
     * gathers it again; may be left out: false. */
    bool tp_keeps_gathered;
    bool grads_persist; /* gradient memory is allocated for the whole step */
    /* Gradients are summed over replicas in f32 whatever they are kept in; may be left out:
     * false. */
    bool f32_reduce;
    bool bucket_copies; /* ddp copies gradients into buckets and back */
    /* fsdp copies gradients into what it reduces also where the format stays; may be left out:
     * false. */
    bool reduce_copies;
    bool divides_grads;      /* fsdp divides gradients before it reduces them; may be left out:
                                false */
    bool gather_copies;      /* fsdp copies parameters out of what it gathered, which else they
                                are views of; may be left out: false */
    bool p2p_waits_for_send; /* compute waits for sends as well as receives */
    bool p2p_scatter_gather; /* a pipeline sends 1/tp of an activation from each tensor-parallel
                                  rank, and gathers it there; may be left out: false */
    bool p2p_blocks_host;    /* without overlap: the host waits for transfers before it launches
                                  more; may be left out: false */
    /* overlap.pp holds where the schedule is interleaved: others send and receive in line; may be
     * left out: false. */
    bool pp_overlap_interleaved;
    /* Schedules that aim at no bubble at all (zb-1p, zb-2p, zbv): no norm is summed over stages
     * before the update, which is made good later if it was wrong, so a stage goes on with the
     * next step when it is done with this one; may be left out: false. */
    bool post_validates;
    /* In pipelines matmuls accumulate weight gradients, without wgrad_accumulate too; may be left
     * out: false. */
    bool pp_accumulates;
    /* What a stage has sent to the next it keeps until the backward of it is through, but where
     * each rank of tp sends a part; may be left out: false. */
    bool pp_keeps_outputs;
    /* Until the step is through; may be left out: false. */
    bool pp_outputs_stay;
    /* What the head has made of every micro-batch stays until the step is through, and is put
     * together then; may be left out: false. */
    bool pp_keeps_logits;
    /* fsdp in pipelines: parallel.reshard_after_forward is false where the scenario says nothing;
     * may be left out: false. */
    bool pp_keeps_params;
    /* fsdp: what is in no block is one unit, gathered before the first block and reduced after the
     * last backward, else embedding and head are two; may be left out: false. */
    bool root_unit;
    /* fsdp without pipelines: the last layer is kept until its backward, which is next; may be left
     * out: false. */
    bool keeps_last_unit;
    bool uneven_stages; /* chunks may have more or fewer layers than others, as a scenario says:
                               plan tries that; may be left out: false */
    /* Interleaved only with a multiple of pp micro-batches: plan tries no others; may be left out:
     * false. */
    bool interleaved_multiple;
    bool zero_all_reduces; /* zero1: every rank gets the whole sums; may be left out: false */
    /* zero1: parameters are gathered as lists of each rank's parts, which lie in buffers of their
     * own, by way of another for all; may be left out: false. */
    bool zero_gathers_lists;
    bool zero_reduces_last;    /* zero1, zero2: gradients are reduced after backward whatever
                                ddp's are; may be left out: false */
    bool overlap_param_gather; /* zero1, zero2: updated parameters are gathered beside the next
                                  forward, not after the update */
    /* ... the first, or all of them, when the step begins, not before a stage's first forward; may
     * be left out: false. */
    bool gathers_at_start, gathers_together;
    /* Context parallelism: keys and values go round a ring, as they do where the scenario asks for
     * overlap; else they are gathered. */
    bool cp_ring;
    bool cp_gathers; /* whatever is asked for; may be left out: false */
    /* parallel.overlap.ep, interleaved or without a pipeline: a forward and a backward of two
     * micro-batches hide each other's all-to-alls (schedule.h, PAIRS); may be left out: false. */
    bool ep_pairs;
    /* Rows of experts are weighed by their activation, not when they are combined; may be left out:
     * false. */
    bool weighs_early;
    bool whole_experts;  /* default of parallel.etp: 1, else tp; may be left out: false */
    bool deepep;         /* default of parallel.dispatcher; may be left out: false, alltoall */
    bool overlap[DIM_N]; /* default of parallel.overlap */
    /* overlap.dp of fsdp and hsdp, whatever it is of others; may be left out: false. */
    bool fsdp_overlaps;
    /* Where the scenario says nothing of buckets they end at max(bucket_parameters,
     * bucket_parameters_per_rank * dp * cp), the first one too; both may be left out: then 0,
     * and 25 MiB as in PyTorch. */
    uint64_t bucket_parameters, bucket_parameters_per_rank;
    /* Buckets are of the first chunk of the first stage; each other chunk is one, and so are all
     * where nothing overlaps; may be left out: false. */
    bool first_chunk_buckets;
    /* By Schedule: which of those that put weight gradients apart the stack has, list
     * parallel.zero_bubble; plan tries these besides 1f1b and interleaved; may be left out:
     * none. */
    bool zero_bubble[SCHEDULE_N];
    /* What the stack cannot do, list parallel.lacks: plan does not try it unasked; may be left
     * out: nothing. */
    bool lacks_dim[DIM_N], lacks_strategy[STRATEGY_N];
    bool lacks_sequence_parallel, lacks_interleaved;
    bool lacks_fsdp_with_pp; /* zero2, fsdp and hsdp only without a pipeline */
    uint64_t vocab_multiple; /* vocabulary is padded to a multiple of this times tp */

    /* Fitted; where nothing was fitted 1, but compute_scale what is assumed. */
    double host_scale, compute_scale, comm_scale;
    double assumed_compute_scale;
    /* Where a node has fewer NICs than GPUs: all rings and trees of groups with several ranks on
     * the node together pass through so many of its NICs; groups with one rank a node, sends and
     * all-to-alls use the nearest.  0, where nothing was fitted: through all, as NCCL means to.
     * Fitted only where comm_scale is 1.  An NCCL that misjudged what its NICs can carry made
     * fewer rings (its issue 439, 2020); whether it is the stack's NCCL or the cluster that it was
     * seen on, one cluster cannot tell. */
    uint32_t ring_nics;
} Software;

/* Rows of a table over the vocabulary, padded so that each rank of tp holds the same part. */
uint64_t software_vocab(const Software *sw, uint64_t vocab, uint32_t tp);

/* Whether there is share_dir()/software/NAME.json; the message lists those there are. */
bool software_exists(const char *name, Err *err);
/* Reads that, or the file that name is a path of.  Text lives in arena. */
bool software_read(Software *sw, Arena *arena, const char *name, Err *err);

/* ---- what a scenario names ---- */

enum { SOFTWARE_LAYERS_MAX = 8 };

/*
 * What a scenario's key says: a built-in name, a path to a .json file, relative to the file in
 * which it stands, or an object; nothing: "generic".  {"base": NAME or PATH, keys} is that stack
 * but for its keys, which are those of a whole one; a fact is replaced by itself, a list as a
 * whole.
 */
typedef struct SoftwareLayers {
    uint32_t n;
    /* Objects; what says most comes first, a whole stack last. */
    JsonNode node[SOFTWARE_LAYERS_MAX];
    JsonDoc *doc[SOFTWARE_LAYERS_MAX]; /* opened for it; NULL: it stands in the scenario */
    const char *name;                  /* its own, or "NAME (changed)"; in the arena */
} SoftwareLayers;

/* Errors name file and key.  What is open stays so until software_close, and reads node's document.
 */
bool software_open(SoftwareLayers *l, Arena *arena, JsonNode node, Err *err);
void software_close(SoftwareLayers *l);
bool software_from(Software *sw, Arena *arena, const SoftwareLayers *l, Err *err);
/* Where s says it; absent: nowhere. */
JsonNode software_key(const Scenario *s);
/* False where s names a built-in one that there is not. */
bool software_is_known(const Scenario *s);
/* Open, from and close together, of s: compiled where s is (compiled_as). */
bool software_of(Software *sw, Arena *arena, const Scenario *s, Err *err);
/* recompute.selective names something; else it is the same as none. */
bool software_selects(const Software *sw);
/* "cp, zero1": what a scenario does that the stack cannot (software_lacks.c); "" where nothing.
 * text holds SOFTWARE_LACKS_CAP bytes. */
enum { SOFTWARE_LACKS_CAP = 120 };
const char *software_lacks_text(const Software *sw, const Parallel *p, char *text);
/* Its name alone; of a built-in one, which need not exist, what node says. */
const char *software_name(Arena *arena, JsonNode node, Err *err);

#endif
