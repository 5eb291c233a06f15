# SPDX-License-Identifier: GPL-2.0-only
"""Programs of a few lines of Python, which cases bring along. They need the software "python"."""


def argv(script: str, *arguments: str, **values: int) -> tuple[str, ...]:
    """What runs `script`, with each "{name}" in it replaced by its value. The interpreter is isolated and loads no
    site: the guest has only what it needs to start."""
    for name, value in values.items():
        script = script.replace(f"{{{name}}}", str(value))
    return ("{python}", "-I", "-S", "-c", script, *arguments)
