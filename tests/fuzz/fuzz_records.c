/*
 * fuzz_records.c - any records behind a good head: never a crash, and what comes out is a
 * timeline that passes its check.  Odd lengths are read as ranks in one process.
 */
#include "tests/unit/raw_world.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static RawWorld w;
    Timeline t = { 0 };
    RecordsInfo info;
    RecordsMembers members = { .n = 0 };
    Err err;
    if (n > sizeof w.bytes - RAW_HEAD_BYTES)
        return 0;
    const RecordsOptions o = { .rank = 0, .ranks_in_ops = n & 1, .members = &members };
    w.n = RAW_HEAD_BYTES + n;
    *raw_head(&w) = (RawHead){ .magic = RAW_MAGIC,
                               .version = RAW_VERSION,
                               .byte_order = RAW_BYTE_ORDER,
                               .head_bytes = RAW_HEAD_BYTES,
                               .rank = NONE_U32,
                               .world = 2 };
    memcpy(w.bytes + RAW_HEAD_BYTES, data, n);
    ASSERT(raw_read(&w, &t, &info, &o, &err));
    t.ranks_n = 2;
    records_settle_peers(&t, &members);
    timeline_seal(&t);
    if (!timeline_check(&t, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    timeline_free(&t);
    free(members.member);
    return 0;
}
