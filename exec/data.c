/*
 * data.c - samples made from the seed or read from a file, and who gets which.
 *
 * A sample is made, or read, when it is asked for, so that a file may be larger than
 * memory and every rank sees the same data without talking to the others.  What costs
 * time are an mlp's targets, a product with a dense map: those samples can be made
 * beforehand (data_keep), many at once, so that the map is read once for all of them.
 *
 *     map   [tile][features][TILE]      TILE outputs side by side, the last tile padded
 *     kept  [place][features + outputs]
 */
#include "exec/data.h"

#include "exec/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SYNTHETIC_N = 2048, /* as the tutorials' MyTrainDataset(2048) */
    REGRESSION_IN = 20, /* their torch.rand(20), torch.rand(1) */
    REGRESSION_OUT = 1,
    FEISTEL_ROUNDS = 6,
    CHUNK = 1024,
    TILE = 8, /* outputs, and */
    PAIR = 2, /* samples whose sums are in registers together */
};

#define KEEP_BYTES_MAX ((uint64_t)512 << 20) /* of a rank */

typedef enum DataKind { DATA_MAP, DATA_REGRESSION, DATA_CHAIN, DATA_FILE } DataKind;

struct Data {
    DataKind kind;
    DataSpec spec;
    char *name;
    uint64_t samples_n;
    uint64_t features_key, targets_key, chain_key;
    float *map;
    float *kept;
    uint32_t *place_of; /* by sample; NONE_U32: not kept */
    uint32_t kept_n;
    int file;
    atomic_int
        reason; /* errno of the first read that failed; -1: the file has become shorter */
};

/* ---- opening ---- */

static uint64_t tiles_n(const Data *d)
{
    return div_up_u64(d->spec.outputs, TILE);
}

static void make_map(Data *d)
{
    uint64_t features = d->spec.features, outputs = d->spec.outputs;
    double scale = 1 / sqrt((double)features);
    uint64_t key = random_key(d->spec.seed, "map", 0);
    d->map = mem_zero(tiles_n(d) * features * TILE, sizeof *d->map);
    double pair[2] = { 0, 0 };
    for (uint64_t i = 0; i < features * outputs; i++) {
        uint64_t feature = i / outputs, output = i % outputs;
        if (i % 2 == 0)
            random_normal_pair(key, i / 2, pair);
        d->map[(output / TILE * features + feature) * TILE + output % TILE] =
            (float)(pair[i % 2] * scale);
    }
}

static bool open_synthetic(Data *d)
{
    d->kind = d->spec.tokens ? DATA_CHAIN : DATA_MAP;
    d->samples_n = SYNTHETIC_N;
    if (d->spec.tokens)
        return true;
    make_map(d);
    d->place_of = mem_zero(d->samples_n, sizeof *d->place_of);
    memset(d->place_of, 0xff, d->samples_n * sizeof *d->place_of); /* NONE_U32 */
    return true;
}

static bool open_regression(Data *d, Err *err)
{
    const DataSpec *s = &d->spec;
    if (s->tokens)
        return err_set(err,
                       "training.data: 'regression20' has 20 numbers a sample, not tokens; "
                       "a transformer takes 'synthetic' or a text file");
    if (s->features != REGRESSION_IN || s->outputs != REGRESSION_OUT)
        return err_set(err,
                       "training.data: 'regression20' has 20 inputs and 1 output, but the "
                       "model's widths begin with %" PRIu32 " and end with %" PRIu32
                       "; 20 and 1 are allowed",
                       s->features, s->outputs);
    if (s->labels)
        return err_set(err, "training.data: the targets of 'regression20' are numbers, not "
                            "classes; training.loss 'mse' is allowed");
    d->kind = DATA_REGRESSION;
    d->samples_n = SYNTHETIC_N;
    return true;
}

static bool check_file(Data *d, const struct stat *st, Err *err)
{
    const DataSpec *s = &d->spec;
    if (!S_ISREG(st->st_mode))
        return err_set(err, "training.data: '%s' is not a file", d->name);
    uint64_t bytes = (uint64_t)st->st_size;
    if (bytes == 0)
        return err_set(err, "training.data: '%s' is empty", d->name);
    if (bytes < (uint64_t)s->seq_len + 1)
        return err_set(err,
                       "training.data: '%s' holds %" PRIu64 " bytes; with seq_len %" PRIu32
                       " at least %" PRIu64 " are needed, one more than seq_len",
                       d->name, bytes, s->seq_len, (uint64_t)s->seq_len + 1);
    d->samples_n = (bytes - 1) / s->seq_len;
    return true;
}

static bool open_file(Data *d, Err *err)
{
    const DataSpec *s = &d->spec;
    struct stat st;
    d->kind = DATA_FILE;
    if (!s->tokens)
        return err_set(err,
                       "training.data: '%s' is not a data set of an mlp; 'synthetic' and "
                       "'regression20' are allowed (a text file needs a transformer)",
                       d->name);
    if (s->vocab < 256)
        return err_set(err,
                       "training.data: '%s' is read as bytes, but the model's vocabulary has "
                       "%" PRIu32 " tokens; at least 256 are needed",
                       d->name, s->vocab);
    d->file = open(d->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a pipe */
    if (d->file < 0 || fstat(d->file, &st) != 0)
        return err_set(err, "training.data: cannot open '%s': %s", d->name, strerror(errno));
    return check_file(d, &st, err);
}

bool data_open(Data **out, const DataSpec *spec, Err *err)
{
    ASSERT(spec->tokens ? spec->seq_len > 0 && spec->vocab > 0
                        : spec->features > 0 && spec->outputs > 0);
    Data *d = mem_zero(1, sizeof *d);
    size_t n = strlen(spec->kind) + 1;
    d->name = memcpy(mem_zero(n, 1), spec->kind, n);
    d->spec = *spec;
    d->spec.kind = d->name;
    d->file = -1;
    d->features_key = random_key(spec->seed, "features", 0);
    d->targets_key = random_key(spec->seed, "targets", 0);
    d->chain_key = random_key(spec->seed, "chain", 0);
    bool ok = strcmp(d->name, "synthetic") == 0      ? open_synthetic(d)
              : strcmp(d->name, "regression20") == 0 ? open_regression(d, err)
                                                     : open_file(d, err);
    if (!ok) {
        data_close(d);
        d = NULL;
    }
    *out = d;
    return ok;
}

void data_close(Data *d)
{
    if (!d)
        return;
    if (d->file >= 0)
        close(d->file);
    free(d->map);
    free(d->kept);
    free(d->place_of);
    free(d->name);
    free(d);
}

uint64_t data_samples_n(const Data *d)
{
    return d->samples_n;
}

bool data_check(const Data *d, Err *err)
{
    int reason = atomic_load(&d->reason);
    if (reason == 0)
        return true;
    return err_set(err, "training.data: cannot read '%s': %s", d->name,
                   reason < 0 ? "it has become shorter" : strerror(reason));
}

/* ---- who gets which ---- */

uint64_t data_steps_per_epoch(const Data *d, uint32_t global_batch)
{
    return div_up_u64(d->samples_n, global_batch);
}

/* Bits of each half of a number that is large enough for n samples. */
static uint32_t half_bits(uint64_t n)
{
    uint32_t half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    return half;
}

/* A permutation of 0 .. 2^(2 half) - 1: each round can be undone. */
static uint64_t feistel(uint64_t key, uint64_t x, uint32_t half)
{
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = left ^ (random_bits(key, (round << 32) + right) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

/* One of 0 .. n - 1.  Numbers >= n are followed along their cycle, which leads back below n. */
static uint64_t shuffled(uint64_t key, uint64_t place, uint64_t n)
{
    uint32_t half = half_bits(n);
    do
        place = feistel(key, place, half);
    while (place >= n);
    return place;
}

void data_pick(const Data *d, uint64_t step, uint32_t replica, uint32_t replicas,
               uint32_t global_batch, uint64_t *out)
{
    ASSERT(replica < replicas && global_batch % replicas == 0 && global_batch > 0);
    uint64_t steps = data_steps_per_epoch(d, global_batch);
    uint64_t key = random_key(d->spec.seed, "shuffle", step / steps);
    uint64_t first = step % steps * global_batch;
    for (uint32_t i = 0; i < global_batch / replicas; i++) {
        uint64_t place = first + (uint64_t)i * replicas + replica;
        out[i] = shuffled(key, place % d->samples_n, d->samples_n);
    }
}

/* ---- an mlp's samples ---- */

/* Its features, then its targets; NULL. */
static const float *kept_row(const Data *d, uint64_t sample)
{
    if (d->kind != DATA_MAP || d->place_of[sample] == NONE_U32)
        return NULL;
    uint64_t width = (uint64_t)d->spec.features + d->spec.outputs;
    return d->kept + d->place_of[sample] * width;
}

static void make_features(const Data *d, uint64_t sample, float *out)
{
    uint64_t n = d->spec.features, first = sample * n;
    if (d->kind == DATA_MAP)
        random_normals(d->features_key, first, n, out);
    for (uint64_t i = 0; d->kind == DATA_REGRESSION && i < n; i++)
        out[i] = (float)random_unit(d->features_key, first + i);
}

/* Products of two samples' features with one tile of the map, each summed from j = 0 on. */
static void tile_sums(const Data *d, uint64_t tile, const float *a, const float *b,
                      double out[PAIR][TILE])
{
    uint64_t features = d->spec.features;
    const float *w = d->map + tile * features * TILE;
    double sum[PAIR][TILE] = { { 0 } };
    for (uint64_t j = 0; j < features; j++, w += TILE) {
        double x = (double)a[j], y = (double)b[j];
        for (int o = 0; o < TILE; o++) {
            sum[0][o] += x * (double)w[o];
            sum[1][o] += y * (double)w[o];
        }
    }
    memcpy(out, sum, sizeof sum);
}

/* Targets of n samples: features and targets of each lie `stride` behind those of the one
 * before. */
static void make_targets(const Data *d, const float *features, float *targets, uint64_t n,
                         uint64_t stride)
{
    double sum[PAIR][TILE];
    for (uint64_t tile = 0; tile < tiles_n(d); tile++) {
        uint64_t width = min_u64(TILE, d->spec.outputs - tile * TILE);
        for (uint64_t i = 0; i < n; i += PAIR) {
            uint64_t pair = min_u64(PAIR, n - i);
            const float *first = features + i * stride;
            tile_sums(d, tile, first, first + (pair - 1) * stride, sum);
            for (uint64_t k = 0; k < pair; k++)
                for (uint64_t o = 0; o < width; o++)
                    targets[(i + k) * stride + tile * TILE + o] = (float)sum[k][o];
        }
    }
}

/* Finds places for samples that have none, in front of which kept_n are taken; their number. */
static uint64_t find_places(Data *d, const uint64_t *samples, uint64_t n)
{
    uint64_t width = (uint64_t)d->spec.features + d->spec.outputs, first = d->kept_n;
    uint64_t most = KEEP_BYTES_MAX / (width * sizeof *d->kept);
    for (uint64_t i = 0; i < n && d->kept_n < most; i++) {
        ASSERT(samples[i] < d->samples_n);
        if (d->place_of[samples[i]] == NONE_U32)
            d->place_of[samples[i]] = d->kept_n++;
    }
    return d->kept_n - first;
}

void data_keep(Data *d, const uint64_t *samples, uint64_t n)
{
    if (d->kind != DATA_MAP)
        return;
    uint64_t features = d->spec.features, width = features + d->spec.outputs;
    uint32_t before = d->kept_n;
    uint64_t new_n = find_places(d, samples, n);
    float *kept = mem_zero(d->kept_n * width + 1, sizeof *kept), *new = kept + before *width;
    if (before > 0)
        memcpy(kept, d->kept, before * width * sizeof *kept);
    free(d->kept);
    d->kept = kept;
    for (uint64_t x = 0; x < d->samples_n; x++)
        if (d->place_of[x] != NONE_U32 && d->place_of[x] >= before)
            make_features(d, x, kept + d->place_of[x] * width);
    make_targets(d, new, new + features, new_n, width);
}

void data_features(const Data *d, uint64_t sample, float *out)
{
    ASSERT(!d->spec.tokens && sample < d->samples_n);
    const float *kept = kept_row(d, sample);
    if (kept)
        memcpy(out, kept, d->spec.features * sizeof *out);
    else
        make_features(d, sample, out);
}

void data_targets(const Data *d, uint64_t sample, float *out)
{
    ASSERT(!d->spec.tokens && sample < d->samples_n);
    const float *kept = kept_row(d, sample);
    if (d->kind == DATA_REGRESSION) {
        out[0] = (float)random_unit(d->targets_key, sample);
    } else if (kept) {
        memcpy(out, kept + d->spec.features, d->spec.outputs * sizeof *out);
    } else {
        float *x = mem_zero(d->spec.features, sizeof *x);
        make_features(d, sample, x);
        make_targets(d, x, out, 1, 0);
        free(x);
    }
}

void data_label(const Data *d, uint64_t sample, int64_t *out)
{
    ASSERT(d->kind == DATA_MAP && sample < d->samples_n);
    float *targets = mem_zero(d->spec.outputs, sizeof *targets), best = -INFINITY;
    data_targets(d, sample, targets);
    for (uint32_t o = 0; o < d->spec.outputs; o++)
        if (targets[o] > best) {
            best = targets[o];
            *out = o;
        }
    free(targets);
}

/* ---- sequences ---- */

/* The first n places of the chain. */
static void walk_chain(const Data *d, uint64_t sample, uint64_t n, int64_t *out)
{
    static const uint8_t successor[8] = { 0, 0, 0, 0, 1, 1, 2, 3 };
    uint64_t key = random_key(d->spec.seed, "sequence", sample), vocab = d->spec.vocab;
    uint64_t token = random_bits(key, 0) % vocab;
    for (uint64_t t = 0; t < n; t++) {
        if (t > 0) {
            uint64_t edge = 4 * token + successor[random_bits(key, t) % 8];
            token = random_bits(d->chain_key, edge) % vocab;
        }
        out[t] = (int64_t)token;
    }
}

/* The first failure is kept, though samples are read through a const Data. */
static void note_failure(const Data *d, int reason)
{
    int well = 0;
    atomic_compare_exchange_strong(&((Data *)d)->reason, &well, reason);
}

/* n bytes from offset on; zeros where they cannot be read. */
static void read_window(const Data *d, uint64_t offset, uint64_t n, int64_t *out)
{
    uint8_t bytes[4 * CHUNK];
    for (uint64_t at = 0; at < n;) {
        size_t want = (size_t)min_u64(sizeof bytes, n - at);
        ssize_t got = pread(d->file, bytes, want, (off_t)(offset + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            note_failure(d, got < 0 ? errno : -1);
            memset(out + at, 0, (n - at) * sizeof *out);
            return;
        }
        for (ssize_t i = 0; i < got; i++)
            out[at + (uint64_t)i] = bytes[i];
        at += (uint64_t)got;
    }
}

void data_sequence(const Data *d, uint64_t sample, int64_t *out)
{
    ASSERT(d->spec.tokens && sample < d->samples_n);
    uint64_t n = (uint64_t)d->spec.seq_len + 1;
    if (d->kind == DATA_CHAIN)
        walk_chain(d, sample, n, out);
    else
        read_window(d, sample * d->spec.seq_len, n, out);
}
