/*
 * names.h - what a span is called where there is little room.
 *
 *     ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)      ReduceScatter bf16 51.20 MB RING_LL
 *     sm90_xmma_gemm_bf16bf16_bf16f32_..._tilesize128x256x64  gemm 128x256x64
 *     void at::native::vectorized_elementwise_kernel<4, ..>   vectorized_elementwise
 *     void flash_fwd_kernel<Flash_fwd_kernel_traits<...>>     flash_fwd
 *
 * Where several kernels would be called the same, each keeps the words that tell it apart:
 *
 *     void at::native::vectorized_elementwise_kernel<4, ..FillFunctor<float>, ..>
 *                                                             vectorized_elementwise FillFunctor
 *     ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn    gemm 128x128 tn
 */
#ifndef LOCKSTEP_VIZ_NAMES_H
#define LOCKSTEP_VIZ_NAMES_H

#include "core/timeline.h"
#include "viz/font.h"

typedef struct Names {
    const Timeline *t;
    const char **text; /* by interned id; NULL: none was asked for yet */
    Arena arena;
} Names;

void names_open(Names *n, const Timeline *t);
void names_free(Names *n);

/* Of an interned name; lives as long as n. */
const char *names_short(Names *n, uint32_t name);
/* Of a span; communication with its type, size and protocol.  Returns text. */
char *names_of_span(Names *n, uint64_t span, char *text, size_t cap);
/* The same where the size stands elsewhere. */
char *names_without_size(Names *n, uint64_t span, char *text, size_t cap);
/* Cuts words off the end of text until it fits; false: what is left says nothing. */
bool names_fit(Font *font, TextStyle style, char *text, Px width);
/* Where text is wider its middle becomes an ellipsis: for names that begin alike.  Returns to. */
char *names_cut(Font *font, TextStyle style, const char *text, Px width, char *to, size_t cap);
/* The rule itself, of one name alone. */
char *name_shorten(const char *name, char *text, size_t cap);

#endif
