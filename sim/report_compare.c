/*
 * report_compare.c - several scenarios side by side, one column each.
 *
 *     16 columns   | at least 12 for each scenario ... | up to COMPARE_WIDTH
 *
 * What does not fit goes into a further block below.  Names are wrapped over
 * HEAD_LINES lines at blanks, then cut.  What was asked for has rows where the
 * scenarios are not all the same and usual: two columns can be told apart.
 */
#include <math.h>
#include <string.h>

#include "sim/report.h"
#include "sim/texts.h"

enum { LABEL = 16, COLUMN_MIN = 12, COLUMN_MAX = 26, HEAD_LINES = 3 };

typedef char *Cell(char *text, const Report *r);

static char *cell_gpus(char *t, const Report *r)
{
    return text_number(t, r->gpus, 0);
}

static char *cell_strategy(char *t, const Report *r)
{
    snprintf(t, TEXT_CAP, "%s", r->strategy);
    return t;
}

/* ---- what was asked for ---- */

static char *cell_text(char *t, const char *text)
{
    snprintf(t, TEXT_CAP, "%s", text);
    return t;
}

static char *cell_model(char *t, const Report *r)
{
    return cell_text(t, r->model);
}

static char *cell_gpu(char *t, const Report *r)
{
    return cell_text(t, r->gpu);
}

static char *cell_cluster(char *t, const Report *r)
{
    return cell_text(t, r->cluster);
}

static char *cell_software(char *t, const Report *r)
{
    return cell_text(t, r->software);
}

static char *cell_precision(char *t, const Report *r)
{
    return cell_text(t, r->precision);
}

static char *cell_batch(char *t, const Report *r)
{
    return text_number(t, r->global_batch, 0);
}

static char *cell_seq(char *t, const Report *r)
{
    return text_number(t, r->seq_len, 0);
}

#define DEGREE_CELL(dim, index) \
    static char *cell_##dim(char *t, const Report *r) \
    { \
        return text_number(t, r->degree[index], 0); \
    }
DEGREE_CELL(dp, DIM_DP)
DEGREE_CELL(tp, DIM_TP)
DEGREE_CELL(pp, DIM_PP)
DEGREE_CELL(cp, DIM_CP)
DEGREE_CELL(ep, DIM_EP)

static char *cell_etp(char *t, const Report *r)
{
    return r->etp ? text_number(t, r->etp, 0) : strcpy(t, "-");
}

static char *cell_dispatcher(char *t, const Report *r)
{
    return cell_text(t, r->dispatcher ? r->dispatcher : "-");
}

static char *cell_shard(char *t, const Report *r)
{
    return r->shard_size ? text_number(t, r->shard_size, 0) : strcpy(t, "-");
}

static char *cell_sequence_parallel(char *t, const Report *r)
{
    return strcpy(t, r->sequence_parallel ? "yes" : "no");
}

static char *cell_schedule(char *t, const Report *r)
{
    return cell_text(t, r->degree[DIM_PP] > 1 ? r->schedule : "-");
}

static char *cell_chunks(char *t, const Report *r)
{
    return text_number(t, r->virtual_stages, 0);
}

static char *cell_micro(char *t, const Report *r)
{
    return text_number(t, r->micro_batch, 0);
}

static char *cell_recompute(char *t, const Report *r)
{
    return cell_text(t, r->recompute);
}

/* Rows that are shown when a column differs from usual; NULL: from the first column. */
static const struct {
    const char *label, *usual;
    Cell *cell;
} asked[] = {
    { "model", NULL, cell_model },
    { "cluster", NULL, cell_cluster },
    { "GPU", NULL, cell_gpu },
    { "software", NULL, cell_software },
    { "precision", NULL, cell_precision },
    { "batch", NULL, cell_batch },
    { "tokens each", NULL, cell_seq },
    { "dp", "1", cell_dp },
    { "tp", "1", cell_tp },
    { "pp", "1", cell_pp },
    { "cp", "1", cell_cp },
    { "ep", "1", cell_ep },
    { "etp", "-", cell_etp },
    { "dispatcher", "-", cell_dispatcher },
    { "shard size", "-", cell_shard },
    { "seq. parallel", "no", cell_sequence_parallel },
    { "schedule", "-", cell_schedule },
    { "virtual stages", "1", cell_chunks },
    { "micro-batch", "1", cell_micro },
    { "recompute", "none", cell_recompute },
};

/* ---- what comes of it ---- */

static char *cell_step(char *t, const Report *r)
{
    return text_seconds(t, r->step_time_s);
}

static char *cell_samples(char *t, const Report *r)
{
    return text_rate(t, r->samples_per_s);
}

static char *cell_tokens(char *t, const Report *r)
{
    return text_rate(t, r->tokens_per_s);
}

static char *cell_tokens_gpu(char *t, const Report *r)
{
    return text_rate(t, r->tokens_per_s_per_gpu);
}

static char *cell_mfu(char *t, const Report *r)
{
    return text_percent(t, 100 * r->rates.mfu);
}

static char *cell_compute(char *t, const Report *r)
{
    return text_seconds(t, r->times.compute_s);
}

static char *cell_exposed(char *t, const Report *r)
{
    return text_seconds(t, r->times.exposed_comm_s);
}

static char *cell_overlap(char *t, const Report *r)
{
    return text_percent(t, r->times.overlap_pct);
}

static char *cell_bubble(char *t, const Report *r)
{
    return text_seconds(t, r->times.bubble_s);
}

static char *cell_idle(char *t, const Report *r)
{
    return text_seconds(t, r->times.idle_s);
}

static char *cell_peak(char *t, const Report *r)
{
    return text_bytes(t, report_memory(r)->peak_bytes);
}

static char *cell_reserved(char *t, const Report *r)
{
    return text_bytes(t, report_fullest(r)->reserved_bytes);
}

static char *cell_fits(char *t, const Report *r)
{
    return strcpy(t, r->fits ? "yes" : "no");
}

static char *cell_cost(char *t, const Report *r)
{
    return text_usd(t, r->cost_usd_per_step);
}

typedef enum When { ALWAYS, WITH_TOKENS, WITHOUT_TOKENS, WITH_PRICE, WHEN_N } When;

static const struct {
    const char *label;
    When when;
    Cell *cell;
} rows[] = {
    { "step time", ALWAYS, cell_step },
    { "samples/s", WITHOUT_TOKENS, cell_samples },
    { "tokens/s", WITH_TOKENS, cell_tokens },
    { "  per GPU", WITH_TOKENS, cell_tokens_gpu },
    { "mfu", ALWAYS, cell_mfu },
    { "compute", ALWAYS, cell_compute },
    { "exposed comm", ALWAYS, cell_exposed },
    { "comm hidden", ALWAYS, cell_overlap },
    { "bubble", ALWAYS, cell_bubble },
    { "idle", ALWAYS, cell_idle },
    { "peak memory", ALWAYS, cell_peak },
    { "reserved", ALWAYS, cell_reserved },
    { "fits", ALWAYS, cell_fits },
    { "cost of a step", WITH_PRICE, cell_cost },
};

/* ---- names ---- */

typedef struct Head {
    char line[HEAD_LINES][TEXT_CAP];
} Head;

/* Bytes of name that fill one line: up to the last blank that fits, else width characters. */
static size_t line_bytes(const char *name, uint32_t width)
{
    size_t at = 0, blank = 0;
    for (uint32_t n = 0; name[at]; at++) {
        n += ((unsigned char)name[at] & 0xc0) != 0x80;
        if (name[at] == ' ')
            blank = at;
        if (n > width)
            return blank ? blank : at;
    }
    return at;
}

/* The lines of a name, the last ones of h: so that all names end above their numbers. */
static void wrap_name(Head *h, const char *name, uint32_t width)
{
    Head top;
    int lines = 0;
    for (; *name && lines < HEAD_LINES; lines++) {
        char part[TEXT_CAP];
        bool last = lines == HEAD_LINES - 1;
        size_t n = last ? strlen(name) : line_bytes(name, width);
        snprintf(part, sizeof part, "%.*s", (int)(n < sizeof part ? n : sizeof part - 1), name);
        text_name(top.line[lines], part, width);
        name += n;
        name += strspn(name, " ");
    }
    for (int l = 0; l < HEAD_LINES; l++) {
        int from = l - (HEAD_LINES - lines);
        strcpy(h->line[l], from < 0 ? "" : top.line[from]);
    }
}

/* ---- the table ---- */

typedef struct Compared {
    const Report **reports;
    uint32_t n;
} Compared;

/* Right-aligned; what an empty cell leaves out is made up for by the next that is not. */
static void print_cell(FILE *out, const char *text, uint32_t width, uint32_t *missing)
{
    uint32_t n = text_width(text);
    *missing += n < width ? width - n : 0;
    if (n == 0)
        return;
    fprintf(out, "%*s%s", (int)*missing, "", text);
    *missing = 0;
}

static void print_heads(const Report **reports, uint32_t n, uint32_t width, FILE *out)
{
    bool begun = false; /* no empty lines above */
    for (int l = 0; l < HEAD_LINES; l++) {
        uint32_t missing = LABEL;
        Head h;
        for (uint32_t i = 0; i < n; i++) {
            wrap_name(&h, reports[i]->name, width - 2);
            begun = begun || h.line[l][0];
            print_cell(out, h.line[l], width, &missing);
        }
        if (begun)
            fprintf(out, "\n");
    }
}

static void print_row(const char *label, Cell *cell, const Report **reports, uint32_t n,
                      uint32_t width, FILE *out)
{
    uint32_t missing = 0;
    fprintf(out, "%-*s", LABEL, label);
    for (uint32_t i = 0; i < n; i++) {
        char text[TEXT_CAP], cut[TEXT_CAP];
        print_cell(out, text_name(cut, cell(text, reports[i]), width - 1), width, &missing);
    }
    fprintf(out, "\n");
}

/* The same rows in every block: all is asked of all scenarios. */
static bool is_worth_a_row(const char *usual, Cell *cell, const Compared *all)
{
    char first[TEXT_CAP], text[TEXT_CAP];
    cell_text(first, usual ? usual : cell(text, all->reports[0]));
    for (uint32_t i = 0; i < all->n; i++)
        if (strcmp(first, cell(text, all->reports[i])) != 0)
            return true;
    return false;
}

static void print_block(const Compared *all, const Report **reports, uint32_t n, uint32_t width,
                        FILE *out)
{
    bool shown[WHEN_N] = { [ALWAYS] = true };
    for (uint32_t i = 0; i < all->n; i++) {
        shown[all->reports[i]->has_tokens ? WITH_TOKENS : WITHOUT_TOKENS] = true;
        shown[WITH_PRICE] |= isfinite(all->reports[i]->cost_usd_per_step) != 0;
    }
    print_heads(reports, n, width, out);
    print_row("GPUs", cell_gpus, reports, n, width, out);
    print_row("strategy", cell_strategy, reports, n, width, out);
    for (size_t row = 0; row < ARRAY_N(asked); row++)
        if (is_worth_a_row(asked[row].usual, asked[row].cell, all))
            print_row(asked[row].label, asked[row].cell, reports, n, width, out);
    for (size_t row = 0; row < ARRAY_N(rows); row++)
        if (shown[rows[row].when])
            print_row(rows[row].label, rows[row].cell, reports, n, width, out);
}

void report_compare(const Report **reports, uint32_t n, FILE *out)
{
    uint32_t per_block = (COMPARE_WIDTH - LABEL) / COLUMN_MIN;
    uint32_t columns = n < per_block ? n : per_block;
    uint32_t width = columns ? (COMPARE_WIDTH - LABEL) / columns : COLUMN_MIN;
    width = width > COLUMN_MAX ? COLUMN_MAX : width;
    const Compared all = { reports, n };
    for (uint32_t i = 0; i < n; i += per_block) {
        if (i > 0)
            fprintf(out, "\n");
        print_block(&all, reports + i, n - i < per_block ? n - i : per_block, width, out);
    }
}
