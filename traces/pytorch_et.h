/*
 * pytorch_et.h - PyTorch's execution traces (ExecutionTraceObserver): what ran and on
 * what tensors, and no word of when.
 *
 *     { "schema": "1.0.1", "pid": 7, "start_ts": 1, "finish_ts": 2, "nodes": [
 *         { "name": "nccl:all_reduce", "id": 151, "parent": 150, "rf_id": 93,
 *           "inputs": [[131, 132, 0, 33554432, 2, "cuda:0"]], ... } ] }
 *
 * Schemas 1.0.1 (flat nodes) to 1.1.0-chakra.0.0.4 (inputs { values, shapes, types },
 * attrs) are read.  Spans need times, so such a file is no timeline; that of the same
 * run is in the Kineto trace recorded beside it.  What it does say, collectives with
 * their sizes and groups, stands in a PytorchEt.
 */
#ifndef LOCKSTEP_TRACES_PYTORCH_ET_H
#define LOCKSTEP_TRACES_PYTORCH_ET_H

#include "core/intern.h"
#include "core/timeline.h"

typedef struct PytorchComm {
    uint32_t op;    /* interned: "all_reduce"; as written where it is unknown */
    uint32_t group; /* interned, or NONE_U32 */
    uint64_t bytes; /* of the input; NONE_U64 unknown */
    uint64_t node;  /* id */
} PytorchComm;

/* PytorchEt e = { 0 } is empty. */
typedef struct PytorchEt {
    Interner names;
    uint32_t schema;                    /* interned */
    uint64_t pid, nodes_n, operators_n; /* operators: nodes with a schema of their own */
    PytorchComm *comms;
    uint32_t comms_n, comms_cap;
} PytorchEt;

bool pytorch_et_matches(const uint8_t *head, size_t n);

bool pytorch_et_read(PytorchEt *e, const char *path, Err *err);
bool pytorch_et_parse(PytorchEt *e, const char *text, size_t n, const char *name, Err *err);
void pytorch_et_free(PytorchEt *e);

/* For the table of formats: never a timeline, and a sentence that says what the file holds. */
bool pytorch_et_open(Timeline *t, const char *path, Err *err);

#endif
