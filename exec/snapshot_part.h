/*
 * snapshot_part.h - one file of a snapshot: what one rank owns.
 *
 * Little endian, no padding:
 *
 *     OFFSET  SIZE  HEAD
 *          0     8  "LOCKSNAP"
 *          8     4  version, 1
 *         12     4  CRC-32 (zlib's) of the head from byte 16 on
 *         16     8  bytes of the head
 *         24     8  bytes of the file
 *         32     8  optimizer steps done
 *         40     8  seed
 *         48     4  rank whose part this is
 *         52     4  parts of the snapshot
 *         56     4  pieces
 *         60     4  bytes of the model
 *         64     4  bytes of the text
 *         68     -  model (SnapshotInfo.model), text, then for each piece
 *                4    layer; 2^32 - 1: none
 *                4    what: 0 parameter, 1 master weights, 2 first, 3 second moment
 *                4    number format: 0 f32, 1 f16, 2 bf16
 *                4    bytes of the parameter's name
 *                8    rows of the whole parameter
 *                8    columns
 *                8    runs
 *                4    CRC-32 of the numbers
 *                     name, then for each run: 8 first element in the whole, 8 elements
 *                   NUMBERS
 *                   of each piece, run after run, in the order of the head
 *
 * Every byte stands under a checksum or is compared, so none can change unnoticed.
 * Whatever a head says is checked against the size of the file before it is believed.
 */
#ifndef LOCKSTEP_EXEC_SNAPSHOT_PART_H
#define LOCKSTEP_EXEC_SNAPSHOT_PART_H

#include "exec/params.h"

typedef struct SnapHead {
    uint64_t step, seed;
    uint32_t rank, parts_n;
    const char *model, *text; /* text NULL is "" */
} SnapHead;

typedef struct StoredPiece {
    uint32_t layer;
    PieceKind what;
    DType dtype;
    const char *name;
    uint64_t rows, columns;
    uint32_t runs_first, runs_n; /* local: element within the piece's numbers */
    uint64_t elements, offset;   /* of its numbers in the file */
    uint32_t checksum;
} StoredPiece;

typedef struct SnapPart {
    SnapHead head;
    char *path;
    int file; /* -1 while it is not needed */
    uint64_t file_bytes, head_bytes;
    uint32_t pieces_n, runs_n, runs_cap;
    StoredPiece *pieces;
    Run *runs;
    char *names; /* of pieces, model and text */
} SnapPart;

/* The pieces that the program's rank owns.  The file is new, and on disk when true is returned. */
bool snap_write(const char *path, const SnapHead *head, const Pieces *x, const Program *p,
                const WholeList *whole, const Store *from, Err *err);

/* Reads and checks the head; numbers are read when asked for.  snap_close also after failure. */
bool snap_open(SnapPart *part, const char *path, Err *err);
/* All numbers of a piece, elements x dtype_bytes, checked. */
bool snap_numbers(SnapPart *part, const StoredPiece *piece, void *out, Err *err);
void snap_rest(SnapPart *part); /* closes the file until numbers are asked for again */
void snap_close(SnapPart *part);

/* Makes the head's checksum and the file's size right, for tests and fuzzers. */
void snap_repair(uint8_t *bytes, uint64_t n);

#endif
