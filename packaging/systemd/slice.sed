# SPDX-License-Identifier: GPL-2.0-only
# Makes mthp_ext@.service of mthp_ext.service: mthp_ext@database covers database.slice, and nothing else.
s|^Description=.*|Description=Transparent-huge-page policy of %i.slice|
/^Documentation=/a\
# Without it there is no cgroup to attach to.\
Requires=%i.slice\
After=%i.slice
s|^\(ExecStart=.*\)$|\1 --root /sys/fs/cgroup/%i.slice|
