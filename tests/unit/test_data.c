/*
 * test_data.c - samples are the same for whoever asks, and each is seen once an epoch.
 */
#include "exec/data.h"
#include "exec/random.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const DataSpec mlp = { .kind = "synthetic", .features = 64, .outputs = 128, .seed = 7 };
static const DataSpec gpt = {
    .kind = "synthetic", .tokens = true, .seq_len = 32, .vocab = 50, .seed = 7
};

static Data *open_data(DataSpec spec)
{
    Err err = { 0 };
    Data *d = NULL;
    if (!CHECK(data_open(&d, &spec, &err)))
        fprintf(stderr, "%s\n", err.text);
    ASSERT(d);
    return d;
}

/* A file with n bytes, byte i is i % 251; its name is in static storage. */
static const char *make_file(uint64_t n)
{
    static char name[256];
    snprintf(name, sizeof name, "%s/lockstep-test-data-%ld", P_tmpdir, (long)getpid());
    FILE *f = fopen(name, "w");
    ASSERT(f);
    for (uint64_t i = 0; i < n; i++)
        fputc((int)(i % 251), f);
    ASSERT(fclose(f) == 0);
    return name;
}

static DataSpec text(const char *name, uint32_t seq_len)
{
    return (DataSpec){ .kind = name, .tokens = true, .seq_len = seq_len, .vocab = 256 };
}

/* ---- who gets which ---- */

/* Samples of one step over all replicas, in the order of the epoch's list. */
static void pick_all(const Data *d, uint64_t step, uint32_t n, uint32_t batch, uint64_t *out)
{
    uint64_t *mine = mem_zero(batch, sizeof *mine);
    for (uint32_t r = 0; r < n; r++) {
        data_pick(d, step, r, n, batch, mine);
        for (uint32_t i = 0; i < batch / n; i++)
            out[i * n + r] = mine[i];
    }
    free(mine);
}

static void an_epoch_has_each_sample_once_padding_aside(void)
{
    static const uint32_t batches[] = { 1, 3, 4, 32, 100, 2048 };
    Data *d = open_data(mlp);
    for (size_t b = 0; b < ARRAY_N(batches); b++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint32_t batch = batches[b];
            uint64_t n = data_samples_n(d), steps = data_steps_per_epoch(d, batch);
            uint64_t *all = mem_zero(steps * batch, sizeof *all);
            uint8_t *seen = mem_zero(n, 1);
            CHECK_U64(div_up_u64(n, batch), steps);
            for (uint64_t k = 0; k < steps; k++)
                pick_all(d, epoch * steps + k, 1, batch, all + k * batch);
            for (uint64_t i = 0; i < n; i++)
                CHECK(all[i] < n && seen[all[i]]++ == 0);
            for (uint64_t i = n; i < steps * batch; i++)
                CHECK_U64(all[i - n], all[i]); /* padded from the list's beginning */
            free(all);
            free(seen);
        }
    data_close(d);
}

static void the_union_is_the_same_for_any_number_of_replicas(void)
{
    const char *name = make_file(9 * 70 + 1); /* 70 samples: nothing divides */
    Data *sets[] = { open_data(mlp), open_data(text(name, 9)) };
    CHECK_U64(70, data_samples_n(sets[1]));
    for (size_t s = 0; s < ARRAY_N(sets); s++)
        for (uint64_t step = 0; step < 200; step += 7) {
            uint64_t one[48], many[48];
            pick_all(sets[s], step, 1, 48, one);
            for (uint32_t n = 2; n <= 48; n++) {
                if (48 % n)
                    continue;
                pick_all(sets[s], step, n, 48, many);
                CHECK(memcmp(one, many, sizeof one) == 0);
            }
        }
    data_close(sets[0]);
    data_close(sets[1]);
    unlink(name);
}

/* More replicas, and larger steps, than there are samples. */
static void few_samples_are_repeated(void)
{
    const char *name = make_file(8 * 3 + 1);
    Data *d = open_data(text(name, 8));
    uint64_t all[16];
    CHECK_U64(3, data_samples_n(d));
    CHECK_U64(1, data_steps_per_epoch(d, 16));
    pick_all(d, 5, 16, 16, all);
    for (uint32_t i = 3; i < 16; i++)
        CHECK_U64(all[i - 3], all[i]);
    CHECK(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    data_close(d);
    unlink(name);
}

static uint64_t same_places(const uint64_t *a, const uint64_t *b, uint64_t n)
{
    uint64_t same = 0;
    for (uint64_t i = 0; i < n; i++)
        same += a[i] == b[i];
    return same;
}

/* Random lists of 2,048 agree in one place on average, in 12 or more with odds below 1e-9. */
static void every_epoch_and_seed_has_an_order_of_its_own(void)
{
    Data *d = open_data(mlp);
    DataSpec other = mlp;
    other.seed = 8;
    Data *e = open_data(other);
    static uint64_t order[5][2048], sorted[2048], others[2048];
    for (uint64_t i = 0; i < 2048; i++)
        sorted[i] = i;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        data_pick(d, epoch, 0, 1, 2048, order[epoch]);
        data_pick(e, epoch, 0, 1, 2048, others);
        CHECK(same_places(order[epoch], sorted, 2048) < 12);
        CHECK(same_places(order[epoch], others, 2048) < 12);
        for (uint64_t before = 0; before < epoch; before++)
            CHECK(same_places(order[epoch], order[before], 2048) < 12);
    }
    data_close(d);
    data_close(e);
}

/* Where a sample lands is spread evenly: chi squared over 16 x 16 cells, 255 degrees of freedom:
 * above 350 with odds below 1e-4.  And neighbours do not stay together. */
static void shuffles_mix_well(void)
{
    Data *d = open_data(mlp);
    static uint64_t order[2048];
    double cells[16][16] = { { 0 } }, chi = 0;
    uint32_t neighbours = 0;
    for (uint64_t epoch = 0; epoch < 8; epoch++) {
        data_pick(d, epoch, 0, 1, 2048, order);
        for (uint64_t i = 0; i < 2048; i++) {
            cells[i / 128][order[i] / 128]++;
            neighbours += i > 0 && order[i] == order[i - 1] + 1;
        }
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            chi += (cells[i][j] - 64) * (cells[i][j] - 64) / 64;
    CHECK(chi < 350);
    CHECK(neighbours < 30); /* 8 are expected */
    data_close(d);
}

/* ---- samples ---- */

static void the_same_seed_gives_the_same_bits(void)
{
    Data *a = open_data(mlp), *b = open_data(mlp), *c = open_data(gpt), *e = open_data(gpt);
    for (uint64_t x = 0; x < 2048; x += 111) {
        float f[2][64], t[2][128];
        int64_t s[2][33];
        data_features(a, x, f[0]);
        data_targets(a, x, t[0]);
        data_sequence(c, x, s[0]);
        data_targets(b, x, t[1]); /* in another order */
        data_features(b, x, f[1]);
        data_sequence(e, 0, s[1]);
        data_sequence(e, x, s[1]);
        CHECK(memcmp(f[0], f[1], sizeof f[0]) == 0);
        CHECK(memcmp(t[0], t[1], sizeof t[0]) == 0);
        CHECK(memcmp(s[0], s[1], sizeof s[0]) == 0);
    }
    data_close(a);
    data_close(b);
    data_close(c);
    data_close(e);
}

/* Target o of the features by the definition, to the last bit: one linear map of standard normals
 * over sqrt(features), products in f64, added from j = 0 on, rounded once. */
static float map_target(const DataSpec *s, const float *f, uint64_t o)
{
    uint64_t map = random_key(s->seed, "map", 0), outputs = s->outputs;
    double sum = 0, pair[2];
    for (uint64_t j = 0; j < s->features; j++) {
        random_normal_pair(map, (j * outputs + o) / 2, pair);
        double entry = pair[(j * outputs + o) % 2] * (1 / sqrt((double)s->features));
        sum += (double)f[j] * (double)(float)entry;
    }
    return (float)sum;
}

static void mlp_targets_are_one_linear_map_of_the_features(void)
{
    const DataSpec odd = { .kind = "synthetic", .features = 33, .outputs = 13, .seed = 3 };
    const DataSpec specs[] = { mlp, odd };
    for (size_t i = 0; i < ARRAY_N(specs); i++) {
        Data *d = open_data(specs[i]);
        for (uint64_t x = 0; x < 20; x++) {
            float f[64], t[128];
            data_features(d, x, f);
            data_targets(d, x, t);
            for (uint64_t o = 0; o < specs[i].outputs; o++)
                CHECK(map_target(&specs[i], f, o) == t[o]);
        }
        data_close(d);
    }
}

static void features_are_standard_normal(void)
{
    Data *d = open_data(mlp);
    double sum = 0, squares = 0, n = 2048 * 64;
    for (uint64_t x = 0; x < 2048; x++) {
        float f[64];
        data_features(d, x, f);
        for (int j = 0; j < 64; j++) {
            sum += (double)f[j];
            squares += (double)f[j] * (double)f[j];
        }
    }
    CHECK(fabs(sum / n) < 0.015); /* five standard errors */
    CHECK(fabs(squares / n - 1) < 0.02);
    data_close(d);
}

/* Those made beforehand, alone or in pairs, asked for once or twice, and those that are not. */
static void samples_made_beforehand_are_the_same(void)
{
    const uint64_t keep[] = { 5, 2047, 5, 0, 77, 300, 77, 9 };
    DataSpec odd = { .kind = "synthetic", .features = 33, .outputs = 13, .labels = true };
    Data *a = open_data(odd), *b = open_data(odd);
    data_keep(b, keep, 4);
    data_keep(b, keep + 3, ARRAY_N(keep) - 3);
    for (uint64_t x = 0; x < 2048; x = x < 90 ? x + 1 : x + 103) {
        float f[2][33], t[2][13];
        int64_t label[2] = { -1, -2 };
        data_features(a, x, f[0]);
        data_features(b, x, f[1]);
        data_targets(a, x, t[0]);
        data_targets(b, x, t[1]);
        data_label(a, x, &label[0]);
        data_label(b, x, &label[1]);
        CHECK(memcmp(f[0], f[1], sizeof f[0]) == 0);
        CHECK(memcmp(t[0], t[1], sizeof t[0]) == 0);
        CHECK_INT(label[0], label[1]);
    }
    data_close(a);
    data_close(b);
}

/* Widths beyond a chunk give what small ones would: the map is addressed by (j, o). */
static void wide_targets_and_labels_agree(void)
{
    DataSpec wide = { .kind = "synthetic", .features = 1500, .outputs = 2500, .labels = true };
    Data *d = open_data(wide);
    static float f[1500], t[2500];
    for (uint64_t x = 0; x < 40; x += 13) {
        int64_t label = -1;
        data_features(d, x, f);
        data_targets(d, x, t);
        data_label(d, x, &label);
        int64_t best = 0;
        for (int64_t o = 0; o < 2500; o++)
            best = t[o] > t[best] ? o : best;
        CHECK_INT(best, label);
        CHECK(map_target(&wide, f, 2499) == t[2499]);
    }
    data_close(d);
}

static void regression20_is_uniform(void)
{
    Data *d = open_data((DataSpec){ .kind = "regression20", .features = 20, .outputs = 1 });
    double sum = 0;
    CHECK_U64(2048, data_samples_n(d));
    for (uint64_t x = 0; x < 2048; x++) {
        float f[20], t;
        data_features(d, x, f);
        data_targets(d, x, &t);
        CHECK(t >= 0 && t <= 1);
        for (int j = 0; j < 20; j++) {
            CHECK(f[j] >= 0 && f[j] <= 1);
            sum += (double)f[j];
        }
    }
    CHECK(fabs(sum / (2048 * 20) - 0.5) < 0.008);
    data_close(d);
}

/* At most four successors of each token, the first of them half of the time. */
static void sequences_can_be_learned(void)
{
    Data *d = open_data(gpt);
    static uint32_t follows[50][50];
    uint32_t all = 0, most = 0;
    for (uint64_t x = 0; x < 2048; x++) {
        int64_t s[33], *next = s + 1;
        data_sequence(d, x, s);
        for (int t = 0; t < 32; t++) {
            ASSERT(s[t] >= 0 && s[t] < 50 && next[t] >= 0 && next[t] < 50);
            follows[s[t]][next[t]]++;
            all++;
        }
    }
    for (int a = 0; a < 50; a++) {
        uint32_t successors = 0, best = 0;
        for (int b = 0; b < 50; b++) {
            successors += follows[a][b] > 0;
            best = follows[a][b] > best ? follows[a][b] : best;
        }
        CHECK(successors <= 4);
        most += best;
    }
    CHECK((double)most / all > 0.49);
    data_close(d);
}

/* ---- files ---- */

static void a_file_is_cut_into_windows(void)
{
    const char *name = make_file(10000);
    Data *d = open_data(text(name, 5000)); /* longer than what is read at once */
    static int64_t s[5001];
    CHECK_U64(1, data_samples_n(d)); /* the second lacks its last target */
    data_close(d);
    d = open_data(text(name, 4999));
    CHECK_U64(2, data_samples_n(d));
    for (uint64_t x = 0; x < 2; x++) {
        data_sequence(d, x, s);
        for (uint64_t t = 0; t < 5000; t++)
            CHECK_U64((x * 4999 + t) % 251, (uint64_t)s[t]);
    }
    CHECK(data_check(d, NULL));
    data_close(d);
    unlink(name);
}

/* A hole of 5 GB at its beginning: nothing is read but what is asked for. */
static void a_file_may_be_larger_than_memory(void)
{
    const char *name = make_file(0);
    FILE *f = fopen(name, "r+");
    ASSERT(f && fseeko(f, (off_t)5000000000, SEEK_SET) == 0);
    fputs("abcdefgh", f);
    ASSERT(fclose(f) == 0);
    Data *d = open_data(text(name, 4));
    int64_t s[5];
    CHECK_U64(5000000007u / 4, data_samples_n(d));
    data_sequence(d, 5000000000u / 4, s);
    CHECK(s[0] == 'a' && s[4] == 'e');
    uint64_t mine[2];
    data_pick(d, 3, 1, 2, 4, mine);
    CHECK(mine[0] < data_samples_n(d) && mine[1] < data_samples_n(d));
    data_close(d);
    unlink(name);
}

static void a_file_that_shrinks_is_told(void)
{
    const char *name = make_file(1000);
    Data *d = open_data(text(name, 10));
    int64_t s[11];
    Err err = { 0 };
    ASSERT(truncate(name, 500) == 0);
    data_sequence(d, 3, s);
    CHECK(data_check(d, &err));
    data_sequence(d, 80, s);
    CHECK_INT(0, s[0]);
    CHECK(!data_check(d, &err));
    CHECK_ERR_TEXT(&err, "it has become shorter");
    data_close(d);
    unlink(name);
}

static void refuse(DataSpec spec, const char *why)
{
    Err err = { 0 };
    Data *d = NULL;
    CHECK(!data_open(&d, &spec, &err));
    CHECK(d == NULL);
    CHECK_ERR_TEXT(&err, why);
}

static void what_cannot_be_data_gets_a_sentence(void)
{
    refuse(text("/nonexistent/x.txt", 8), "cannot open '/nonexistent/x.txt': No such file");
    refuse(text(P_tmpdir, 8), "is not a file");
    refuse(text("/dev/null", 8), "is not a file");
    const char *name = make_file(0);
    refuse(text(name, 8), "is empty");
    name = make_file(8);
    refuse(text(name, 8), "holds 8 bytes; with seq_len 8 at least 9 are needed");
    name = make_file(9);
    data_close(open_data(text(name, 8)));
    DataSpec small = text(name, 8);
    small.vocab = 255;
    refuse(small, "has 255 tokens; at least 256 are needed");
    DataSpec rows = mlp;
    rows.kind = name;
    refuse(rows, "a text file needs a transformer");
    unlink(name);
    DataSpec wrong = mlp;
    wrong.kind = "regression20";
    refuse(wrong, "the model's widths begin with 64 and end with 128; 20 and 1 are allowed");
    wrong.features = 20;
    wrong.outputs = 1;
    wrong.labels = true;
    refuse(wrong, "training.loss 'mse' is allowed");
    DataSpec tokens = gpt;
    tokens.kind = "regression20";
    refuse(tokens, "not tokens");
}

int main(void)
{
    RUN(an_epoch_has_each_sample_once_padding_aside);
    RUN(the_union_is_the_same_for_any_number_of_replicas);
    RUN(few_samples_are_repeated);
    RUN(every_epoch_and_seed_has_an_order_of_its_own);
    RUN(shuffles_mix_well);
    RUN(the_same_seed_gives_the_same_bits);
    RUN(mlp_targets_are_one_linear_map_of_the_features);
    RUN(features_are_standard_normal);
    RUN(samples_made_beforehand_are_the_same);
    RUN(wide_targets_and_labels_agree);
    RUN(regression20_is_uniform);
    RUN(sequences_can_be_learned);
    RUN(a_file_is_cut_into_windows);
    RUN(a_file_may_be_larger_than_memory);
    RUN(a_file_that_shrinks_is_told);
    RUN(what_cannot_be_data_gets_a_sentence);
    return check_report();
}
