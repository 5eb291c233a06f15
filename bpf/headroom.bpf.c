// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ours: an order is allowed only while its folio fits K times between usage and
 * the nearest limit, or into what the host has left.  Decided at fault time; needs no PSI
 * and no scan.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(HEADROOM) | MTHP_RULE(HOST) | MTHP_RULE(MAX_ORDER))

#include "choose.bpf.h"

MTHP_POLICY(headroom);
