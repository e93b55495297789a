/*
 * setting.h - KEY=VALUE of --set: what takes the place of a scenario's own key.
 */
#ifndef LOCKSTEP_CORE_SETTING_H
#define LOCKSTEP_CORE_SETTING_H

#include <stdint.h>

typedef struct Setting {
    const char *key, *value;
} Setting;

typedef struct SettingList {
    Setting *settings; /* freed by the command; text belongs to argv */
    uint32_t n, cap;
} SettingList;

#endif
