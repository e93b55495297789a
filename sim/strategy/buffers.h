/*
 * buffers.h - running statistics of batch norms, made equal before a step (ddp).
 *
 * PyTorch's DistributedDataParallel with broadcast_buffers (its default) sends the
 * buffers of rank 0 to all before a forward whose gradients will be summed, that is
 * once per step.  broadcast_coalesced flattens those of one number format, and
 * copies them back one by one, which costs little to send and much to launch:
 *
 *     compute   [cat f32]...........[copy][copy] ... [cat i64]...........[copy] ... |forward
 *     reduce             [bcast f32]                          [bcast i64]
 *
 * Each batch norm has running_mean and running_var of its channels in f32, and
 * num_batches_tracked.
 */
#ifndef LOCKSTEP_SIM_STRATEGY_BUFFERS_H
#define LOCKSTEP_SIM_STRATEGY_BUFFERS_H

#include "sim/strategy/parts.h"

/* Appends the broadcast to a role, before anything else; nothing where there are no batch norms. */
void broadcast_buffers(Build *b, uint32_t role);

#endif
