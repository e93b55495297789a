/*
 * cluster_open.h - a cluster by itself, as a command line names it.
 */
#ifndef LOCKSTEP_SIM_CLUSTER_OPEN_H
#define LOCKSTEP_SIM_CLUSTER_OPEN_H

#include "core/machine.h"
#include "core/setting.h"

/*
 * name: a built-in cluster or the path of a .json file.  settings: keys of the cluster object,
 * as in inter_node.nics_per_node.  nodes_n: then so many nodes in place of its own; 0: its own.
 * On failure *m is empty and err names the key.
 */
bool cluster_open(Machine *m, const char *name, uint32_t nodes_n, const Setting *settings,
                  uint32_t settings_n, Err *err);

#endif
