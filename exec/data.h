/*
 * data.h - what is trained on, and which samples a replica sees when.
 *
 *     data set      samples in a fixed order, made from the seed or read from a file
 *     sampler       as torch.utils.data.DistributedSampler with set_epoch: each epoch a
 *                   new shuffle from (seed, epoch); the list is padded from its own
 *                   beginning; replica r of n takes r, r + n, ...; nothing is dropped
 *     loader        the replica's list cut into micro-batches
 *
 *     epoch's shuffle of 10   3 7 0 9 5 1 8 2 6 4 | 3 7      padded to a multiple of
 *     global batch 4           step 0  step 1   step 2       the global batch
 *     replica 0 of 2          3   0    5   8    6   3
 *     replica 1 of 2            7   9    1   2    4   7
 *
 * The list is padded to a multiple of global_batch (itself one of the replicas), so
 * that a step always has global_batch samples and the union over the replicas is the
 * same whatever their number: step k of an epoch has places [k, k + 1) x global_batch.
 *
 *     kind                      samples                features      targets
 *     "synthetic", mlp          2,048                  N(0,1)        a fixed linear map of them
 *     "synthetic", transformer  2,048                  tokens        the next token of a sequence
 *     "regression20"            2,048                  20 in [0,1)   1 in [0,1)
 *     a file                    windows of seq_len     its bytes     the byte after each
 *
 * WHERE THE NUMBERS COME FROM.  normal, unit, bits and key as in exec/random.h; x is a
 * sample, j a feature, o an output, t a place in a sequence; sums in f64 from j = 0 on.
 *
 *     mlp features       f(x, j) = (f32) normal(key(seed, "features", 0), x * features + j)
 *     mlp targets        (f32) sum over j of f(x, j) * w(j, o), with
 *                        w(j, o) = (f32) (normal(key(seed, "map", 0), j * outputs + o)
 *                                         / sqrt(features))
 *     mlp labels         the o of the largest target, the first of equals
 *     regression20       (f32) unit(key(seed, "features", 0), 20 x + j), unit(key(seed,
 *                        "targets", 0), x)
 *     tokens             a Markov chain: k = key(seed, "sequence", x);
 *                        token 0 = bits(k, 0) % vocab;  with b = bits(k, t) % 8 the successor
 *                        s is 0 (b < 4), 1 (b < 6), 2 (b = 6), 3 (b = 7), and
 *                        token t = bits(key(seed, "chain", 0), 4 * token t-1 + s) % vocab
 *                        so that a model can come down to 1.75 bits (1.213 nats) a token
 *     a file             sample x is bytes [x * seq_len, x * seq_len + seq_len], the last of
 *                        which is a target only; what is left at the end is not used
 *     shuffle            6 rounds of a Feistel network on as many bits as the samples need
 *                        (an even number), again until the result is a sample; round r turns
 *                        (left, right) into (right, left ^ (bits(key(seed, "shuffle", epoch),
 *                        r * 2^32 + right) cut to half the bits))
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

/* Copies what it needs of spec.  A file stays open and is read as it is needed. */
bool data_open(Data **d, const DataSpec *spec, Err *err);
void data_close(Data *d); /* NULL is fine */
uint64_t data_samples_n(const Data *d);
uint64_t data_steps_per_epoch(const Data *d, uint32_t global_batch);

/* Which samples replica r of n trains on in optimizer step `step` (0, 1, ...): `out` has
 * global_batch / n places, micro-batch after micro-batch. */
void data_pick(const Data *d, uint64_t step, uint32_t replica, uint32_t replicas,
               uint32_t global_batch, uint64_t *out);

/* One sample's inputs and targets: features f32 [features], targets f32 [outputs] of an mlp;
 * of a transformer i64 [seq_len + 1], the tokens, and from the second place on the next tokens;
 * i64 [1] for labels. */
void data_features(const Data *d, uint64_t sample, float *out);
void data_targets(const Data *d, uint64_t sample, float *out);
void data_sequence(const Data *d, uint64_t sample, int64_t *out);
void data_label(const Data *d, uint64_t sample, int64_t *out);

/* Makes these samples of a synthetic mlp now, as far as 512 MiB hold them: asking for them is a
 * copy then.  Does nothing for other kinds. */
void data_keep(Data *d, const uint64_t *samples, uint64_t n);

/* False, with a sentence, when a file could not be read since it was opened (it was cut, or the
 * disk failed): the tokens of that sample were zeros.  To be asked once a step. */
bool data_check(const Data *d, Err *err);

#endif
