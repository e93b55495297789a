/* cmd_options.c - one walk over argv for every command; the words are ours, not getopt's. */
#include "sim/cmd_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeral.h"
#include "sim/pool.h"

void option_setting(SettingList *list, const char *key, const char *value)
{
    GROW(list->settings, list->n, list->cap);
    list->settings[list->n++] = (Setting){ key, value };
}

bool option_set(SettingList *list, char *text, Err *err)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return err_set(err, "--set takes KEY=VALUE, not '%.100s'", text);
    *equals = '\0';
    option_setting(list, text, equals + 1);
    return true;
}

bool option_count(uint64_t *x, const char *option, const char *text, uint64_t min, uint64_t max,
                  Err *err)
{
    const char *end;
    if (numeral_whole(text, x, &end) && !*end && *x >= min && *x <= max)
        return true;
    return err_set(err, "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%.60s'",
                   option, min, max, text);
}

/* "3" or "4-7" at *text, which moves behind it. */
static bool take_range(uint32_t **ranks, uint32_t *n, uint32_t *cap, const char **text)
{
    enum { LISTED_MAX = 1 << 20, RANKS_MAX = 1 << 24 };
    const char *end;
    uint64_t low, high;
    if (!numeral_whole(*text, &low, &end))
        return false;
    high = low;
    if (*end == '-' && !numeral_whole(end + 1, &high, &end))
        return false;
    if (high < low || high >= RANKS_MAX || high - low >= LISTED_MAX)
        return false;
    for (uint64_t rank = low; rank <= high; rank++) {
        GROW(*ranks, *n, *cap);
        (*ranks)[(*n)++] = (uint32_t)rank;
    }
    *text = end;
    return true;
}

bool option_ranks(uint32_t **ranks, uint32_t *n, uint32_t *cap, const char *option,
                  const char *list, Err *err)
{
    for (const char *at = list;; at++)
        if (!take_range(ranks, n, cap, &at) || (*at && *at != ','))
            return err_set(err, "%s takes ranks as in 0,3 or 0-7, not '%.60s'", option, list);
        else if (!*at)
            return true;
}

bool option_jobs(uint32_t *jobs, const char *text, Err *err)
{
    uint64_t n;
    if (!option_count(&n, "--jobs", text, 1, POOL_THREADS_MAX, err))
        return false;
    *jobs = (uint32_t)n;
    return true;
}

/* What getopt found: ':' a value is missing; '?' optopt tells one too many from a wrong name. */
static bool wrong_option(int found, const char *text, Err *err)
{
    if (found == ':')
        return err_set(err, "%.100s needs a value", text);
    if (optopt > 0 && optopt < 256 && text[0] == '-' && text[1] != '-')
        return err_set(err, "unknown option '-%c'", optopt);
    return err_set(
        err, optopt ? "'%.100s': this option takes no value" : "unknown option '%.100s'", text);
}

bool options_walk(int argc, char **argv, const struct option *table, OptionTake *take,
                  void *user, bool *help, Err *err)
{
    optind = 1;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", table, NULL)) != -1;) {
        *help = *help || option == OPTION_HELP || option == 'h';
        if (*help)
            return true;
        if (option == ':' || option == '?')
            return wrong_option(option, argv[optind - 1], err);
        if (!take(user, option, err))
            return false;
    }
    return true;
}

int options_wrong(const char *command, const Err *err)
{
    fprintf(stderr, "lockstep: %s; `lockstep %s --help` shows the usage\n", err->text, command);
    return EXIT_USAGE;
}
