/*
 * data.h - what is trained on, and which samples a replica sees when.
 *
 *     data set      samples in a fixed order, made from the seed or read from a file
 *     sampler       as torch.utils.data.DistributedSampler with set_epoch: each epoch
 *                   a new shuffle from (seed, epoch); the list is padded from its own
 *                   beginning to a multiple of the replicas; replica r takes r, r + n, ...
 *     loader        the replica's list cut into micro-batches; a last one that is short
 *                   is padded from the replica's own beginning, so that a step is always
 *                   of global_batch samples
 *
 * The union over the replicas is the same whatever their number, and in the same order
 * of optimizer steps where global_batch is the same: step k uses positions
 * [k, k + 1) x global_batch of the epoch's shuffled list.
 *
 *     kind                      samples                features      targets
 *     "synthetic", mlp          2,048                  N(0,1)        a fixed linear map of them
 *     "synthetic", transformer  2,048                  tokens        the next token of a sequence
 *     "regression20"            2,048                  20 in [0,1)   1 in [0,1)
 *     a file                    windows of seq_len+1   its bytes     the byte after each
 */
#ifndef LOCKSTEP_EXEC_DATA_H
#define LOCKSTEP_EXEC_DATA_H

#include "core/err.h"

typedef struct DataSpec {
    const char *kind;           /* as training.data */
    bool tokens;                /* a transformer: sequences; else rows of features */
    bool labels;                /* cross-entropy on an mlp: targets are class numbers */
    uint32_t features, outputs; /* widths of an mlp's input and output */
    uint32_t seq_len, vocab;
    uint64_t seed;
} DataSpec;

typedef struct Data Data;

bool data_open(Data **d, const DataSpec *spec, Err *err);
void data_close(Data *d);
uint64_t data_samples_n(const Data *d);

/* Which samples replica r of n trains on in optimizer step `step` (0, 1, ...): `out` has
 * global_batch / n places, micro-batch after micro-batch. */
void data_pick(const Data *d, uint64_t step, uint32_t replica, uint32_t replicas,
               uint32_t global_batch, uint64_t *out);

/* One sample's inputs and targets: features f32 [features], targets f32 [outputs] of an mlp;
 * i64 [seq_len] each of a transformer; i64 [1] for labels. */
void data_features(const Data *d, uint64_t sample, float *out);
void data_targets(const Data *d, uint64_t sample, float *out);
void data_tokens(const Data *d, uint64_t sample, int64_t *out);
void data_next_tokens(const Data *d, uint64_t sample, int64_t *out);
void data_label(const Data *d, uint64_t sample, int64_t *out);

#endif
