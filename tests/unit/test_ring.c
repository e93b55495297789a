/* test_ring.c - a replay of ring collectives on one host, and who holds what. */
#include "core/patterns/ring.h"
#include "tests/check.h"

enum { MEMBERS_MAX = 9 };

/*
 * Member r contributes 8^r to every block, so a missing or doubled contribution shows in one
 * octal digit.  Steps [first, end) on value[member][block].
 */
static void replay(uint64_t value[MEMBERS_MAX][MEMBERS_MAX], uint32_t n, uint32_t first,
                   uint32_t end)
{
    for (uint32_t step = first; step < end; step++) {
        uint64_t wire[MEMBERS_MAX];
        for (uint32_t r = 0; r < n; r++)
            wire[r] = value[r][ring_send_block(r, step, n)];
        for (uint32_t r = 0; r < n; r++) {
            uint32_t left = ring_left(r, n);
            CHECK_INT(ring_send_block(left, step, n), ring_recv_block(r, step, n));
            uint64_t *block = &value[r][ring_recv_block(r, step, n)];
            *block = ring_step_reduces(step, n) ? *block + wire[left] : wire[left];
        }
    }
}

static uint64_t start(uint64_t value[MEMBERS_MAX][MEMBERS_MAX], uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < n; r++) {
        sum += (uint64_t)1 << (3 * r);
        for (uint32_t b = 0; b < n; b++)
            value[r][b] = (uint64_t)1 << (3 * r);
    }
    return sum;
}

static void an_all_reduce_sums_every_member_once(void)
{
    for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
        uint64_t value[MEMBERS_MAX][MEMBERS_MAX], sum = start(value, n);
        replay(value, n, 0, ring_all_reduce_steps(n));
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t b = 0; b < n; b++)
                CHECK_U64(sum, value[r][b]);
    }
}

static void after_the_first_half_member_i_holds_block_i(void)
{
    for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
        uint64_t value[MEMBERS_MAX][MEMBERS_MAX], sum = start(value, n);
        replay(value, n, 0, ring_half_steps(n));
        for (uint32_t r = 0; r < n; r++)
            CHECK_U64(sum, value[r][r]);
    }
}

static void the_second_half_alone_gathers(void)
{
    for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
        uint64_t value[MEMBERS_MAX][MEMBERS_MAX];
        start(value, n);
        replay(value, n, ring_half_steps(n), ring_all_reduce_steps(n));
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t b = 0; b < n; b++)
                CHECK_U64((uint64_t)1 << (3 * b), value[r][b]);
    }
}

static void right_and_left_are_each_others_inverse(void)
{
    for (uint32_t n = 1; n <= MEMBERS_MAX; n++)
        for (uint32_t r = 0; r < n; r++) {
            CHECK_INT((r + 1) % n, ring_right(r, n));
            CHECK_INT(r, ring_left(ring_right(r, n), n));
        }
}

/* Blocks follow each other without gap, none is longer than the first, all is covered. */
static void blocks_cover_everything_once(void)
{
    for (uint64_t elements = 0; elements < 40; elements++)
        for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
            uint64_t next = 0;
            for (uint32_t b = 0; b < n; b++) {
                BlockRange s = ring_block(elements, b, n);
                CHECK_U64(next, s.first);
                CHECK(s.n <= ring_block(elements, 0, n).n);
                next = s.first + s.n;
            }
            CHECK_U64(elements, next);
            CHECK_U64((elements + n - 1) / n, ring_block(elements, 0, n).n);
        }
}

int main(void)
{
    RUN(an_all_reduce_sums_every_member_once);
    RUN(after_the_first_half_member_i_holds_block_i);
    RUN(the_second_half_alone_gathers);
    RUN(right_and_left_are_each_others_inverse);
    RUN(blocks_cover_everything_once);
    return check_report();
}
