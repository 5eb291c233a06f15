# SPDX-License-Identifier: GPL-2.0-only
"""Guests: a job in a virtual machine of its own, run to an end that is beyond doubt; several of them side by side."""

from lab.vm.machine import GRACE_S, Job, Outcome, run
from lab.vm.qemu import Mode
from lab.vm.verdict import Verdict

__all__ = ["GRACE_S", "Job", "Mode", "Outcome", "Verdict", "run"]
