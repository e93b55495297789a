/*
 * cuda_names.h - what CUPTI's numbers, CUDA's calls and programs' own ranges mean.
 *
 * The collector's recordings (profile/records.h) and Nsight's exports (traces/nsys.h)
 * say the same things in the same words; so both readers ask here.
 */
#ifndef LOCKSTEP_CORE_CUDA_NAMES_H
#define LOCKSTEP_CORE_CUDA_NAMES_H

#include "core/timeline.h"

/* CUpti_ActivityMemcpyKind: "Memcpy HtoD" ...; "Memcpy" for one that is not known. */
const char *cuda_copy_name(uint64_t kind);
/* CUpti_ActivitySynchronizationType: "Event Sync" ...; "Sync" for one that is not known. */
const char *cuda_sync_name(uint64_t kind);

/* "cudaLaunchKernel" launches, "cudaStreamSynchronize" and "cuStreamWaitEvent" wait; the rest is
 * the host's, a function that is launched on the host too. */
SpanClass cuda_call_class(const char *call);

/* Does the host wait for the GPU?  "cudaStreamSynchronize" does, as does any other SPAN_SYNC of a
 * host but "cudaStreamWaitEvent", which returns at once: a stream is to wait. */
bool cuda_host_waits(SpanClass class_, const char *name);

/* Whether an NVTX range of this name is one optimizer step: "step 12", "ProfilerStep#12". */
bool cuda_range_is_step(const char *name);

#endif
