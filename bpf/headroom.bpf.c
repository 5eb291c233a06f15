// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ours: once large folios have had their share of a limit, or of the host, an order is
 * allowed only while its folio fits K times into what is left.  Decided at fault time;
 * needs no PSI and no scan.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(HEADROOM) | MTHP_RULE(HOST) | MTHP_RULE(MAX_ORDER))

#include "host.bpf.h"
#include "choose.bpf.h"

MTHP_POLICY(headroom);
