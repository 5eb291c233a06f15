# SPDX-License-Identifier: GPL-2.0-only
"""What `make test-prometheus` makes of answers."""

import json
import unittest
from collections.abc import Mapping
from typing import Any

from lab.checks import prometheus
from lab.errors import Exit, LabError


class PrometheusTest(unittest.TestCase):
    def test_an_expression_names_its_metrics(self) -> None:
        text = 'rate(mthp_ext_a_total{instance=~"mthp_ext_b"}[5m]) / on (x) node_c == 0 and up{job="mthp_ext"}'
        self.assertEqual(prometheus.metrics(text), {"mthp_ext_a_total", "node_c"})
        self.assertEqual(prometheus.metrics("job:mthp_ext_up:ratio"), set())

    def test_the_dashboard_has_values_for_its_variables(self) -> None:
        panel = {"targets": [{"expr": 'rate(a{instance=~"$instance"}[$__rate_interval])'}]}
        self.assertEqual(prometheus.dashboard(json.dumps({"panels": [panel]})), ['rate(a{instance=~".*"}[1m])'])

    def test_what_has_no_answer_is_found(self) -> None:
        def query(path: str, parameters: Mapping[str, str]) -> Any:
            self.assertEqual(path, "query_range")
            if parameters["query"] == "wrong(":
                raise LabError(Exit.TESTS, "parse error")
            return {"result": [{}] if parameters["query"] == "there" else []}

        found = prometheus.unanswered(["there", "nowhere", "wrong("], query, 1.0, 2.0)
        self.assertEqual(found, ["no answer: nowhere", "wrong(: parse error"])

    def test_a_rule_of_what_there_is_not_is_found(self) -> None:
        rules = [
            {"name": "Good", "health": "ok", "query": "mthp_ext_a > 0"},
            {"name": "Ill", "health": "err", "lastError": "why", "query": "mthp_ext_a"},
            {"name": "Vain", "health": "ok", "query": "mthp_ext_none > 0"},
        ]
        found = prometheus.unsound([{"rules": rules}], {"mthp_ext_a"})
        self.assertEqual(found, ["Ill: err: why", "Vain: there is no mthp_ext_none"])
