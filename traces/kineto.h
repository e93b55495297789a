/*
 * kineto.h - Chrome Trace Event JSON, and Kineto's dialect of every vintage, read
 * into a Timeline as it streams by.
 *
 *     JSON                                      TIMELINE
 *     X with args.stream, a number but -1       TRACK_STREAM of (device, stream); sort = stream
 *       cat kernel, Kernel, or none known         comm, p2p or compute: traces/rules.h
 *       cat gpu_memcpy, gpu_memset, Memcpy ...    memory
 *       cat cuda_sync, cuda_event                 sync
 *       a host's cat (Triton's cpu_op ...)        host, on a TRACK_STREAM "... (host rows)"
 *     X without cat, in a thread "Stream #N"    TRACK_STREAM, as if it had args.stream; of several
 *       of a process "/device:GPU:D" (XLA)        such devices each is a rank
 *     X of a GPU's cat without such a stream    TRACK_STREAM, sort < 0; gpu_user_annotation:
 *                                               note on the stream that its tid says
 *     X else                                    TRACK_HOST of (pid, tid); sort = tid
 *       cuda_runtime ...Launch, Memcpy, Memset    launch
 *       ...Synchronize                            sync
 *       user_annotation, Trace                    note
 *       "ProfilerStep#N"                          step, on the TRACK_STEPS
 *       else                                      host
 *     B E, b n e                                spans as X; b n e on a track of their cat
 *     i I R, and [memory] that says no total    note of length 0
 *     [memory] with "Total Allocated"           counter "allocated GPU 0"; also reserved
 *     C                                         TRACK_COUNTER, one for each number in args
 *     s t f                                     read over: args.correlation says the same
 *     what chrome_write wrote                   what it was written from: tracks, classes, names
 *
 * Names are exact, escapes resolved.  correlation is args.correlation, args_offset
 * the byte at which the event begins (in the unpacked text).
 *
 * HOLISTIC TRACE ANALYSIS counts as GPU rows what has a `dur` and a numeric
 * args.stream other than -1, whatever the cat.  Exactly these are here the spans
 * of tracks with kind TRACK_STREAM and sort >= 0 whose class is neither note nor
 * step.  (B/E pairs have no dur; they are never put on such tracks.  XLA's rows are
 * there too, without args.stream.)
 *
 * Time: ts x 1000 as an exact integer, plus baseTimeNanoseconds.  So the times of
 * current and of old traces are nanoseconds since 1970; info->wall_clock says so.
 * A ts beyond TIMELINE_NS_MAX (2043, or scaled by someone) is taken modulo that.
 *
 * COMMUNICATION gets a Comm from the kernel's own args ("Collective name", ...),
 * else from the record_param_comms or "nccl:..." operator that encloses its launch
 * (found by correlation), else from its name.  A kernel whose name no rule knows is
 * communication when it was launched within such an operator, and no known one was.
 * bytes = larger of in and out elements x their size, as nccl-tests counts; group =
 * "Process Group Description", else its name; group_id = its name where that is a number,
 * else a hash of it, and of its ranks where they are listed: split_group counts names by
 * process, so several groups may share one.
 *
 * A KERNEL'S LAUNCH is what its args say under "grid", "block", "registers per thread",
 * "shared memory", "est. achieved occupancy %" (timeline_launch_of).
 *
 * Damaged events are skipped and counted; reading goes on at the next event.  A
 * file that ends in the middle is read up to there.  Documents one after another
 * are one trace; of different ranks, they are an error.
 *
 * Memory: 50 bytes a span, and a window over the text that is as long as its longest
 * event, 256 KiB at least.
 */
#ifndef LOCKSTEP_TRACES_KINETO_H
#define LOCKSTEP_TRACES_KINETO_H

#include "traces/info.h"
#include "traces/rules.h"

enum { KINETO_EVENT_BYTES_MAX = 32 << 20 }; /* a longer one is damaged */

/* Text that begins with an object or a list. */
bool kineto_matches(const uint8_t *head, size_t n);

/*
 * Reads; t is sealed, its tracks have rank info->rank (0 when the file does not
 * say).  Fails only when there is no event that could be read.  On failure t is
 * empty.  rules may be shared between threads.
 */
bool kineto_read(Timeline *t, TraceInfo *info, const char *path, const Rules *rules, Err *err);

#endif
