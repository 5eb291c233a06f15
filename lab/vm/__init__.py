# SPDX-License-Identifier: GPL-2.0-only
"""Runs a job in a virtual machine of its own and says, beyond doubt, how it ended."""

from lab.vm.machine import GRACE_S, Job, Outcome, run
from lab.vm.qemu import Mode
from lab.vm.verdict import Verdict

__all__ = ["GRACE_S", "Job", "Mode", "Outcome", "Verdict", "run"]
