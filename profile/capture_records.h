/*
 * capture_records.h - one CUPTI activity record becomes one record of the recording.
 *
 * Pure: nothing of CUPTI is called, so it is tested on structs filled in by hand.  Of records
 * the fields are read that every version since CUDA 11.8 has at the same place (asserted in
 * capture_records.c), and built with CUDA 13 some that came with it: the plugin depends on a
 * libcupti of the same major version, which may be newer and deliver longer records.
 */
#ifndef LOCKSTEP_PROFILE_CAPTURE_RECORDS_H
#define LOCKSTEP_PROFILE_CAPTURE_RECORDS_H

#include <cupti.h>

#include "profile/records_format.h"

/* How texts become numbers of the recording. */
typedef struct CaptureTexts {
    void *user;
    uint32_t (*text)(void *user, const char *text);   /* as it is */
    uint32_t (*kernel)(void *user, const char *name); /* mangled; demangled if possible */
    uint32_t (*call)(void *user, bool driver, uint32_t cbid);
} CaptureTexts;

/* Length of the record in *raw; 0: a kind that is not recorded. */
uint16_t capture_convert(RawAny *raw, const CUpti_Activity *record, const CaptureTexts *texts);

#endif
