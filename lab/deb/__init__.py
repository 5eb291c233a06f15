# SPDX-License-Identifier: GPL-2.0-only
"""`make deb`: the program as a Debian package, with what is linked into it and under which licences."""
