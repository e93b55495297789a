/*
 * feed.h - what the copies to the device (OP_H2D) bring: a rank's share of the data.
 *
 * Tensors are known by name: "features", "targets" (of an mlp: rows; of a transformer:
 * the next tokens), "tokens", "labels".  Within a micro-batch the copies of one name
 * bring the samples one after another: those of this rank's replica, or, where one
 * rank loads for all (DataParallel's device 0), replica after replica.
 *
 *     cp     a rank has its part of each sequence, from position_first on
 *     tp     targets narrower than the model's outputs are this rank's columns
 */
#ifndef LOCKSTEP_EXEC_FEED_H
#define LOCKSTEP_EXEC_FEED_H

#include "exec/data.h"
#include "exec/program.h"

typedef struct FeedSpec {
    uint32_t global_batch, micro_batch;
    uint32_t replica, replicas; /* which share; the first, of a rank that loads for all */
    uint32_t seq_len;           /* of this rank; data has whole sequences */
    uint32_t position_first;
    uint32_t tp_index;
} FeedSpec;

typedef struct Feed Feed;

/* Borrows d.  p: the program whose copies it feeds. */
Feed *feed_open(Data *d, const DataSpec *data, const FeedSpec *spec, const Program *p);
void feed_close(Feed *f);
/* Makes beforehand what these steps will bring, as a data set is loaded before training. */
void feed_prepare(Feed *f, uint64_t first_step, uint64_t steps);
void feed_step(Feed *f, uint64_t step); /* chooses the samples, makes their sequences */
/* The same for a later step, while another thread may ask for what this one brings: feed_step finds
 * it there. */
void feed_ahead(Feed *f, uint64_t step);

/* LoadData of exec/backend.h: user is the Feed. */
bool feed_load(void *user, const Task *t, const Buffer *b, void *out, Err *err);

#endif
