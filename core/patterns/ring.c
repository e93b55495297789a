/* ring.c - ring.h's arithmetic. */
#include "core/patterns/ring.h"

uint32_t ring_right(uint32_t member, uint32_t n)
{
    ASSERT(member < n);
    return member + 1 == n ? 0 : member + 1;
}

uint32_t ring_left(uint32_t member, uint32_t n)
{
    ASSERT(member < n);
    return member == 0 ? n - 1 : member - 1;
}

uint32_t ring_half_steps(uint32_t n)
{
    ASSERT(n > 0);
    return n - 1;
}

uint32_t ring_all_reduce_steps(uint32_t n)
{
    return 2 * ring_half_steps(n);
}

uint32_t ring_send_block(uint32_t member, uint32_t step, uint32_t n)
{
    ASSERT(member < n);
    ASSERT(step < ring_all_reduce_steps(n));
    return (uint32_t)(((uint64_t)member + 2 * (uint64_t)n - 1 - step) % n);
}

uint32_t ring_recv_block(uint32_t member, uint32_t step, uint32_t n)
{
    return ring_send_block(ring_left(member, n), step, n);
}

bool ring_step_reduces(uint32_t step, uint32_t n)
{
    return step < ring_half_steps(n);
}

BlockRange ring_block(uint64_t elements, uint32_t b, uint32_t n)
{
    ASSERT(b < n);
    uint64_t each = div_up_u64(elements, n);
    uint64_t first = min_u64((uint64_t)b * each, elements);
    return (BlockRange){ .first = first, .n = min_u64(each, elements - first) };
}
