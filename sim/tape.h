/*
 * tape.h - the mathematics of one block, forward, as a list of ops on values.
 *
 * A block of a model is written down once, as the forward pass alone:
 *
 *     x ---norm---> n ---matmul(W)---> u ---activation---> a ---matmul(V)---> d ---add(x)---> out
 *
 * Everything else follows from the tape and is written nowhere a second time:
 * sim/strategy/tensor.c rewrites it for tensor parallelism, sim/draft.c derives
 * the backward pass (and what is computed again in it), and sim/segments.c finds
 * from who reads what which values must be saved, and when each one dies.
 *
 * A value is a matrix of rows (tokens, samples, pixels) and columns (features).
 * Values never change, but an op may put its result into the memory of its first
 * input (in_place): the two then share one `memory`.
 *
 * The number of an op on the tape is its logical id; a stack of software never
 * changes how many ops stand on the tape (those it lacks are `idle`), so two
 * lowerings agree on the ids.
 */
#ifndef LOCKSTEP_SIM_TAPE_H
#define LOCKSTEP_SIM_TAPE_H

#include "core/graph.h"

/* Where a value comes from. */
typedef enum ValueHome { VALUE_MADE, VALUE_IN, VALUE_DATA, VALUE_PARAM } ValueHome;

/* How a value lies over the ranks of a tensor-parallel group; see sim/strategy/tensor.c. */
typedef enum Split {
    SPLIT_WHOLE,   /* every rank holds all of it */
    SPLIT_ROWS,    /* rank i holds the i-th part of the rows (sequence parallelism) */
    SPLIT_COLUMNS, /* ... of the columns: heads, or neurons, or the vocabulary */
    SPLIT_PARTIAL  /* every rank holds a term of the sum */
} Split;

/* What tensor parallelism does to an op that has parameters; other ops follow their inputs. */
typedef enum TapeTp {
    TP_FOLLOW,
    TP_COLUMN, /* matmul whose outputs are shared out */
    TP_ROW,    /* matmul whose inputs are shared out: the result is partial */
    TP_VOCAB,  /* embedding whose rows are shared out: the result is partial */
    TP_JOIN,   /* follows in[0], and needs all of its other inputs */
    TP_GATHER /* follows; under sequence parallelism all ranks' rows of the result are gathered,
                  and kept for backward: the experts' matmuls need no more */
} TapeTp;

/* What backward does again of an op, instead of finding it saved. */
typedef enum Redo {
    REDO_NOTHING,
    REDO_ALL,
    REDO_AUX,  /* only what no other op reads: the result itself is saved */
    REDO_PART, /* matmul: some columns (RedoPart); the others are saved */
    REDO_KEEP  /* nothing; the result is saved even where nobody reads it */
} Redo;

/* Of a value's columns, those that backward makes again where the others are saved. */
typedef struct RedoPart {
    uint64_t columns;             /* 0: none, it is one piece */
    const char *kept_name, *name; /* the others; the value and the kernel that makes it again */
} RedoPart;

typedef struct TapeValue {
    const char *name;
    ValueHome home;
    DType dtype;
    uint64_t rows, columns;
    uint32_t copies;     /* VALUE_MADE: as often in memory, alike; 0 is once */
    uint64_t kv_columns; /* of the columns, those of key and value heads (grouped queries) */
    bool kv_repeated;    /* which are there once for each head of the queries */
    uint32_t memory;     /* value whose memory this is: itself, or the one overwritten */
    uint32_t tensor;     /* VALUE_DATA: in the data layout.  VALUE_PARAM: in the param layout */
    bool table;          /* VALUE_PARAM: an embedding; only the rows looked up are read */
    bool shared;         /* VALUE_PARAM: tied embedding, see Param */
    bool borrowed; /* VALUE_PARAM: of the block that shares its frame, or of an earlier value */
    bool adds;     /* VALUE_PARAM: its gradient has been written before, by the borrower */
    bool tp_partial; /* VALUE_PARAM: see Param */
    bool expert;     /* VALUE_PARAM: see Param */
    bool quantized;  /* VALUE_PARAM: see Param */
    Split split;
} TapeValue;

/* Masks of dropout take a byte per number, as PyTorch's bool. */
#define DTYPE_MASK DTYPE_FP8

enum { TAPE_DATA_MAX = 5, TAPE_IN_MAX = 4, TAPE_PARAM_MAX = 4, TAPE_AUX_MAX = 4 };

typedef struct TapeOp {
    OpKind kind; /* OP_ALL_REDUCE where is_comm, else a compute op */
    OpFn fn;
    const char *name;
    DType dtype; /* of the arithmetic */
    uint32_t in_n, param_n, aux_n;
    uint32_t in[TAPE_IN_MAX];
    uint32_t param[TAPE_PARAM_MAX]; /* weight or table; norm: gain, shift */
    uint32_t out;
    /* Matmul, convolution: a 16-bit copy of param[0], read in its place; 0: none. */
    uint32_t cast;
    uint32_t aux[TAPE_AUX_MAX]; /* also written, for backward: statistics, softmax, indices */
    bool in_place;              /* out has the memory of in[0] */
    bool idle;                  /* keeps its number but does nothing; in_place */
    bool slice;   /* touches, and differentiates, a part of its inputs: see draft_touched */
    bool chain;   /* OP_NORM, OP_ROPE, OP_ACTIVATION: a chain of kernels; the norm keeps its
                        input in f32, so may the activation */
    bool joins;   /* OP_COPY: in[1] goes beside in[0], once for every head */
    bool repeats; /* OP_COPY: keys and values, once for each head that they serve */
    bool weighed; /* OP_COPY: a sum of rows, already times in[1]: backward needs them no more */
    uint64_t turns, turns_of; /* OP_ROPE: of so many columns, so many turn; 0: all but values */
    bool is_loss;             /* backward begins here */
    bool fused_loss;          /* ... and the gradient of the logits already is in their place */
    uint64_t patch;           /* OP_CONV, OP_POOL: elements of the window */
    double own; /* matmul: part of its flops that no other rank of tp does too; 0: all */
    /* OP_MATMUL: of so many experts, each with its part of the rows; 0: plain. */
    uint32_t groups;
    TapeTp tp;

    /* OP_ATTENTION */
    AttentionShape attention;
    double pairs;        /* (query, key) pairs computed, per head and sample */
    double model_pairs;  /* those that model flops count */
    bool math_attention; /* the softmax is in memory */
    bool apart; /* in[0] holds queries; in[1] keys and values, with cp of the whole sequence */

    /* Communication of tensor or context parallelism. */
    bool is_comm, over_cp;
    bool at_once; /* over cp: never round a ring */
    bool over_ep; /* all-to-all of tokens between experts */
    bool over_kv; /* among the ranks that repeat a key and value head, of its columns alone */
    OpKind forward, backward; /* collective of each pass; OP_KIND_N: nothing to do */
    bool again;               /* its result is not saved but gathered again in backward */
} TapeOp;

typedef struct Tape {
    Arena *arena; /* borrowed; names live there */
    uint32_t values_n, values_cap, ops_n, ops_cap, params_n, data_n;
    TapeValue *values;
    TapeOp *ops;
    uint32_t in;  /* value in SLOT_IN; NONE_U32 for the first block */
    uint32_t out; /* value in SLOT_OUT; NONE_U32 for the last block */
    bool has_loss;
} Tape;

void tape_free(Tape *t);
/* Equal for tapes of the same ops with the same parameters, on however many rows; never 0. */
uint64_t tape_numbering(const Tape *t);

/* ---- values ---- */

uint32_t tape_value(Tape *t, TapeValue value); /* memory is set to itself */
uint32_t tape_made(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns);
uint32_t tape_input(Tape *t, DType dtype, uint64_t rows, uint64_t columns);
uint32_t tape_data(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns);
uint32_t tape_param(Tape *t, const char *name, DType dtype, uint64_t rows, uint64_t columns);
/* Matmuls and convolutions in dtype read casts of f32 weights from now on. */
void tape_cast_weights(Tape *t, DType dtype);

uint64_t value_elements(const TapeValue *v);
uint64_t value_bytes(const TapeValue *v);

/* ---- ops: inputs first; they return the value made ---- */

TapeOp *tape_op(Tape *t, TapeOp op);
/* y[rows, n] = x w^T, w stored [n, k] as torch.nn.Linear does. */
uint32_t tape_matmul(Tape *t, const char *name, DType dtype, uint32_t x, uint32_t w, TapeTp tp);
/* y[rows, columns of like] in place of x. */
uint32_t tape_in_place(Tape *t, TapeOp op);

#endif
