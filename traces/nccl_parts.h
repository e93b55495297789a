/*
 * nccl_parts.h - what the two readers of nccl-tests share, that of logs (nccl_tests.c) and that
 * of JSON (nccl_json.c); nobody else's.
 */
#ifndef LOCKSTEP_TRACES_NCCL_PARTS_H
#define LOCKSTEP_TRACES_NCCL_PARTS_H

#include "traces/nccl_tests.h"

/* The collective that a program's or file's name says: "all_reduce_perf"; NULL for none. */
const char *nccl_op_in(const char *text);
/* 22902 -> "2.29.2"; 2 digits each since 2.9, one before (2708: 2.7.8). */
const char *nccl_library_version(Arena *arena, unsigned long version);

/* The beginning of what -J writes. */
bool nccl_json_matches(const char *head, size_t n);
/* Appends its one test, with op NULL when the file does not say.  name lives as long as l. */
bool nccl_json_parse(NcclLog *l, const char *text, size_t n, const char *name, Err *err);

#endif
