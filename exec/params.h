/*
 * params.h - which parameter a piece of memory is, and its first value.
 *
 * The same network must come out however it is split: one process, tensor parallel,
 * sharded.  So every parameter has one identity, (layer, name), and a shape as one
 * process would hold it (Whole); what a rank holds is described by runs of it:
 *
 *     whole  attention.qkv.weight [q rows | k rows | v rows] x hidden
 *     tp 2, rank 1                [..####|..##|..##]         rows of its heads
 *     fsdp 2, rank 1              ...............######      second half of all elements
 *     local                       [runs one after another]
 *
 * FIRST VALUES come from (seed, layer, name, index in the whole), so they are equal for
 * every split: PyTorch's distributions (uniform +-1/sqrt(fan in) for the linear layers of
 * an mlp, as torch.nn.Linear; normal 0.02 for transformers, as GPT-2; gains 1, shifts and
 * biases 0 there).  With key = key(seed, name, layer) of exec/random.h, layer NONE_U32
 * = 2^32 - 1 where there is none, element i of the whole, row-major, is
 *
 *     INIT_NORMAL    (f32) ((f32) normal(key, i) * init_scale)
 *     INIT_UNIFORM   (f32) ((2 unit(key, i) - 1) * init_scale)
 *     INIT_ONE, INIT_ZERO
 *
 * in f64 but for the marked roundings, then rounded to the tensor's format.
 *
 * OWNERS.  Of all ranks that hold an element exactly one owns it: the first of its dp
 * group (or dp_replicate, of shards), the first tp rank of those that repeat it, the first
 * pipeline stage of those that have a tied embedding.  A parameter of which a rank owns a
 * part only (its queries, but not the key head it repeats) is several pieces.
 *
 * VECTORS are columns (rows n, columns 1) or rows (1, n).  A row named NAME.bias that is
 * split is split as the rows of NAME.weight are, sections and all.
 */
#ifndef LOCKSTEP_EXEC_PARAMS_H
#define LOCKSTEP_EXEC_PARAMS_H

#include "exec/program.h"
#include "exec/store.h"

/* How a parameter is shared out over tensor-parallel ranks. */
typedef enum Split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS } Split;

enum { SECTIONS_MAX = 3 };

/* A parameter as one process holds it.  sections: row counts that are each split over tp (q, k, v;
 * gate, up); a section of fewer heads than ranks is repeated.  sections_n 0: one, of all rows. */
typedef struct Whole {
    uint32_t layer; /* NONE_U32 */
    const char *name;
    uint64_t rows, columns;
    Split split;
    bool table; /* over the vocabulary: what a rank holds may be padded at its end */
    uint32_t sections_n;
    uint64_t section_rows[SECTIONS_MAX];
    uint64_t section_unit[SECTIONS_MAX]; /* rows that stay together (head_dim), 1 */
    enum { INIT_NORMAL, INIT_UNIFORM, INIT_ONE, INIT_ZERO } init;
    double init_scale; /* standard deviation, or half width */
} Whole;

typedef struct WholeList {
    uint32_t n;
    Whole *whole;
} WholeList;

/* Elements [local, local + n) of a resident tensor are [whole, whole + n) of the parameter. */
typedef struct Run {
    uint64_t local, whole, n;
} Run;

typedef enum PieceKind {
    PIECE_PARAM,
    PIECE_MASTER,
    PIECE_FIRST_MOMENT,
    PIECE_SECOND_MOMENT,
    PIECE_KIND_N
} PieceKind;

/* Padding (of a last shard, of a vocabulary) is in no piece. */
typedef struct Piece {
    uint32_t resident; /* Program.residents */
    uint32_t whole;    /* WholeList */
    PieceKind what;
    bool owner; /* of all ranks that hold these elements, the one that snapshots them */
    uint32_t runs_first, runs_n; /* ascending, in local and in whole */
} Piece;

/* Where this rank stands in the split, read off the graph's groups. */
typedef struct Pieces {
    uint32_t pieces_n, runs_n;
    Piece *pieces;
    Run *runs;
} Pieces;

/* Every PARAM, SHARD and STATE resident of the program as runs of its parameter.  False when
 * the list lacks a parameter, or has another shape.  out is empty then. */
bool pieces_make(Pieces *out, const Program *p, const WholeList *whole, Err *err);
void pieces_free(Pieces *x);

/* The runs of a piece from *run on that follow one another in the resident, as one (its `whole` is
 * the first one's); *run is the run behind them. */
Run pieces_stretch(const Pieces *x, const Piece *piece, uint32_t *run);

/* Puts first values of parameters and master weights into the store; moments are zero. */
bool pieces_init(const Pieces *x, const Program *p, const WholeList *whole, uint64_t seed,
                 const Store *to, Err *err);

#endif
