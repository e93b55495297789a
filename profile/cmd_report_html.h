/*
 * cmd_report_html.h - the page of a report, its pictures drawn by the viewer's code.
 */
#ifndef LOCKSTEP_PROFILE_CMD_REPORT_HTML_H
#define LOCKSTEP_PROFILE_CMD_REPORT_HTML_H

#include "profile/trace_report.h"

/* Whether it could be written shows when out is closed. */
void report_page(const TraceReport *r, FILE *out);

#endif
