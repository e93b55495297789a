/*
 * chrome_write.h - a Timeline as Chrome Trace Event JSON, for Perfetto,
 * chrome://tracing and everything that reads Kineto's traces.
 *
 *     TIMELINE          JSON                                   WHY
 *     rank              pid = rank + 1, "rank 3"               pid 0 is the kernel's idle task to
 *                                                              Perfetto; Kineto's device numbers
 *                                                              collide between ranks
 *     track             tid of its own, unique in the file     Perfetto keys threads by tid, and a
 *                       and never equal to a pid               tid equal to its pid is "main"
 *     lane > 0          another tid, "compute (2)"             events of one tid must nest
 *     host track        one tid, spans nest; those that        as the caller saw them
 *                       do not go to further tids
 *     folded rank       "rank 0 (stands for 128 ranks)"
 *     span              X; ts and dur in microseconds with     exact: integer nanoseconds
 *                       three decimals
 *     step              "ProfilerStep#N", user_annotation      what analyzers look for
 *     collective        "nccl:all_reduce dp 51.2 MB Kernel"    readable, and what HTA looks for
 *     waiting           X "wait" nested in it, cat "wait"      not a kernel of its own
 *     counter           C, args {"value"}
 *
 *     CLASS                  CAT
 *     compute, comm, p2p     kernel
 *     memory                 gpu_memcpy, gpu_memset
 *     launch, host, sync     cuda_runtime, cpu_op, cuda_sync
 *     step, note             user_annotation, on a stream gpu_user_annotation
 *
 * Nothing is lost: a span whose shown name had to follow a convention carries its
 * own as args.name, its op id as args.op, what the graph calls that op as args.op_name,
 * which logical ops it is as args.logical ("INSTANCE:NUMBER,NUMBER...", the instance's key
 * in hexadecimal), its class as args.class where cat does not tell it; thread_name events
 * say kind, sort and number of the track.  Communication has args bytes, group, group_id,
 * ranks, seq, peer, ring_steps (of how many it is one), wait_us, algorithm, protocol,
 * busbw_GBps, and Kineto's "Collective name", "Group size", "dtype" ... beside them.
 *
 * Launches and kernels are joined by args.correlation: the recorded one, else
 * one made from the op id and how often the rank has launched it before.
 *
 * Timelines that begin before 0 or after 52 days (wall clocks) are shifted to 0,
 * and "baseTimeNanoseconds" says by how much: readers keep times as doubles.
 * Equal timelines give equal bytes.
 */
#ifndef LOCKSTEP_TRACES_CHROME_WRITE_H
#define LOCKSTEP_TRACES_CHROME_WRITE_H

#include "core/timeline.h"

/*
 * Writes whole or not at all (core/out_file.h); gzip when path ends in ".gz".
 * t must be sealed and, if it came from outside, have been checked.
 */
bool chrome_write(const Timeline *t, const char *path, Err *err);

#endif
