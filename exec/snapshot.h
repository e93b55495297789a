/*
 * snapshot.h - a training run on disk: parameters, optimizer state, step.
 *
 *     DIR/step-00000120/rank-00000.part ...   written under DIR/step-00000120.tmp, fsynced,
 *                                             renamed when all ranks have written
 *     DIR/latest                              one line: the newest complete step
 *
 * A part holds what its rank owns (params.h, Piece.owner): everything on rank 0 under
 * ddp, every rank's shards under fsdp and ZeRO, every rank's split under tp and pp.
 * Pieces are stored by the parameter's identity and place in the whole, so a snapshot
 * can be resumed by any split of the same model, and where parameters are kept in another
 * number format or with other master weights too: what is as precise as what is wanted is
 * taken first.  The file's format: snapshot_part.h.
 *
 * Each piece and the head carry a checksum; what was not completely written is not looked
 * at, and goes with the next snapshot; the last two complete ones of a training are kept.
 * Without a usable `latest` the highest step counts.
 *
 * DIR is made where it does not exist, and must be one that all ranks see (a shared file
 * system when there are several hosts).  From snapshot_prepare to its end a job holds
 * DIR (flock), so that two jobs never mix theirs.
 */
#ifndef LOCKSTEP_EXEC_SNAPSHOT_H
#define LOCKSTEP_EXEC_SNAPSHOT_H

#include "exec/params.h"

typedef struct Fabric Fabric; /* exec/fabric.h */

typedef struct SnapshotInfo {
    uint64_t step;   /* optimizer steps done */
    uint64_t before; /* step of this training's snapshot before; 0: none */
    uint64_t seed;
    /* A line, the digest of model and optimizer, which must be equal to resume; behind it lines
     * "KEY=VALUE", for the sentence where it is not; those of the data must be equal too. */
    const char *model;
    const char *text; /* the scenario, for people and tools; may be NULL */
} SnapshotInfo;

/* All ranks together, before training: the directory is there, can be written, and is this job's
 * from here on.  After a failure, the same sentence on all. */
bool snapshot_prepare(const char *dir, const Program *p, Fabric *f, Err *err);

/* All ranks together.  After a failure, the same sentence on all of them, the directory is as it
 * was. */
bool snapshot_write(const char *dir, const SnapshotInfo *info, const Pieces *x,
                    const Program *p, const WholeList *whole, const Store *from, Fabric *f,
                    Err *err);

/* All ranks together: fills the store from the newest complete snapshot, at any split.
 * info->step and seed are set; info->model is what must be found.  After a failure, the same
 * sentence on all ranks, what the store holds is not to be used. */
bool snapshot_read(const char *dir, SnapshotInfo *info, const Pieces *x, const Program *p,
                   const WholeList *whole, const Store *to, Fabric *f, Err *err);

#endif
