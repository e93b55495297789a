/*
 * capture.h - the capture plugin: its doors, and what it is told by the environment.
 *
 * One shared object, lockstep-capture.so, with four doors:
 *
 *     lockstep_capture         a CaptureApi (core/capture_api.h), for a program that loads it
 *     InitializeInjection      called by the CUDA driver when the process initialises it and
 *                              CUDA_INJECTION64_PATH names the plugin: any program, unchanged
 *     ncclProfiler_v5, _v4     called by NCCL when NCCL_PROFILER_PLUGIN names the plugin
 *     InitializeInjectionNvtx2 called by NVTX when NVTX_INJECTION64_PATH names the plugin; it is
 *                              libcupti's, found because the plugin depends on libcupti
 *
 * Injected, it writes CAPTURE_DIR_VARIABLE/HOST.PID.N.lsraw, from the first CUDA call to the
 * exit of the process.  Fatal signals that the program does not handle itself are delayed by up
 * to two seconds while the recording is completed.  A child that is forked does not record
 * unless it initialises CUDA itself; a program that is exec'ed records anew.
 * It prints nothing: what goes wrong stands in the recording (RawTrouble).
 */
#ifndef LOCKSTEP_PROFILE_CAPTURE_H
#define LOCKSTEP_PROFILE_CAPTURE_H

#include "core/capture_api.h"

#define CAPTURE_DIR_VARIABLE "LOCKSTEP_CAPTURE_DIR"

#endif
